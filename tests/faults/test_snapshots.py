"""Snapshots that cannot be trusted are never used, and a disk that takes none keeps no read from answering."""

import resource
import shutil

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.projections.history import states
from mnemolog.projections.sql.snapshots import SNAPSHOT_FORMAT
from tests.children.workers import keep_memory_without_permission, messages
from tests.session_states import fold_all, state_digest
from tests.support import read_all

pytestmark = pytest.mark.promise("P9")

COLUMNS = ("stream", "version", "position", "log_id", "digest", "format", "state", "checksum")


@pytest.fixture(autouse=True)
def snapshot_often(monkeypatch):
    monkeypatch.setattr(states, "SNAPSHOT_EVERY", 5)


@pytest.fixture
def open_store(folder, clock):
    return lambda: MemoryStore.open(folder, model=None, clock=clock)


def fill(store, count, *, session="s", start=0):
    """Change a session's memory `count` times, reading after each, so that snapshots are taken."""
    if session not in {summary.session for summary in store.sessions()}:
        store.start_session(session)
    handle = store.session(session)
    for n in range(start, start + count):
        handle.set(f"k{n % 7}", f"{session} {n}")
        if n % 10 == 3:
            handle.checkpoint(f"c{n}")
        if n % 10 == 8:
            handle.restore(f"c{n - 5}")
        handle.get("k0")


def check(store):
    """Every state is that of a fold from zero, now and at every fifth position."""
    events = read_all(store.parts.log)
    for name, state in fold_all(events).items():
        assert state_digest(visible_of(store).state(name)) == state_digest(state)
        for position in range(state.started_position, events[-1].position, 5):
            then = fold_all(events[:position])[name]
            assert state_digest(visible_of(store).state_at(name, position)) == state_digest(then), position


def edit(folder, statement, parameters=()):
    """Change the snapshots' file behind the store's back. Returns what the statement answers."""
    connection = dbapi2.connect(folder / "projections" / "snapshots.db", isolation_level=None)
    found = connection.execute(statement, parameters).fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return found


def test_a_sound_snapshot_is_used(folder, open_store, monkeypatch):
    """Else the tests below would prove nothing."""
    with open_store() as store:
        fill(store, 60)
    folded = []
    real = states.evolve
    monkeypatch.setattr(states, "evolve", lambda *arguments: folded.append(arguments) or real(*arguments))
    with open_store() as store:
        store.session("s").all()
        assert len(folded) < 10
        check(store)
    assert edit(folder, "SELECT count(*) FROM snapshots") == [(8,)]


CHANGES = (
    ("version", "version + 3"),
    ("version", "version - 3"),
    ("position", "position - 2"),
    ("stream", "CASE stream WHEN 'session/s' THEN 'session/t' ELSE 'session/s' END"),
    ("log_id", "'another log'"),
    ("digest", "zeroblob(32)"),
    ("format", f"{SNAPSHOT_FORMAT} + 1"),
    ("state", "zeroblob(length(state))"),
    ("state", "(SELECT state FROM snapshots ORDER BY version LIMIT 1)"),
    ("checksum", "zeroblob(32)"),
)


def test_a_snapshot_with_one_column_changed_is_never_used(folder, open_store):
    """A right state under the wrong version would swallow or repeat events."""
    with open_store() as store:
        fill(store, 33)
        fill(store, 38, session="t")
    whole = shutil.copytree(folder, folder.with_name("whole"))
    for column, change in CHANGES:
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        # Updated into a table of its own: versions and streams must not collide on their way.
        names = ", ".join(change if name == column else name for name in COLUMNS)
        edit(folder, f"CREATE TABLE changed AS SELECT {names} FROM snapshots")
        edit(folder, "DELETE FROM snapshots")
        edit(folder, "INSERT OR REPLACE INTO snapshots SELECT * FROM changed")
        with open_store() as store:
            check(store)
            fill(store, 20, start=100)
            check(store)
        with open_store() as store:
            check(store)


@pytest.mark.timeout(7200)
@pytest.mark.promise("P9", "flips of snapshots")
def test_any_flipped_bit_leaves_the_answers_as_they_are(folder, open_store, rng, seed, tries):
    """Damage anywhere in the file: a snapshot less, a file in quarantine, never another answer."""
    with open_store() as store:
        fill(store, 40)
        expected = store.session("s").all()
        head = store.head()
    path = folder / "projections" / "snapshots.db"
    sound = path.read_bytes()
    for attempt in range(tries):
        damaged = bytearray(sound)
        for _ in range(rng.choice([1, 1, 20])):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(rng.choice([bytes(damaged), bytes(damaged), bytes(damaged[: rng.randrange(len(damaged))])]))
        for name in ("snapshots.db-wal", "snapshots.db-shm"):
            path.with_name(name).unlink(missing_ok=True)
        with open_store() as store:
            assert store.session("s").all() == expected, f"attempt {attempt}, seed {seed}"
            assert store.session("s").at(10).keys() is not None
            assert store.head() == head
    with open_store() as store:
        check(store)


def test_snapshots_ahead_of_a_log_from_a_backup_are_not_used_and_do_not_crowd_out_new_ones(folder, open_store, clock):
    """The log was put back to an older copy; the projections are those of the history that is gone."""
    with open_store() as store:
        fill(store, 23)
    older = folder.with_name("older.db")
    shutil.copy(folder / "log.db", older)
    with open_store() as store:
        fill(store, 60, start=23)
    for name in ("log.db-wal", "log.db-shm"):
        (folder / name).unlink(missing_ok=True)
    shutil.copy(older, folder / "log.db")
    clock.advance(seconds=1)
    with open_store() as store:
        store.admin.doctor(accept_loss=True, reason="an older copy")
        check(store)
        fill(store, 40, start=1_000)  # Other events at the same positions.
        check(store)
    with open_store() as store:
        check(store)
    ours = edit(folder, "SELECT count(*), max(position) FROM snapshots")
    assert ours[0][0] >= 4
    assert ours[0][1] < 23 + 60, "only those of this history are left"


def test_a_full_disk_takes_no_snapshot_and_keeps_no_read_from_answering(open_store, file_limit):
    """Room for the log and none for the snapshots: their file may not grow past what it is."""
    with open_store() as store:
        fill(store, 4)
        session = store.session("s")
        store.parts.log.engine.pool.dispose()
        for n in range(4, 12):
            session.set(f"k{n}", n)
        for room in (0, 512, 4_096, 8_192):
            file_limit(room)
            assert session.get("k11") == 11
            assert session.at(5).keys()
            file_limit(resource.RLIM_INFINITY)
            for n in range(12, 20):
                session.set(f"k{n}", n)
        check(store)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_folder_that_takes_no_file_keeps_no_read_from_answering(processes, damaged):
    """`projections` belongs to another user; a damaged file in it cannot be quarantined either."""
    (answer,) = messages(processes.start(keep_memory_without_permission, damaged)[1])
    assert answer == {"n": 39, "notes": 40, "restored": 3, "then": 3}


def test_after_closing_nothing_is_opened_again(folder, open_store):
    """A read that comes too late leaves no open file behind."""
    with open_store() as store:
        fill(store, 20)
        session = store.session("s")
    shutil.rmtree(folder / "projections")
    with pytest.raises(Exception, match="closed"):
        session.get("k0")
    assert not (folder / "projections").exists()
