"""An audit of reads: who read what, in a file outside of the log."""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO

import httpx2
import pytest

from mnemolog import MemoryStore, acting_as, connect, errors
from mnemolog.audit.service import AuditService
from mnemolog.server.http.routes import LEFT_OUT, ROUTES
from mnemolog.session import Session
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


def is_audited(method):
    return method.__code__.co_qualname == "_audited.<locals>.call"


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def last(file, *names):
    return tuple(lines(file)[-1][name] for name in names)


def test_each_operation_that_shows_content_is_audited():
    """So a new one cannot be forgotten: each is, unless it is listed as one that shows nothing."""
    owners = (MemoryStore, Session, AuditService)
    reads = [one.method for one in ROUTES if one.verb == "read" and one.owner in owners]
    shows_none = {"at", "prefetch", "head", "position_at", "verify", "status", "erasures", "pending_erasures"}
    assert {method.__name__ for method in reads if not is_audited(method)} == shows_none
    assert Session.messages in LEFT_OUT
    assert is_audited(Session.messages)


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
        assert get(bot, "/v1/sessions/ada/turns") == 403
        with httpx2.stream("GET", f"{url}/v1/tail?after=0", headers={"authorization": f"Bearer {alice}"}) as tail:
            next(tail.iter_bytes())
    found = [(line["actor"], line["operation"], line["positions"], line["refused"]) for line in lines(file)]
    assert found == [
        ("alice", "recall", [[2, 2]], ""),
        ("alice", "console /session", [[2, 2]], ""),
        ("root", "audit.export", [[1, 5]], ""),
        ("bot", "session.turns", [], "RequestRefused"),
        ("alice", "tail", [[1, 2]], ""),
    ]
    assert [item["operation"] for item in run("reads", file, "--position", "5", "--json").json] == ["audit.export"]
    assert [item["actor"] for item in run("reads", file, "--refused", "--json").json] == ["bot"]
    shown = run(
        "reads", file, "--actor", "alice", "--scope", "acme/ada", "--operation", "recall", "--since", "2020-01-01"
    )
    assert "alice  recall     acme" in shown.stdout
    assert shown.stdout.endswith("1 read\n")
    file.write_text("{}\n")
    assert "line 1 is no read" in run("reads", file).stderr
