"""What is told of a run: lines of the log without content, and what is measured."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

import mnemolog
from mnemolog import MemoryStore, NewTurn, restore_backup
from mnemolog.adapters.importers import import_files
from mnemolog.domain import structured_log
from mnemolog.domain.errors import ModelWarning
from mnemolog.observability.json_logging import JsonFormatter, log_to_stderr
from mnemolog.observability.telemetry import INSTRUMENTS
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


def fill(store):
    session = store.start_session("trip", title=f"name {SECRET}", scope="a/b")
    session.record("user", f"I like {SECRET}s", speaker=f"Ann {SECRET}", metadata={"m": SECRET}, key="k1")
    store.record_many([NewTurn(session="trip", role="user", text=f"{SECRET} {n}") for n in range(5)])
    session.set("animal", {"kind": SECRET})
    session.set_task(f"find a {SECRET}")
    session.note(f"{SECRET} seen")
    session.checkpoint(f"before {SECRET}", description=SECRET)
    session.restore(f"before {SECRET}")
    return session


def refuse(store):
    """Errors that quote what they were given."""
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


def test_no_content_is_in_any_line_of_a_whole_run(folder, tmp_path, everything):
    """Recording, recalling, failing, rebuilding, setting aside, backing up, restoring, at the lowest level of all."""
    with MemoryStore.open(folder, model=Picky(quotes=True)) as store:
        session = fill(store)
        refuse(store)
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
