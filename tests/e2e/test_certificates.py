"""Certificates of erasures: a stranger checks each field with an export, and what is certified stays as it is."""

import copy
import importlib.util
import json
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mnemolog import MemoryStore, acting_as
from mnemolog.domain.events import ForgetTarget, TurnRecorded
from mnemolog.forgetting.history import Erasure
from mnemolog.forgetting.service import Forgetting

pytestmark = pytest.mark.local

_SPEC = importlib.util.spec_from_file_location("verify_export", Path(__file__).parents[2] / "docs" / "verify_export.py")
SCRIPT = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(SCRIPT)


def filled(folder):
    """A store with sessions whose names are parts of each other, facts, questions and a copy of its keys."""
    store = MemoryStore.open(folder / "m", model=None, synchronous="NORMAL")
    for name in ("al", "alice", "bob"):
        session = store.session(name, scope=f"acme/{name}", title=f"of {name}", agent="desk")
        turns = [session.record("user", f"{name} says the ferry leaves at {n}").position for n in range(5)]
        session.clear()
        store.assert_fact("ferry", name, because=turns[:2], scope=f"acme/{name}")
        store.recall("tram", scope=f"acme/{name}", receipt=True)
    store.recall("tram", scope="acme", receipt=True)
    store.backup(folder / "backup", keys=folder / "keys")
    return store


def certificate_of(store, request):
    """The certificate of a request as bytes, as it is made now."""
    return store.parts.forgetting.certificate(request).to_json().encode()


KINDS = {
    "a session": {"session": "alice"},
    "single turns": {"positions": [3, 5, 6, 13], "questions": False},
}


@pytest.fixture(scope="module", params=[*KINDS, "bound", "not carried out", "not completed", "of a newer log"])
def true(request, tmp_path_factory):
    """A true certificate, with the export of its log."""
    folder, patch = tmp_path_factory.mktemp("true"), pytest.MonkeyPatch()
    with filled(folder) as store, acting_as("officer"):
        store.forget(positions=4, reason="before")
        if request.param == "not carried out":
            patch.setattr(Forgetting, "reached", staticmethod(_stop))
            with pytest.raises(InterruptedError):
                store.forget(session="alice", reason="asked on the phone")
            (asked,) = (item.request for item in store.audit.pending_erasures())
            made = certificate_of(store, asked)
        elif request.param == "of a newer log":
            names = {"stream": "session/alice", "versions": [(2, 3), (5, 12)], "counts": {TurnRecorded.topic: 9}}
            asked, at = ForgetTarget(**names), datetime(2026, 3, 16, tzinfo=UTC)
            erasure = Erasure(request="0" * 16, requested_at=at, reason="asked on the phone", targets=(asked,))
            store.admin.reapply_erasures([erasure])
            for n in range(5):
                store.record("alice", "user", f"recorded later {n}")
            made = certificate_of(store, erasure.request)
        else:
            if request.param == "not completed":
                patch.setattr(Forgetting, "_wipe", lambda *_: "another process is reading them")
            caller = store.within("acme/alice") if request.param == "bound" else store
            named = KINDS.get(request.param, {"session": "alice"})
            made = caller.forget(**named, reason="asked on the phone").certificate.to_json().encode()
        patch.undo()
        store.record("bob", "user", "later")
        store.audit.export(folder / "log.jsonl")
    return folder, json.loads(made)


def _stop(step):
    if step == "requested":
        raise InterruptedError


def checked(true, capsys, certificate):
    """Exit status of the check, and the fields that it calls stated only."""
    folder, _ = true
    (folder / "certificate.json").write_text(json.dumps(certificate))
    status = SCRIPT.main([str(folder / "log.jsonl"), "--certificate", str(folder / "certificate.json")])
    said = capsys.readouterr().out
    return status, {*said.partition("proved by no export: ")[2].strip().split(", ")} - {""}


def other_values(value):
    """Values that are not this one: others, longer, shorter, empty, and of another type."""
    yield from (None, {}, [], "", 0, -1, True, 1.5, [value], {"value": value})
    if isinstance(value, str):
        yield from (f"{value}x", value[:-1], value[1:], value.upper(), value.lower(), f" {value}", value[::-1])
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, float(value), str(value), value + 2**64)
    elif isinstance(value, list):
        yield from (value[:-1], value[1:], [*value, *value[-1:]], [*value, 1], value[::-1])
    elif isinstance(value, dict):
        yield from (value | {"other": 1}, {str(key).upper(): item for key, item in value.items()})


