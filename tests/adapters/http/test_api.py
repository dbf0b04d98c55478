"""The JSON API: each operation, each kind of answer."""

from __future__ import annotations

import msgspec

from mnemolog.adapters.http.operations import OPERATIONS
from mnemolog.adapters.http.problems import error_of
from tests.adapters.http.examples import EXAMPLES


def test_every_operation_has_an_example():
    """A new operation cannot be added without a request that is tested."""
    assert set(EXAMPLES) == {operation.name for operation in OPERATIONS}


def test_an_export_is_the_body_and_can_be_verified(server, known, store, tmp_path):
    """The same lines as those of the library, sent as they are written."""
    answer = server("GET", "/export", params=EXAMPLES["audit.export"].params)
    assert answer.headers["content-type"] == "application/jsonl"
    file = tmp_path / "log.jsonl"
    store.audit.export(file, upto=5)
    assert answer.content == file.read_bytes()


def test_an_export_that_cannot_begin_is_a_problem(server, known):
    """Nothing was sent, so the status says what is wrong."""
    assert server("GET", "/export", params={"upto": 10_000}).json()["title"] == "InvalidInput"


def test_a_long_call_reports_its_progress_then_the_result(server, known):
    """With `Accept: text/event-stream`: events `progress`, then one `result`."""
    answer = server("POST", "/verify", json={}, headers={"accept": "text/event-stream"})
    assert answer.headers["content-type"] == "text/event-stream"
    *progress, last = [part.split("\n") for part in answer.text.strip().split("\n\n")]
    assert last[0] == "event: result"
    assert msgspec.json.decode(last[1].removeprefix("data: "))["sound"] is True
    assert all(part[0] == "event: progress" for part in progress)
    assert msgspec.json.decode(progress[-1][1].removeprefix("data: "))["done"] > 0


def test_a_long_call_that_fails_ends_with_an_error_event(server, known):
    """The stream has begun with status 200, so its last event has the problem."""
    answer = server("POST", "/verify", json={"expect_head": "x"}, headers={"accept": "text/event-stream"})
    name, data = answer.text.strip().split("\n")
    assert name == "event: error"
    assert error_of(data.removeprefix("data: ").encode()).field == "expect_head"
