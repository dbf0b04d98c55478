"""Errors cross the network: the caller raises what the store raised, with the same fields."""

import inspect

import pytest

from mnemolog.domain import errors
from mnemolog.domain.errors import MnemologError
from mnemolog.server.http.problems import error_of, hint_of, problem_of, problem_response, status_of
from tests.example_errors import EXAMPLES, PATH


def test_every_class_of_error_has_an_example():
    """A new class cannot be added without saying what its answer is."""
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, MnemologError)}
    assert {type(error) for error in EXAMPLES} == kinds


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_is_a_problem_of_rfc_9457_and_is_raised_again_with_the_same_fields(error):
    """No field hides a member. Its hint has requests in the problem, and calls for the caller; a 503 has a time."""
    members = problem_of(error)
    assert members["type"] == f"urn:mnemolog:problem:{type(error).__name__}"
    assert members["title"] == type(error).__name__
    assert 400 <= members["status"] == status_of(type(error)) < 600
    assert members["detail"] == str(error)
    assert bool(members["hint"]) == bool(error.hint)
    response = problem_response(error)
    assert ("retry-after" in response.headers) == (status_of(type(error)) == 503)
    assert {"content-type", "cache-control"} <= set(response.headers)
    again = error_of(response.body)
    assert type(again) is type(error)
    assert again.args == error.args
    fields = [{name: value for name, value in vars(one).items() if name != "_hint"} for one in (again, error)]
    assert fields[0] == fields[1]
    assert hint_of(again) == hint_of(error)
    assert again.hint == (hint_of(error) if "_hint" in vars(error) else error.hint)


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b'{"title": "NotFound"}', b'{"title": "errors"}', b"{}"])
def test_a_body_that_is_no_store_error_is_not_read_as_one(body):
    """Answers of proxies, and problems of the server itself."""
    assert error_of(body) is None


def test_notes_of_an_error_come_with_its_hint():
    """They say how much was done before it."""
    error = errors.StorageFull(PATH)
    error.add_note("3 turns were recorded")
    assert problem_of(error)["hint"] == "3 turns were recorded; free some space and try again"