def changes(value, path=()):
    """Yield each place in a document with what it may be changed to; ... removes it."""
    for key, item in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
        for other in (*other_values(item), ...):
            if json.dumps(other if other is not ... else "removed") != json.dumps(item):
                yield (*path, key), other
        if isinstance(item, dict | list):
            yield from changes(item, (*path, key))


def test_each_changed_field_is_refused_or_called_stated_only(true, capsys):
    """In the true certificate only what remains and what a store says of itself is called so."""
    _, made = true
    assert checked(true, capsys, made) == (0, {"statements", "remains"})
    passed, tried = [], 0
    for path, value in changes(made):
        changed = copy.deepcopy(made)
        place = changed
        for key in path[:-1]:
            place = place[key]
        if value is ...:
            del place[path[-1]]
        else:
            place[path[-1]] = value
        status, stated = checked(true, capsys, changed)
        tried += 1
        if status == 0 and path[0] not in stated:
            passed.append((path, value))
    assert not passed, passed[:10]
    assert tried > 300
    statements = made["statements"] | {"complete": not made["statements"]["complete"]}
    assert checked(true, capsys, made | {"statements": statements})[0] == 3
    assert checked(true, capsys, made | {"proof": "sound"}) == (0, {"statements", "remains", "proof"})
    assert checked(true, capsys, None)[0] == 2
    doubled = json.dumps(made)[:-1] + ', "reason": "asked on the phone"}'
    (true[0] / "doubled.json").write_text(doubled)
    assert SCRIPT.main([str(true[0] / "log.jsonl"), "--certificate", str(true[0] / "doubled.json")]) == 2


def test_a_certificate_is_checked_with_a_whole_log(true, capsys):
    """An export that begins later may lack what was asked."""
    folder, made = true
    with MemoryStore.open(folder / "m", model=None) as store:
        store.audit.export(folder / "part.jsonl", after=2)
    (folder / "certificate.json").write_text(json.dumps(made))
    arguments = [str(folder / "part.jsonl"), "--certificate", str(folder / "certificate.json")]
    assert SCRIPT.main(arguments) == 3
    assert SCRIPT.main(arguments[:1]) == 0


@contextmanager
def waiting(monkeypatch):
    """Let the files of keys wait to be rewritten."""
    with monkeypatch.context() as patch:
        patch.setattr(Forgetting, "_wipe", lambda *_: "another process is reading them")
        yield


@pytest.mark.parametrize("within", ["", "acme/alice"])
def test_a_complete_certificate_stays_the_same(tmp_path, monkeypatch, within):
    """Whatever is recorded, asked, forgotten or copied later. Before, only what is done and what waits changes."""
    with filled(tmp_path) as store:
        caller = store.within(within) if within else store
        caller.session("alice").record("user", "twice", key="a#0123456789abcdef")
        with waiting(monkeypatch):
            begun = caller.forget(session="alice", questions=False, reason="asked on the phone")
            early = json.loads(begun.certificate.to_json())
            later_things(store, tmp_path / "one")
        assert not begun.complete
        assert store.parts.forgetting.resume()
        complete = certificate_of(store, begun.request)
        done = json.loads(complete)
        assert (early["statements"]["complete"], done["statements"]["complete"]) == (False, True)
        assert {name for name in done if done[name] != early[name]} == {"after", "statements", "remains"}
        kinds = {item["kind"]: item for item in early["remains"]}
        assert {item["kind"]: item for item in done["remains"]} == {k: v for k, v in kinds.items() if k != "files"}
        assert {"digests", "questions", "keys", "names"} <= kinds.keys()
        assert ("scopes" in kinds) == bool(within)
        later_things(store, tmp_path / "two")
        store.backup(tmp_path / "backup", keys=tmp_path / "keys", replace=True)
        (tmp_path / "m" / "backups.json").unlink()
        assert certificate_of(store, begun.request) == complete
    with MemoryStore.open(tmp_path / "m", model=None) as store:
        assert certificate_of(store, begun.request) == complete
        assert store.verify().sound


def later_things(store, folder):
    """Record, ask, forget, and copy the keys."""
    store.record("alice", "user", "again", key=f"{folder.name}#0123456789abcdef")
    store.recall("alice", scope="acme/alice", receipt=True)
    gone = [item.position for item in store.events() if item.stream == "recalls" and item.position < 1_000]
    store.forget(positions=[at for at in gone if at not in {item.position for item in store.audit.forgotten()}][:2])
    store.forget(session="bob", questions=folder.name == "two")
    store.backup(folder / "backup", keys=folder / "keys")
