"""Moving a store: the old log takes no more events, in any process, and says where it is now."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pysqlite3
import pytest

from mnemolog import MemoryStore, copy_store, errors, lift_fence
from mnemolog.infra.log.event_log import prepare_database
from mnemolog.infra.log.postgres import schema
from mnemolog.operations import moving
from tests.postgres import connect, database_on
from tests.support import in_thread

pytestmark = pytest.mark.local

PLACES = ("file", "database")


@pytest.fixture
def second_url(postgres_url):
    """The URL of a database on the same server."""
    with database_on(postgres_url) as url:
        prepare_database(url)
        yield url


@pytest.fixture(params=PLACES)
def source(request, tmp_path, postgres_url):
    """The folder of a store with three turns, whose log is in a file or in a database."""
    at, how = (tmp_path / "source",), {}
    if request.param == "database":
        at, how = (postgres_url,), {"log": uuid.uuid4().hex, "local": tmp_path / "source"}
    with MemoryStore.open(*at, **how, model=None) as store:
        for n in range(3):
            store.session("trip").record("user", f"turn {n}", key=str(n))
        return store.path


@pytest.fixture(params=PLACES)
def target(request, tmp_path, second_url):
    """Arguments of a copy."""
    if request.param == "file":
        return {"target": tmp_path / "target"}
    return {"target": second_url, "log": "moved", "local": tmp_path / "target"}


def test_a_moved_log_takes_no_more_events_also_where_it_is_open(source, target, tmp_path):
    """The store that had it open, one that opens it later, and another process: each learns where it is now."""
    with MemoryStore.open(source, model=None) as before:
        before.session("trip").record("user", "turn 3", key="3")
        report = copy_store(source, **target, fence=True)
        assert (report.fenced, report.head) == (True, 5)
        with MemoryStore.open(source, model=None) as after:
            for store in (before, after, before):
                with pytest.raises(errors.StoreNotWritable, match="the log was moved to") as caught:
                    store.record("trip", "user", "too late")
                assert report.database in str(caught.value) if report.database else str(tmp_path) in str(caught.value)
                assert "unfence" in caught.value.hint
                with pytest.raises(errors.StoreNotWritable):
                    store.record_many([{"role": "user", "text": str(n)} for n in range(100)], "trip")
                assert store.head().position == 5
    with MemoryStore.open(tmp_path / "target", model=None) as store:
        assert store.head().digest == report.digest
        assert store.session("trip").record("user", "in time").position == 6


def test_readers_and_retries_go_on_with_a_moved_log(source, target):
    """What is there is found, and a retry of what was recorded before returns its position."""
    copy_store(source, **target, fence=True)
    with MemoryStore.open(source, model=None) as store:
        assert store.recall("turn 2").hits[0].text == "turn 2"
        assert len(store.session("trip").turns()) == 3
        assert store.record("trip", "user", "turn 1", key="1").position == 3
        assert store.replay().digest == store.head().digest


def test_everything_that_was_acknowledged_before_the_fence_is_in_the_copy(source, target, tmp_path):
    """Writers go on until the fence; each event is in both logs, or was refused."""
    acknowledged = []

    def record():
        with MemoryStore.open(source, model=None) as store:
            while True:
                acknowledged.append(store.session("busy").record("user", f"turn {len(acknowledged)}").position)

    outcome = in_thread(record)
    while len(acknowledged) < 5:
        pass
    report = copy_store(source, **target, fence=True)
    with pytest.raises(errors.StoreNotWritable, match="was moved"):
        outcome.result()
    with MemoryStore.open(tmp_path / "target", model=None) as store:
        assert store.head().position == report.head
        assert [turn.position for turn in store.turns("busy", limit=10_000)] == acknowledged
        assert store.verify().sound


def test_status_verify_and_doctor_say_where_the_log_is(source, target, run):
    """It is no damage: the history stays whole."""
    assert run("status", source, "--json").json["moved_to"] == ""
    report = copy_store(source, **target, fence=True)
    where = report.database or report.target
    status = run("status", source, "--json").json
    assert status["moved_to"] == where
    assert "no more events" in status["warnings"][0]
    verified = run("verify", source, "--json").json
    assert (verified["sound"], verified["moved_to"]) == (True, where)
    assert "was moved to" in run("verify", source).stderr.replace("\n", " ")
    doctor = run("doctor", source)
    assert doctor.returncode == 0
    assert "fenced" in doctor.stdout
    refused = run("record", source, "trip", "too late")
    assert refused.returncode == 1
    assert "was moved to" in refused.stderr.replace("\n", " ")
    assert "mnemolog unfence" in refused.stderr


def test_a_move_can_be_given_up(source, target, run, tmp_path):
    """The fence is lifted; the copy stays, and is brought up to date by a later move."""
    copy_store(source, **target, fence=True)
    assert "it had been moved to" in run("unfence", source).stdout
    assert lift_fence(source).epoch == 2
    assert "was not fenced" in run("unfence", source).stdout
    with MemoryStore.open(source, model=None) as store:
        assert store.record("trip", "user", "goes on").position == 5
        assert store.verify().sound
    report = copy_store(source, **target, fence=True)
    assert (report.copied, report.head) == (1, 5)
    assert lift_fence(source).epoch == 4


def test_an_earlier_mover_cannot_fence_after_a_later_one(source, target, tmp_path, monkeypatch):
    """The epoch only grows: who has seen an earlier one is refused, even if the later move was given up."""
    fence = moving._fence

    def overtaken(*arguments):
        copy_store(source, tmp_path / "other", fence=True)
        lift_fence(source)
        fence(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(moving, "_fence", once_then(overtaken, fence))
        with pytest.raises(errors.StoreNotWritable, match="another move was quicker: its fence was lifted"):
            copy_store(source, **target, fence=True)
    with MemoryStore.open(source, model=None) as store:
        assert store.record("trip", "user", "goes on").position == 5


def once_then(first, then):
    """A function that does one thing when it is first called, and another from then on."""
    calls = iter([first])
    return lambda *arguments: next(calls, then)(*arguments)


def test_a_log_is_moved_to_one_place(source, target, tmp_path):
    """A second move elsewhere is refused; the same one again finds nothing to do."""
    copy_store(source, **target, fence=True)
    with pytest.raises(errors.StoreNotWritable, match="was moved to"):
        copy_store(source, tmp_path / "elsewhere", fence=True)
    assert not (tmp_path / "elsewhere").exists()
    again = copy_store(source, **target, fence=True)
    assert (again.copied, again.fenced) == (0, True)
    assert copy_store(source, tmp_path / "elsewhere").fenced, "a copy of it may be made anywhere"
    with pytest.raises(errors.StoreNotWritable, match="was moved to"):
        copy_store(tmp_path / "target", source)


def test_a_dry_run_does_not_fence(source, target):
    """Nor does it copy."""
    assert not copy_store(source, **target, fence=True, dry_run=True).fenced
    with MemoryStore.open(source, model=None) as store:
        assert store.record("trip", "user", "goes on").position == 5


def test_a_copy_that_fails_after_the_fence_says_so(source, target, monkeypatch):
    """The error names the way on and the way back."""

    def fail(*_, **__):
        raise errors.LogDamaged("the copy does not verify")

    monkeypatch.setattr(moving, "_verify", fail)
    with pytest.raises(errors.LogDamaged) as caught:
        copy_store(source, **target, fence=True)
    assert "takes no more events" in caught.value.__notes__[0]
    assert f"mnemolog unfence {source}" in caught.value.__notes__[0]


def test_any_program_meets_the_fence_of_a_file(tmp_path):
    """It is in the file: an earlier version of mnemolog, or another program, cannot append either."""
    source = tmp_path / "source"
    with MemoryStore.open(source, model=None) as store:
        store.session("trip").record("user", "turn")
    copy_store(source, tmp_path / "it's moved", fence=True)
    insert = (
        "INSERT INTO events (position, stream, version, topic, state, recorded_at, digest) "
        "VALUES (3, 's', 1, 't', x'80', 0, zeroblob(32))"
    )
    with pysqlite3.connect(source / "log.db") as driver, pytest.raises(pysqlite3.IntegrityError, match="it's moved"):
        driver.execute(insert)
    program = "import sys, mnemolog; mnemolog.MemoryStore.open(sys.argv[1], model=None).record('trip', 'user', 'late')"
    ran = subprocess.run([sys.executable, "-c", program, source], capture_output=True, text=True, check=False)
    assert "StoreNotWritable" in ran.stderr
    with MemoryStore.open(source, model=None) as store:
        assert store.status().moved_to.endswith("it's moved")


def test_a_trigger_that_only_looks_like_a_fence_is_tampering(tmp_path):
    """Its name is not enough: what does anything else than refuse is found, and nothing is written."""
    source = tmp_path / "source"
    with MemoryStore.open(source, model=None) as store:
        store.session("trip").record("user", "turn")
    with pysqlite3.connect(source / "log.db") as driver:
        driver.execute(
            "CREATE TRIGGER events_refuse_insert BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",
        )
    with MemoryStore.open(source, model=None) as store:
        assert store.status().moved_to == ""
        assert [finding.kind for finding in store.verify().findings] == ["unprotected"]
        with pytest.raises(errors.LogWriteFailed, match="events_refuse_insert"):
            store.record("trip", "user", "lost")


def test_a_writer_may_not_fence_a_log_in_a_database(postgres_url, second_url, tmp_path):
    """Moving is for the owner: agents may only append."""
    separator = "&" if "?" in postgres_url else "?"
    as_writer = f"{postgres_url}{separator}options=-c%20role%3D{schema.WRITER}"
    with MemoryStore.open(as_writer, log=uuid.uuid4().hex, local=tmp_path / "node", model=None, encrypt=False) as store:
        store.session("trip").record("user", "turn")
    with pytest.raises(errors.StoreNotWritable, match="permission denied"):
        copy_store(tmp_path / "node", second_url, log="moved", local=tmp_path / "target", fence=True)
    with MemoryStore.open(tmp_path / "node", model=None) as store:
        assert store.record("trip", "user", "goes on").position == 3


def test_a_database_is_not_moved_to_itself(postgres_url, tmp_path):
    """Two URLs that name one database are found out by the fence, which is lifted again."""
    name = uuid.uuid4().hex
    with MemoryStore.open(postgres_url, log=name, local=tmp_path / "node", model=None) as store:
        store.session("trip").record("user", "turn")
    other = f"{postgres_url}{'&' if '?' in postgres_url else '?'}application_name=other"
    with pytest.raises(errors.InvalidInput, match="it is the source"):
        copy_store(tmp_path / "node", other, log=name, local=tmp_path / "other", fence=True)
    with MemoryStore.open(tmp_path / "node", model=None) as store:
        assert store.record("trip", "user", "goes on").position == 3
    with connect(postgres_url) as database:
        assert database.execute("SELECT epoch, moved_to FROM mnemolog.head WHERE name = %s", (name,)).fetchone() == (
            2,
            "",
        )
