"""What is told of a run: lines of the log without content, and what is measured.

An audit of reads: who read what, in a file outside of the log.
"""

import inspect
import json
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

import httpx2
import pytest
from pysqlite3 import dbapi2

import mnemolog
from mnemolog import MemoryStore, NewTurn, Session, SessionAt, acting_as, connect, errors, restore_backup
from mnemolog.adapters.importers import import_files
from mnemolog.application.visible_events import SHOW_NOTHING
from mnemolog.audit.service import AuditService
from mnemolog.domain import structured_log
from mnemolog.domain.errors import ModelWarning
from mnemolog.domain.events import Event
from mnemolog.observability.json_logging import JsonFormatter, log_to_stderr
from mnemolog.observability.telemetry import INSTRUMENTS
from mnemolog.operation_table import OPERATIONS
from tests.server.api.test_isolation import structs_in
from tests.server.serving import server
from tests.support import HashEncoder, Picky, wait_until

pytestmark = pytest.mark.local


SECRET = "quokka"
"""Planted wherever content goes. Labels (ids of sessions, agents, scopes, keys) are no content."""


class Everything(logging.Handler):
    """Keeps all that any formatter could make of a record."""

    def __init__(self):
        super().__init__(logging.NOTSET)
        self.lines, self.events = [], set()

    def emit(self, record):
        text = logging.Formatter().format(record)
        self.lines.append(f"{text} {record.args!r} {record.__dict__!r} {JsonFormatter().format(record)}")
        self.events.add(getattr(record, "event", None))


@pytest.fixture
def everything():
    """All records of all loggers, at the lowest level: SQLAlchemy's own too, which a program may ask for."""
    root, handler = logging.getLogger(), Everything()
    asked = [root, *(logging.getLogger(name) for name in ("mnemolog", "sqlalchemy", "filelock"))]
    levels = [logger.level for logger in asked]
    for logger in asked:
        logger.setLevel(logging.NOTSET + 1)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for logger, level in zip(asked, levels, strict=True):
        logger.setLevel(level)


def test_no_content_is_in_any_line_of_a_whole_run(folder, tmp_path, everything):
    """Recording, recalling, failing, rebuilding, setting aside, backing up, restoring, at the lowest level of all."""
    with MemoryStore.open(folder, model=Picky(quotes=True)) as store:
        session = store.start_session("trip", title=f"name {SECRET}", scope="a/b")
        session.record("user", f"I like {SECRET}s", speaker=f"Ann {SECRET}", metadata={"m": SECRET}, key="k1")
        store.record_many([NewTurn(session="trip", role="user", text=f"{SECRET} {n}") for n in range(5)])
        session.set("animal", {"kind": SECRET})
        session.set_task(f"find a {SECRET}")
        session.note(f"{SECRET} seen")
        session.checkpoint(f"before {SECRET}", description=SECRET)
        session.restore(f"before {SECRET}")
        for call in (
            lambda: store.record("trip", "user", f"other {SECRET}", key="k1"),
            lambda: store.record("trip", SECRET, "x"),
            lambda: store.record("trip", "user", f"{SECRET}\udcff"),
            lambda: store.record("trip", "user", SECRET * 1_000_000),
            lambda: store.find_session(f"{SECRET}\udcff"),
            lambda: store.recall(f"{SECRET}", after="nonsense"),
            lambda: store.session("trip").restore(f"no {SECRET}"),
        ):
            with pytest.raises(mnemolog.MnemologError):
                call()
        store.recall(f"where is the {SECRET}", receipt=True, context_turns=2)
        store.switch("trip2", reason="branch", session=session, title=f"branch {SECRET}")
        store.admin.catch_up_vectors()
        session.record("user", f"poison {SECRET}")
        wait_until(lambda: store.status().projector.state == "backing off", what="the model to refuse")
        store.recall(f"poison {SECRET}")
        with pytest.raises(mnemolog.errors.EncodingFailed):
            store.rebuild("vectors")
        store.rebuild("all", skip_bad=True)
        store.replay()
        store.verify()
        store.admin.doctor(deep=True)
        store.backup(tmp_path / "b")
    restore_backup(tmp_path / "b", tmp_path / "r")
    (folder / "projections" / "views.db").write_bytes(SECRET.encode() * 1_000)
    with MemoryStore.open(folder, model=Picky(quotes=True), background=False) as store:
        store.recall(SECRET)
        store.admin.quarantine().purge()
        (tmp_path / "x.jsonl").write_text(json.dumps({"session": "s", "role": "user", "text": SECRET}) + "\n{")
        import_files(store, [tmp_path / "x.jsonl"], skip_bad=True)
    assert not [line for line in everything.lines if SECRET in line]
    assert {
        *("store.opened", "store.closed", "projector.backing_off", "projector.state", "projection.rebuilt"),
        *("projection.caught_up", "quarantine.added", "quarantine.purged", "backup.made", "restore.done"),
        *("vectors.written",),
    } <= everything.events


