"""An audit of reads: who read what, in a file outside of the log."""

import inspect
import json
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import Any, get_type_hints

import httpx2
import pytest

from mnemolog import MemoryStore, acting_as, connect, errors
from mnemolog.application.visible_events import SHOW_NOTHING
from mnemolog.audit.service import AuditService
from mnemolog.domain.events import Event
from mnemolog.operation_table import OPERATIONS
from mnemolog.session import Session, SessionAt
from tests.server.api.test_references import structs_in
from tests.server.serving import server

pytestmark = pytest.mark.local


@pytest.fixture
def file(tmp_path):
    return tmp_path / "reads.jsonl"


@pytest.fixture
def store(folder, file):
    """A store whose reads are audited, with a turn of each of two scopes."""
    with MemoryStore.open(folder, model=None, audit_reads=file) as store:
        for name in ("ada", "bob"):
            store.session(name, scope=f"acme/{name}").record("user", f"the ferry of {name}")
        yield store


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def last(file, *names):
    return tuple(lines(file)[-1][name] for name in names)


CONTENT = {"text", "query", "title", "value", "values", "description", "speaker", "metadata", "tool_calls", "because"}
"""Names of fields of events that hold what was said or kept."""


@pytest.mark.parametrize("owner", [MemoryStore, Session, SessionAt, AuditService])
def test_every_public_method_passes_the_gate(owner):
    """A new one cannot be forgotten, and leaves a line unless the type of its answer shows nothing."""
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if not name.startswith("_"):
            assert method.__code__.co_qualname == "_gated.<locals>.call", name


def test_what_leaves_no_line_holds_no_content():
    """Types of answers that are said to show nothing: no field of theirs, at any depth, is content or an event."""
    quiet = {
        name: get_type_hints(operation.method)["return"]
        for operation in OPERATIONS
        if (name := getattr(of := operation.method.__annotations__["return"], "__name__", of)) in SHOW_NOTHING
    }
    found = set[type]()
    for hint in quiet.values():
        structs_in(hint, found)
    assert {"Head", "Status", "Verification", "Ticket"} <= quiet.keys()
    for kind in found:
        assert not CONTENT & set(kind.__struct_fields__), kind
        assert not issubclass(kind, Event), kind
        assert Any not in get_type_hints(kind).values(), kind


def test_what_gives_back_what_was_given_writes():
    """A read is never taken for one, and what it gives back is a turn, a handle, a name or a label."""
    gives = [operation for operation in OPERATIONS if "gives_back" in vars(operation.method)]
    assert {operation.verb for operation in gives} == {"record", "propose", "forget"}
    answers = {
        of if isinstance(of, str) else of.__name__ for of in (one.method.__annotations__["return"] for one in gives)
    }
    assert "switch" in {operation.name for operation in gives}
    assert answers == {"Turn", "Results[Turn]", "Session", "Checkpoint", "Task", "Distrust", "Proposal"}


def test_a_preview_a_ticket_and_a_refusal_that_names_sessions_leave_lines(store, file):
    """They show content, although they write or return nothing. What only writes leaves none."""
    ada = store.find_session("ada")
    ada.note("her diagnosis")
    ada.checkpoint("before")
    ada.set_task("book the ferry")
    store.recall("ferry", scope="acme", receipt=True)
    store.session("titled", title="Her trip", scope="acme/ada")
    ticket = ada.prefetch("ferry")
    assert ticket.wait(10)
    for name, call in (
        ("session.restore", partial(ada.restore, "before", dry_run=True)),
        ("forget", partial(store.forget, scope="acme/ada", dry_run=True)),
        ("session.update_task", partial(ada.update_task, step=1)),
        ("session.prefetch", lambda: ticket.outcome),
        ("session", partial(store.session, "titled")),
        ("record", partial(store.record, "adda", "user", "Hello")),
    ):
        before = len(lines(file))
        with suppress(errors.UnknownSession):
            call()
        assert (len(lines(file)), *last(file, "operation")) == (before + 1, name)
    before = len(lines(file))
    ada.prefetch("ferry")
    ada.record("user", "Hello")
    store.session("ada")
    store.start_session("new", title="Mine")
    ada.set("city", "Porto")
    store.status()
    store.distrust(actor="crawler", reason="a forged page")
    with pytest.raises(errors.InvalidInput):
        ada.record("nobody", "Hello")
    assert len(lines(file)) == before


