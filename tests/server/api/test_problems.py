"""Errors cross the network: the caller raises what the store raised, with the same fields."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mnemolog.domain import errors
from mnemolog.domain.errors import MnemologError
from mnemolog.server.http.problems import error_of, hint_of, problem_headers, problem_of, status_of, to_body

PATH = Path("/srv/memory")
EXAMPLES = (
    errors.MnemologError("a reason"),
    errors.StoreError("a reason"),
    errors.StoreNotFound(PATH),
    errors.NotAStore(PATH, "a reason"),
    errors.StoreNotWritable(PATH, "a reason"),
    errors.FormatTooNew(PATH, found=9, supported=8),
    errors.KeysMissing(PATH, "a reason"),
    errors.NetworkFilesystem(PATH, "nfs"),
    errors.OutOfDescriptors(PATH),
    errors.LogUnreachable("a reason"),
    errors.StoreReplaced(PATH, "a reason"),
    errors.BackupRefused(PATH, "a reason"),
    errors.BackupUnusable(PATH, "a reason"),
    errors.StoreClosed(),
    errors.StoreForked(opened_in=1, used_in=2),
    errors.InvalidInput("k", "a reason"),
    errors.LimitExceeded("text", limit=2, actual=3),
    errors.MemoryFull("value", limit=2, actual=3),
    errors.OutsideScope("a reason", scope="acme"),
    errors.SessionError("a reason"),
    errors.UnknownSession("trip", closest=["trap"], titled=["a", "b"]),
    errors.SessionExists("trip"),
    errors.SessionDiffers("trip", attribute="agent", recorded="a", given="b"),
    errors.SessionAlreadyEnded("trip"),
    errors.NoTask("trip"),
    errors.UnknownCheckpoint("trip", "packed"),
    errors.CheckpointExists("trip", "packed"),
    errors.OutsideSession("trip", position=9, first=1, last=4),
    errors.OutsideSession("trip", position=9, first=10, last=14, began=datetime(2026, 3, 16, tzinfo=UTC)),
    errors.SwitchRefused("branch", "a reason"),
    errors.AppendError("a reason"),
    errors.WrongExpectedVersion(stream="session/trip", expected=1, actual=2),
    errors.DuplicateKey(stream="session/trip", key="k", position=3),
    errors.ContentForgotten(stream="session/trip", key="k", position=3),
    errors.LogBusy(waited_s=5.0),
    errors.AppendOnly("a reason"),
    errors.StorageFull(PATH),
    errors.LogWriteFailed("a reason"),
    errors.LogDamaged("a reason", position=4),
    errors.UndecodableEvent(position=4, topic="turn.recorded.v9", why="a reason"),
    errors.ProjectionError("a reason"),
    errors.ProjectionBehind("vectors", behind_events=2, why="a reason"),
    errors.ProjectionUnreadable(PATH, "a reason"),
    errors.ModelMismatch(built_with="a", asked_with="b"),
    errors.IndexerBusy(PATH, holder="process 4"),
    errors.ModelError("a reason"),
    errors.ModelUnavailable("a model", "a reason"),
    errors.ModelUnavailable(None, "a reason"),
    errors.ModelRefused("a model", "a reason"),
    errors.EncodingFailed("a reason", position=3),
    errors.ImportRefused(PATH, 3, "a reason"),
    errors.WitnessUnreadable(PATH, 3, "a reason"),
    errors.ExtraMissing("server", "starlette"),
)

OF_THE_LIBRARY = (
    *("store.", "session(", "switch(", "set_task", "rebuild(", "doctor(", "models.", "checkpoints()", "limits="),
    *("model=", "=True"),
)


def test_every_class_of_error_has_an_example():
    """A new class cannot be added without saying what its answer is."""
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MnemologError)}
    assert {type(error) for error in EXAMPLES} == kinds


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_raised_again_with_the_same_fields(error):
    """Its class, its message, its fields and their types; the hint is in words of the API."""
    again = error_of(to_body(problem_of(error)))
    assert type(again) is type(error)
    assert again.args == error.args
    assert {**again.__dict__, "hint": ""} == {**error.__dict__, "hint": ""}
    assert again.hint == hint_of(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_problem_has_the_members_of_rfc_9457_and_a_hint(error):
    """`type`, `title`, `status`, `detail`; no field of an error hides one of them."""
    members = problem_of(error)
    assert members["type"] == f"urn:mnemolog:problem:{type(error).__name__}"
    assert members["title"] == type(error).__name__
    assert 400 <= members["status"] == status_of(error) < 600
    assert members["detail"] == str(error)
    assert bool(members["hint"]) == bool(error.hint)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_every_503_says_when_to_send_the_request_again(error):
    """No other problem does."""
    names = {name for name, _ in problem_headers(problem_of(error))}
    assert (b"retry-after" in names) == (status_of(error) == 503)
    assert {b"content-type", b"cache-control"} <= names


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_hints_are_in_words_of_the_api(error):
    """They name paths, not methods or arguments of the library."""
    if isinstance(error, errors.NetworkFilesystem):  # Raised where a store is opened: no request is answered then.
        return
    hint = problem_of(error)["hint"]
    assert not [word for word in OF_THE_LIBRARY if word in hint]


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"title": "NotFound"}', b'{"title": "errors"}', b"{}"])
def test_what_is_no_error_of_the_store_is_told_apart(body):
    """Answers of proxies, and problems of the server itself."""
    assert error_of(body) is None


def test_notes_of_an_error_come_with_its_hint():
    """They say how much was done before it."""
    error = errors.StorageFull(PATH)
    error.add_note("3 turns were recorded")
    assert problem_of(error)["hint"] == "3 turns were recorded; free some space and try again"