def test_an_error_is_logged_by_class_and_code_alone(caplog):
    """Its message may quote anything."""
    caplog.set_level(logging.DEBUG, logger="mnemolog")
    structured_log.warning("thing.failed", error=OSError(28, f"no room for {SECRET}"), number=3, path=None)
    (record,) = caplog.records
    assert (record.name, record.event) == ("mnemolog.thing", "thing.failed")
    assert record.facts == {"error": "OSError/28", "number": 3, "path": None}
    assert record.getMessage() == "thing.failed error=OSError/28 number=3 path=None"
    assert record.funcName == "test_an_error_is_logged_by_class_and_code_alone"


@pytest.mark.log_file
def test_a_failed_append_is_logged_once_for_all_that_waited(store, caplog, monkeypatch):
    """With the class of the error and how many callers it met."""
    session = store.start_session("trip")
    caplog.set_level(logging.DEBUG, logger="mnemolog")
    monkeypatch.setattr("mnemolog.infra.log.sqlite.engine.SqliteConnection.insert", _full)
    with pytest.raises(mnemolog.StorageFull):
        session.record("user", SECRET)
    (record,) = [record for record in caplog.records if record.event == "append.failed"]
    assert record.facts["error"] == "StorageFull/13"
    assert record.facts["callers"] == 1
    assert SECRET not in caplog.text


def _full(driver, rows):
    error = dbapi2.OperationalError(f"disk full: {rows}")
    error.sqlite_errorcode = 13
    raise error


def test_the_command_line_logs_on_request_and_else_not(folder):
    """`--verbose`, or `MNEMOLOG_LOG` with a level and a form; on stderr, so that answers stay clean."""

    def run(*arguments, **environment):
        command = [sys.executable, "-m", "mnemolog", *map(str, arguments)]
        environment = {**os.environ, **environment}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return ran.returncode, ran.stderr

    assert run("init", folder) == (0, "")
    code, said = run("--verbose", "head", folder)
    assert code == 0
    assert "INFO mnemolog.store store.opened path=" in said
    code, said = run("head", folder, MNEMOLOG_LOG="debug:json")
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"store.opened", "store.closed"} <= {line["event"] for line in lines}
    assert all({"time", "level", "logger", "event"} <= line.keys() for line in lines)
    code, said = run("head", folder, MNEMOLOG_LOG="loud")
    assert code == 2
    assert "'loud' is none of" in said


def test_an_unknown_level_is_refused():
    for spec in ("", "loud", "info:xml", "info:json:x"):
        with pytest.raises(mnemolog.InvalidInput):
            log_to_stderr(spec)