def test_a_line_says_who_read_what_where_and_no_text(store, file):
    """Reading writes no event. What is called for a call is part of its line."""
    head = store.head()
    with acting_as("alice"):
        hits = store.recall("ferry of ada", scope="acme/ada")
    assert last(file, "actor", "operation", "scope", "positions", "refused") == (
        *("alice", "recall", ["acme/ada"]),
        [[hits[0].position] * 2],
        "",
    )
    ada = store.find_session("ada")
    for name, read, positions in (
        ("session.turns", ada.turns, [[2, 2]]),
        ("session.messages", ada.messages, [[2, 2]]),
        ("session.context", partial(ada.context, "ferry"), [[2, 2]]),
        ("session.recall", partial(ada.recall, "ferry"), [[2, 2]]),
        ("turns", partial(store.turns, "ada"), [[2, 2]]),
        ("find", partial(store.find, "ferry of ada"), [[2, 2]]),
        ("facts", store.facts, []),
        ("audit.event", partial(store.audit.event, 2), [[2, 2]]),
        ("audit.export", partial(store.audit.export, BytesIO(), after=1), [[2, head.position]]),
    ):
        before = len(lines(file))
        read()
        assert (len(lines(file)), *last(file, "operation", "positions")) == (before + 1, name, positions)
    assert store.head() == head
    assert "ferry" not in file.read_text()


def test_what_is_refused_leaves_a_line(store, file):
    """With the name of the error."""
    with pytest.raises(errors.UnknownSession):
        store.within("acme/ada").turns("bob")
    assert last(file, "operation", "scope", "positions", "refused") == ("turns", ["acme/ada"], [], "UnknownSession")


def test_what_is_yielded_is_written_when_it_ends_and_other_reads_come_in_between(store, file):
    """Also if the caller stops early."""
    for moment in store.audit.timeline():
        store.turns("ada")
        if moment.position == 2:
            break
    del moment
    found = [(line["operation"], line["positions"]) for line in lines(file)]
    assert found == [("audit.timeline", []), ("turns", [[2, 2]]), ("turns", [[2, 2]]), ("audit.timeline", [[1, 2]])]


def test_the_host_may_rotate_the_file_and_without_it_nothing_is_answered(store, file):
    """A line that cannot be written is an error instead of the answer."""
    store.facts()
    file.rename(file.with_suffix(".1"))
    store.facts()
    assert (len(lines(file)), len(lines(file.with_suffix(".1")))) == (1, 1)
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.mkdir()
    with pytest.raises(errors.StoreNotWritable, match=r"reads\.jsonl"):
        store.recall("ferry")
    with pytest.raises(errors.StoreNotWritable):
        store.forget(session="ada")
    assert (
        store.record("ada", "user", "Recording goes on, and nothing was forgotten.").position == store.head().position
    )


def test_a_server_audits_the_api_the_console_and_exports(folder, file, run):
    """With the name of the token; a page of the console is one line; who may not read leaves one, too."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("ada", scope="acme/ada").record("user", "the ferry")
        alice = store.admin.create_token("alice", verbs=["read"], scopes=["acme"]).secret
        bot = store.admin.create_token("bot", verbs=["record"]).secret
        root = store.admin.create_token("root", verbs=["read"]).secret
    with server(folder, "--require-token", "--audit-reads", str(file)) as (url, _):

        def get(token, path):
            return httpx2.get(url + path, headers={"authorization": f"Bearer {token}"}).status_code

        with connect(url, token=alice) as client:
            client.recall("ferry")
        assert get(alice, "/session?id=ada") == get(root, "/v1/export") == 200
        with httpx2.Client(base_url=url, headers={"origin": url}, follow_redirects=True) as browser:
            assert browser.post("/login", data={"token": root, "next": "/"}).status_code == 200
        assert get(bot, "/v1/sessions/ada/turns") == 403
        with httpx2.stream("GET", f"{url}/v1/tail?after=0", headers={"authorization": f"Bearer {alice}"}) as tail:
            next(tail.iter_bytes())
    found = [(line["actor"], line["operation"], line["positions"], line["refused"]) for line in lines(file)]
    assert found == [
        ("alice", "recall", [[2, 2]], ""),
        ("alice", "console /session", [[2, 2]], ""),
        ("root", "audit.export", [[1, 5]], ""),
        ("root", "console /", [[1, 5]], ""),
        ("bot", "session.turns", [], "RequestRefused"),
        ("alice", "tail", [[1, 2]], ""),
    ]
    with MemoryStore.open(folder, model=None) as store:
        assert store.head().position == 5  # No read and no login is an event.
    assert [
        item["operation"]
        for item in run("reads", file, "--position", "5", "--operation", "audit.export", "--json").json
    ] == ["audit.export"]
    assert [item["actor"] for item in run("reads", file, "--refused", "--json").json] == ["bot"]
    shown = run(
        "reads", file, "--actor", "alice", "--scope", "acme/ada", "--operation", "recall", "--since", "2020-01-01"
    )
    assert "alice  recall     acme" in shown.stdout
    assert shown.stdout.endswith("1 read\n")
    file.write_text("{}\n")
    assert "line 1 is no read" in run("reads", file).stderr