def test_the_library_is_silent_by_default(folder):
    """Nothing on stderr, not even the last resort of the standard library, whatever goes wrong."""
    script = (
        "from mnemolog.domain import structured_log\n"
        "import mnemolog\n"
        "structured_log.error('thing.failed')\n"
        f"mnemolog.MemoryStore.open({str(folder)!r}, model=None).close()"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("", "")


class Collected:
    """Keeps what stores measure: as `(name, value, facts)`."""

    def __init__(self):
        self.measured, self.watched = [], []

    def measure(self, name, value, facts):
        self.measured.append((name, value, dict(facts)))

    def watch(self, gauges):
        self.watched.append(gauges)

    def unwatch(self, gauges):
        self.watched.remove(gauges)

    def values(self, name, **facts):
        """The values of an instrument with these facts."""
        gauges = [(name, *point) for gauges in self.watched if name in gauges for point in gauges[name]()]
        return [
            value for of, value, about in [*self.measured, *gauges] if of == name and facts.items() <= about.items()
        ]


@pytest.fixture
def collected():
    return Collected()


def run(folder, telemetry):
    with MemoryStore.open(folder, model=HashEncoder(), telemetry=telemetry, background=False) as store:
        session = store.start_session("trip", title=f"trip {SECRET}")
        for number in range(5):
            session.record("user", f"turn {number} {SECRET}", key=f"k{number}")
        store.record_many([NewTurn(session="trip", role="user", text="many")])
        with pytest.raises(mnemolog.DuplicateKey):
            session.record("user", f"another {SECRET}", key="k0")
        store.preview_switch("trip2", reason="new", session="trip")  # A rehearsal is no append.
        store.recall(f"where is the {SECRET}")
        store.recall("turn", mode="text")
        store.rebuild("all")
        store.backup(folder.with_name("backup"))
        yield store


def test_a_run_is_measured(folder, collected):
    """Appends with their outcomes, groups, recalls with their legs, gauges when they are collected; no content."""
    for store in run(folder, collected):
        values = collected.values
        assert len(values("mnemolog.appends", outcome="ok")) == 7
        assert len(values("mnemolog.appends", outcome="DuplicateKey")) == 1
        assert len(values("mnemolog.append.duration", outcome="ok")) == 7
        assert sum(values("mnemolog.append.group_size")) >= 8
        for mode in ("hybrid", "text"):
            assert len(values("mnemolog.recall.duration", mode=mode, outcome="ok")) == 1
        assert len(values("mnemolog.recall.leg.duration", leg="text", outcome="ok")) == 2
        assert len(values("mnemolog.recall.leg.duration", leg="vector", outcome="ok")) == 1
        assert values("mnemolog.log.head") == [store.head().position]
        assert values("mnemolog.projection.lag", projection="views") == [0]
        assert values("mnemolog.quarantine.items") == [0]
        (gauges,) = collected.watched
        assert {*gauges, *(name for name, _, _ in collected.measured)} == set(INSTRUMENTS)
        store.record("trip", "user", "one more")
        assert values("mnemolog.projection.lag", projection="views") == [1]
    assert collected.watched == []
    assert not re.search(f"{SECRET}|trip", repr(collected.measured))


def test_a_leg_that_does_not_answer_is_counted_by_its_error(folder, collected):
    """The recall itself is answered from the text."""
    with MemoryStore.open(folder, model="./no-model", telemetry=collected, background=False) as store:
        store.start_session("trip").record("user", "tea")
        with pytest.warns(ModelWarning):
            assert store.recall("tea").legs == ("text",)
    assert len(collected.values("mnemolog.recall.leg.duration", leg="vector", outcome="ModelUnavailable")) == 1
    assert len(collected.values("mnemolog.recall.duration", mode="hybrid", outcome="ok")) == 1


def test_one_telemetry_serves_several_stores(tmp_path, collected):
    """Each gauge has a point of each store."""
    stores = [MemoryStore.open(tmp_path / str(n), model=None, telemetry=collected) for n in range(2)]
    stores[0].start_session("trip")
    try:
        assert sorted(collected.values("mnemolog.log.head")) == [0, 1]
    finally:
        for store in stores:
            store.close()
    assert collected.watched == []


def test_without_telemetry_nothing_is_wrapped(store):
    """The append goes the way it goes without all this."""
    assert store.parts.log.appends._around_append is store.parts.log.appends._on_commit is None


def test_the_page_lists_every_instrument_as_the_code_has_it():
    page = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    for name, item in INSTRUMENTS.items():
        assert f"| `{name}` | {item.kind} | `{item.unit}` | {item.means} |" in page


def test_the_page_lists_every_event_that_is_logged():
    """Found in the source: what is told and not listed, or listed and not told."""
    root = Path(__file__).parents[2]
    sources = [
        p
        for layer in ("adapters", "api", "cli", "domain", "infra", "projections", "server")
        for p in (root / layer).rglob("*.py")
    ]
    told = {name for p in sources for name in re.findall(r'structured_log\.\w+\(\s*"([a-z_.]+)"', p.read_text())}
    page = (root / "docs" / "observability.md").read_text()
    listed = set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| (?:debug|info|warning|error)", page, re.MULTILINE))
    assert told == listed


@pytest.fixture
def file(tmp_path):
    return tmp_path / "reads.jsonl"


@pytest.fixture
def audited(folder, file):
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


def test_a_preview_a_ticket_and_a_refusal_that_names_sessions_leave_lines(audited, file):
    """They show content, although they write or return nothing. What only writes leaves none."""
    ada = audited.find_session("ada")
    ada.note("her diagnosis")
    ada.checkpoint("before")
    ada.set_task("book the ferry")
    audited.recall("ferry", scope="acme", receipt=True)
    audited.session("titled", title="Her trip", scope="acme/ada")
    ticket = ada.prefetch("ferry")
    assert ticket.wait(10)
    for name, call in (
        ("session.restore", partial(ada.restore, "before", dry_run=True)),
        ("forget", partial(audited.forget, scope="acme/ada", dry_run=True)),
        ("session.update_task", partial(ada.update_task, step=1)),
        ("session.prefetch", lambda: ticket.outcome),
        ("session", partial(audited.session, "titled")),
        ("record", partial(audited.record, "adda", "user", "Hello")),
    ):
        before = len(lines(file))
        with suppress(errors.UnknownSession):
            call()
        assert (len(lines(file)), *last(file, "operation")) == (before + 1, name)
    before = len(lines(file))
    ada.prefetch("ferry")
    ada.record("user", "Hello")
    audited.session("ada")
    audited.start_session("new", title="Mine")
    ada.set("city", "Porto")
    audited.status()
    audited.distrust(actor="crawler", reason="a forged page")
    with pytest.raises(errors.InvalidInput):
        ada.record("nobody", "Hello")
    assert len(lines(file)) == before


def test_a_line_says_who_read_what_where_and_no_text(audited, file):
    """Reading writes no event. What is called for a call is part of its line."""
    head = audited.head()
    with acting_as("alice"):
        hits = audited.recall("ferry of ada", scope="acme/ada")
    assert last(file, "actor", "operation", "scope", "positions", "refused") == (
        *("alice", "recall", ["acme/ada"]),
        [[hits[0].position] * 2],
        "",
    )
    ada = audited.find_session("ada")
    for name, read, positions in (
        ("session.turns", ada.turns, [[2, 2]]),
        ("session.messages", ada.messages, [[2, 2]]),
        ("session.context", partial(ada.context, "ferry"), [[2, 2]]),
        ("session.recall", partial(ada.recall, "ferry"), [[2, 2]]),
        ("turns", partial(audited.turns, "ada"), [[2, 2]]),
        ("find", partial(audited.find, "ferry of ada"), [[2, 2]]),
        ("facts", audited.facts, []),
        ("audit.event", partial(audited.audit.event, 2), [[2, 2]]),
        ("audit.export", partial(audited.audit.export, BytesIO(), after=1), [[2, head.position]]),
    ):
        before = len(lines(file))
        read()
        assert (len(lines(file)), *last(file, "operation", "positions")) == (before + 1, name, positions)
    assert audited.head() == head
    assert "ferry" not in file.read_text()


def test_a_line_has_the_facts_that_a_context_shows(audited, file):
    """They are content as turns are."""
    fact = audited.assert_fact("user/colour", "heliotrope", scope="acme/ada")
    assert "heliotrope" in audited.context("Which colour?", scope="acme/ada").text
    (positions,) = last(file, "positions")
    assert [fact.position] * 2 in positions


def test_what_is_refused_leaves_a_line(audited, file):
    """With the name of the error."""
    with pytest.raises(errors.UnknownSession):
        audited.within("acme/ada").turns("bob")
    assert last(file, "operation", "scope", "positions", "refused") == ("turns", ["acme/ada"], [], "UnknownSession")


def test_what_is_yielded_is_written_when_it_ends_and_other_reads_come_in_between(audited, file):
    """Also if the caller stops early."""
    for moment in audited.audit.timeline():
        audited.turns("ada")
        if moment.position == 2:
            break
    del moment
    found = [(line["operation"], line["positions"]) for line in lines(file)]
    assert found == [("audit.timeline", []), ("turns", [[2, 2]]), ("turns", [[2, 2]]), ("audit.timeline", [[1, 2]])]


def test_the_host_may_rotate_the_file_and_without_it_nothing_is_answered(audited, file):
    """A line that cannot be written is an error instead of the answer."""
    audited.facts()
    file.rename(file.with_suffix(".1"))
    audited.facts()
    assert (len(lines(file)), len(lines(file.with_suffix(".1")))) == (1, 1)
    assert file.stat().st_mode & 0o777 == 0o600
    file.unlink()
    file.mkdir()
    with pytest.raises(errors.StoreNotWritable, match=r"reads\.jsonl"):
        audited.recall("ferry")
    with pytest.raises(errors.StoreNotWritable):
        audited.forget(session="ada")
    assert (
        audited.record("ada", "user", "Recording goes on, and nothing was forgotten.").position
        == audited.head().position
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
    wider = run("reads", file, "--actor", "alice", "--scope", "acme", "--operation", "recall", "--since", "yesterday")
    assert wider.stdout == shown.stdout
    file.write_text("{}\n")
    assert "line 1 is no read" in run("reads", file).stderr
