"""`doctor` finds each damage, mends it, and finds nothing the second time. Nothing of the log is touched."""

import os
import shutil
import subprocess
import sys
import threading
from contextlib import closing

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.domain.session import session_stream
from mnemolog.infra import sqlite
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.projections.history.states import evolve
from mnemolog.projections.sql import database as sealing
from mnemolog.projections.sql.opening import opened
from mnemolog.projections.vectors.checked_rows import BLOCK_ROWS
from mnemolog.projections.vectors.folders import IndexerLock
from mnemolog.projections.vectors.turn_vectors import salvage
from tests.faults.tamper import Tampering, copy_store, rewrite_manifest
from tests.support import FakeClock, HashEncoder, as_typed, forbid_writing

pytestmark = pytest.mark.promise("P9")

TURNS = 12


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of a store with views, embeddings, snapshots and a segment, all current, and a backup; closed."""
    folder = tmp_path_factory.mktemp("doctor")
    with MemoryStore.open(folder / "memory", model=HashEncoder(), clock=FakeClock(), background=False) as store:
        for name in ("a", "b"):
            store.start_session(name, scope=f"acme/{name}")
        for n in range(TURNS):
            store.record("ab"[n % 2], "user", f"note number{n}")
        store.switch("b", reason="resume", session="a")
        store.recall("number3")
        store.admin.catch_up_vectors()
        store.parts.snapshots.save(session_stream("a"), store.parts.log.fold(session_stream("a"), evolve))
        store.backup(folder / "backup")
        assert is_sound(store.admin.doctor(deep=True))
    return folder / "memory"


@pytest.fixture
def memory(template, folder):
    """The folder of a copy of the template."""
    return shutil.copytree(template, folder)


def is_sound(report):
    """Whether a diagnosis has read everything and found nothing."""
    assert report.deep
    assert report.findings == ()
    return report.healthy and not report.log_damaged and not report.not_checked


def execute(path, *statements):
    """Change a database from outside, and leave nothing in its WAL; without a seal, as where one was killed."""
    sealing.break_seal(path)
    with dbapi2.connect(path, isolation_level=None) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def overwrite(path):
    for part in ("-wal", "-shm"):
        path.with_name(path.name + part).unlink(missing_ok=True)
    path.write_bytes(b"\xff" * path.stat().st_size)


def put_folder(path):
    path.unlink()
    path.mkdir()


def flip(path, *, at=0.5):
    """Flip a bit of the byte at that part of a file."""
    data = bytearray(path.read_bytes())
    data[int((len(data) - 1) * at)] ^= 1
    path.write_bytes(data)


def swap(first, second):
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def first_page(path, table):
    """The offset of the first page of a table."""
    with closing(dbapi2.connect(path)) as connection:
        ((page, size),) = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size WHERE name = ?", [table]
        )
    return (page - 1) * size


def spoil_a_page(path, table):
    """Have the first page of a table count free bytes that it has not. Its rows can be read, and are right."""
    execute(path)
    data, at = bytearray(path.read_bytes()), first_page(path, table)
    data[at + 7] += 1
    path.write_bytes(data)


def overwrite_the_first_page_of_turns(path):
    """A page that nobody reads before something is written to it."""
    data, at = bytearray(path.read_bytes()), first_page(path, "turns")
    data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)


def retype_a_key(path):
    """Have a key that is no text in a table that allows nothing else, as a flipped bit leaves it."""
    schema = "UPDATE sqlite_master SET sql = replace(sql, '{}', '{}') WHERE name = 'sessions'"
    execute(path, "PRAGMA writable_schema = ON", schema.format("STRICT", "/**/"))
    execute(path, "UPDATE sessions SET session = CAST(session AS BLOB) WHERE session = 'a'")
    execute(path, "PRAGMA writable_schema = ON", schema.format("/**/", "STRICT"))


def segment_of(projections):
    (segment,) = projections.glob("vectors/*/[0-9]*-[0-9]*")
    return segment


def copied_to_cache(projections):
    """The cache with a copy of every vector of the segment, as where a writer was killed before it emptied it."""
    path = projections / "embeddings.db"
    with MemoryStore.open(projections.parent, model=None, background=False) as store, opened(path) as cache:
        salvage(segment_of(projections), store.parts.log, cache)
    return path


def dead_process():
    """The number of a process that has ended."""
    ran = subprocess.Popen([sys.executable, "-c", ""])
    ran.wait()
    return ran.pid


def leave(folder):
    """A temporary folder as a process that was killed leaves it."""
    left = folder.with_name(f"{folder.name}.{dead_process()}.0123abcd")
    (left / "part").mkdir(parents=True)
    (left / "part" / "vectors.q12").write_bytes(b"x")


FOUND_BY_A_LOOK = {
    "a folder in place of views": ("views", lambda p: put_folder(p / "views.db")),
    "views overwritten": ("views", lambda p: overwrite(p / "views.db")),
    "views without a table": ("views", lambda p: execute(p / "views.db", "DROP TABLE sessions")),
    "a folder in place of embeddings": ("cache", lambda p: put_folder(p / "embeddings.db")),
    "embeddings overwritten": ("cache", lambda p: overwrite(p / "embeddings.db")),
    "a folder in place of snapshots": ("cache", lambda p: put_folder(p / "snapshots.db")),
    "snapshots overwritten": ("cache", lambda p: overwrite(p / "snapshots.db")),
    "truncated vectors": ("vectors", lambda p: os.truncate(segment_of(p) / "vectors.q12", 100)),
    "emptied vectors": ("vectors", lambda p: os.truncate(segment_of(p) / "vectors.q12", 0)),
    "truncated checksums": ("vectors", lambda p: os.truncate(segment_of(p) / "blocks.bin", 1)),
    "swapped files": ("vectors", lambda p: swap(segment_of(p) / "vectors.q12", segment_of(p) / "rows.i64")),
    "no rows": ("vectors", lambda p: (segment_of(p) / "rows.i64").unlink()),
    "a segment without manifest": ("vectors", lambda p: (segment_of(p) / "manifest.json").unlink()),
    "an empty manifest": ("vectors", lambda p: os.truncate(segment_of(p) / "manifest.json", 0)),
    "a flipped bit of the manifest": ("vectors", lambda p: flip(segment_of(p) / "manifest.json")),
    "a rebuild that died": ("leftover", lambda p: leave(p / "vectors" / ".building")),
    "a segment half written": ("leftover", lambda p: leave(segment_of(p).parent / ".segment")),
    "a removal that died": ("leftover", lambda p: leave(p / "vectors" / ".removed")),
    "a purge that died": ("leftover", lambda p: leave(p / "quarantine" / ".removed")),
}

FOUND_BY_READING = {
    "a manifest of other turns": ("vectors", lambda p: rewrite_manifest(segment_of(p), turns=TURNS - 1)),
    "another text": ("views", lambda p: execute(p / "views.db", "UPDATE turns SET text = 'forged' WHERE position = 5")),
    "another role": ("views", lambda p: execute(p / "views.db", "UPDATE turns SET role = 'tool' WHERE position = 5")),
    "other words": ("views", lambda p: execute(p / "views.db", "UPDATE turns SET stems = ' x ' WHERE position = 5")),
    "a turn less": ("views", lambda p: execute(p / "views.db", "DELETE FROM turns WHERE position = 5")),
    "a ghost turn": (
        "views",
        lambda p: execute(
            p / "views.db",
            "INSERT INTO turns (place, position, version, role, asks, stems, text, recorded_at) "
            "VALUES (999, 999, 999, 'user', 0, ' ghost ', 'ghost', 1)",
        ),
    ),
    "another count": ("views", lambda p: execute(p / "views.db", "UPDATE sessions SET turns = 7 WHERE session = 'a'")),
    "a standing statement": (
        "views",
        lambda p: execute(p / "views.db", "INSERT INTO standing VALUES (5, 0, 3, 'preference', 'acme', NULL)"),
    ),
    "a session less": ("views", lambda p: execute(p / "views.db", "DELETE FROM sessions WHERE session = 'a'")),
    "a key of another type": ("views", lambda p: retype_a_key(p / "views.db")),
    "a text not indexed": ("views", lambda p: execute(p / "views.db", "DELETE FROM turns_text WHERE rowid = 5")),
    "bad embeddings": ("cache", lambda p: execute(copied_to_cache(p), "UPDATE embeddings SET vectors = zeroblob(4)")),
    "a bad snapshot": ("cache", lambda p: execute(p / "snapshots.db", "UPDATE snapshots SET version = 9")),
    "a spoilt page of embeddings": ("cache", lambda p: spoil_a_page(p / "embeddings.db", "embeddings")),
    "a spoilt page of snapshots": ("cache", lambda p: spoil_a_page(p / "snapshots.db", "snapshots")),
    "a spoilt page of views": ("views", lambda p: spoil_a_page(p / "views.db", "turns")),
}


@pytest.mark.parametrize("what", [*FOUND_BY_A_LOOK, *FOUND_BY_READING])
def test_each_damage_is_found_and_mended_and_the_second_run_is_clean(memory, what):
    """With a model; every answer is as before, and only what the one block of the segment has lost needs the model."""
    part, damage = (FOUND_BY_A_LOOK | FOUND_BY_READING)[what]
    with MemoryStore.open(memory, model=HashEncoder(), background=False) as store:
        before = store.recall("number7").hits, store.sessions(), store.head()
        store.recall("number7", mode="vector")
    damage(memory / "projections")
    model = HashEncoder()
    with MemoryStore.open(memory, model=model, background=False) as store:
        assert bool(store.admin.doctor().findings) == (what in FOUND_BY_A_LOOK)
        if part == "vectors" and what in FOUND_BY_A_LOOK:
            (vectors,) = store.status().vectors
            assert (vectors.state, vectors.covers, [unused.state for unused in vectors.unused]) == (
                *("damaged", 0),
                ["damaged"],
            )
        assert store.status().warnings == (), "a damaged index accuses no log of lost history"
        assert store.verify().sound
        found = store.admin.doctor(deep=True)
        problems = [item for item in found.findings if item.severity == "problem"]
        assert {item.what for item in problems} == {part}
        assert all(item.fixable and not item.fixed and item.action and item.matters for item in problems)
        assert not found.healthy
        assert store.admin.doctor(deep=True) == found, "a look changes nothing"
        fixed = store.admin.doctor(deep=True, fix=True)
        assert all(item.fixed for item in fixed.findings)
        assert fixed.healthy
        assert is_sound(store.admin.doctor(deep=True))
        assert model.texts_encoded == (TURNS if part == "vectors" else 0)
        assert (store.recall("number7").hits, store.sessions(), store.head()) == before
    with MemoryStore.open(memory, model=None) as store:
        assert is_sound(store.admin.doctor(deep=True))


@pytest.fixture(scope="module")
def with_index(tmp_path_factory):
    """The folder of a closed store whose one segment has every file there is."""
    folder = tmp_path_factory.mktemp("indexed") / "memory"
    with (
        pytest.MonkeyPatch.context() as patch,
        MemoryStore.open(folder, model=HashEncoder(), background=False) as store,
    ):
        patch.setattr("mnemolog.projections.vectors.segment.COARSE_ROWS_MIN", 32)
        for name, turns in (("a", 81), ("b", 61)):
            session = store.start_session(name)
            for n in range(turns):
                session.record("user", f"note number{n} of {name}")
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()
        store.backup(folder.with_name("backup"))
        assert is_sound(store.admin.doctor(deep=True))
    files = {path.name for path in segment_of(folder / "projections").iterdir()}
    assert files == {*SEGMENT_FILES, "manifest.json"}
    assert all((segment_of(folder / "projections") / name).stat().st_size for name in files)
    return folder


SEGMENT_FILES = ("vectors.q12", "blocks.bin", "rows.i64", "contents.bin", "index.faiss")


@pytest.mark.parametrize("name", SEGMENT_FILES)
def test_a_bit_anywhere_in_a_segment_is_found_by_reading_and_named(with_index, tmp_path, monkeypatch, name):
    """First byte, last, and between, of every file: also in a block of vectors that no answer has asked for."""
    monkeypatch.setattr("mnemolog.projections.vectors.segment.COARSE_ROWS_MIN", 32)
    for at in (0.0, 0.3, 0.6, 1.0):
        indexed = shutil.copytree(with_index, tmp_path / str(at))
        with MemoryStore.open(indexed, model=HashEncoder(), background=False) as store:
            before = store.recall("number7", mode="vector", k=20).hits
        path = segment_of(indexed / "projections") / name
        flip(path, at=at)
        model = HashEncoder()
        with MemoryStore.open(indexed, model=model, background=False) as store:
            assert store.admin.doctor().findings == (), "a look does not read contents"
            (problem,) = [item for item in store.admin.doctor(deep=True).findings if item.severity == "problem"]
            where = str(path.parent.relative_to(indexed))
            assert (problem.what, problem.state, problem.where) == ("vectors", "damaged", where)
            assert problem.why.startswith(f"{name}: ")
            assert path.exists()
            assert all(item.fixed for item in store.admin.doctor(deep=True, fix=True).findings)
            assert not path.exists()
            assert is_sound(store.admin.doctor(deep=True))
            lost = {"vectors.q12": BLOCK_ROWS if at < 1 else 142 % BLOCK_ROWS, "blocks.bin": 142, "rows.i64": 142}
            assert model.texts_encoded == lost.get(name, 0)
            assert store.recall("number7", mode="vector", k=20).hits == before


def test_a_look_at_segments_loads_neither_numpy_nor_faiss(memory):
    """Though there are vectors to look at, and a damaged segment to tell of."""
    os.truncate(segment_of(memory / "projections") / "vectors.q12", 100)
    script = (
        "import sys; from mnemolog import MemoryStore\n"
        f"with MemoryStore.open({str(memory)!r}, model=None, create=False) as store:\n"
        "    store.admin.doctor(), store.verify()\n"
        "    print([item.state for item in store.status().vectors], sorted({'numpy', 'faiss'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "['damaged'] []"


def test_too_little_memory_is_no_damage(memory, monkeypatch):
    """Nothing is known of a segment that cannot be locked, so nothing is quarantined."""

    def short(*_):
        raise MemoryError

    segment = segment_of(memory / "projections")
    monkeypatch.setattr("mnemolog.projections.vectors.turn_vectors.load", short)
    with MemoryStore.open(memory, model=None) as store:
        found = store.admin.doctor(deep=True, fix=True)
        assert [(item.where, item.state) for item in found.findings] == [("vectors", "unreadable")]
        assert "too little memory" in found.findings[0].why
        assert found.not_checked == ("vectors, to the end",)
        assert store.admin.quarantine().items() == []
    assert segment.exists()


def test_without_a_model_damaged_vectors_are_quarantined_and_the_command_is_named(memory):
    """Setting aside needs no model; making anew does, and says so."""
    (segment_of(memory / "projections") / "vectors.q12").unlink()
    with MemoryStore.open(memory, model=None) as store:
        damaged, behind = store.admin.doctor(fix=True).findings
        assert (damaged.fixed, behind.fixed, behind.fixable) == (True, False, False)
        assert f"mnemolog project {memory} --model hash-words" in as_typed(behind.action, memory)
        (note,) = store.admin.doctor().findings
        assert (note.state, note.severity) == ("behind", "note")


def test_a_model_that_made_other_vectors_mends_only_its_own(memory):
    """The wrong --model is an answer, not a second generation by mistake."""
    (segment_of(memory / "projections") / "vectors.q12").unlink()
    with MemoryStore.open(memory, model=HashEncoder(fingerprint="other/1"), background=False) as store:
        _, behind = store.admin.doctor(fix=True).findings
        assert not behind.fixed
        assert "were built with model" in behind.outcome
        assert len(list((memory / "projections" / "vectors").glob("[0-9a-f]*-*"))) == 1


def test_bad_rows_are_deleted_and_the_others_stay(memory):
    """One row of the cache less, and no segment: the model embeds one text."""
    path = copied_to_cache(memory / "projections")
    execute(
        path, "UPDATE embeddings SET vectors = zeroblob(1536) WHERE content = (SELECT min(content) FROM embeddings)"
    )
    model = HashEncoder()
    with MemoryStore.open(memory, model=model, background=False) as store:
        (ailment,) = store.admin.doctor(deep=True, fix=True).findings
        assert "1 row " in ailment.why
        shutil.rmtree(segment_of(memory / "projections"))
        assert store.rebuild("vectors")[0].encoded_texts == 1
    assert model.texts_encoded == 1


def test_temporary_folders_of_the_living_are_left(memory):
    """The number in the name is of a process that runs: it is at work."""
    vectors = memory / "projections" / "vectors"
    mine = vectors / f".building.{os.getpid()}.0123abcd"
    mine.mkdir()
    leave(vectors / ".building")
    with MemoryStore.open(memory, model=None) as store:
        (ailment,) = store.admin.doctor(fix=True).findings
        assert ailment.fixed
    assert mine.exists()
    assert [path.name for path in vectors.glob(".building*")] == [mine.name]


def test_nothing_is_moved_or_removed_while_another_process_writes_vectors(memory):
    """Also where process numbers mean nothing, as between containers: the lock does."""
    vectors = memory / "projections" / "vectors"
    leave(vectors / ".building")
    (segment_of(memory / "projections") / "vectors.q12").unlink()
    with MemoryStore.open(memory, model=None) as store:
        fingerprint = store.status().vectors[0].fingerprint
        with IndexerLock(vectors, fingerprint).held(wait_s=0):
            found = store.admin.doctor(fix=True)
            problems = [item for item in found.findings if item.severity == "problem"]
            assert len(problems) == 2
            assert all(f"process {os.getpid()}" in item.outcome and not item.fixed for item in problems)
            assert not found.healthy
            assert list(vectors.glob(".building*"))
        assert store.admin.doctor(fix=True).healthy


def test_a_replaced_generation_is_found_and_quarantined(memory):
    """As a rebuild leaves it that died after the switch."""
    (first,) = (memory / "projections" / "vectors").glob("*-0001")
    shutil.copytree(first, first.with_name(first.name.replace("0001", "0002")))
    with MemoryStore.open(memory, model=None) as store:
        found = store.admin.doctor(fix=True)
        assert [(item.state, item.severity, item.fixed) for item in found.findings] == [("replaced", "note", True)]
        assert not first.exists()
        assert [item.was for item in store.admin.quarantine().items()] == [f"vectors/{first.name}"]
        assert store.admin.doctor().findings == ()


@pytest.mark.parametrize(
    ("state", "doctor"), [("ahead", False), ("ahead", True), ("diverged", False), ("other-log", False)]
)
def test_a_read_or_the_doctor_rebuilds_views_and_keeps_those_that_the_log_does_not_cover(
    memory, tmp_path, state, doctor
):
    """No answer needs a repair first, and the only copy of turns that the log has lost stays in quarantine."""
    folder = tmp_path / state
    with MemoryStore.open(memory, model=None) as store:
        if state != "other-log":
            copy_store(store.parts.log, folder)
        store.record("a", "user", "soon to be lost")
        store.sessions()
    with MemoryStore.open(folder, model=None) as other:
        if state == "other-log":
            other.start_session("a")
        for n in range(3 if state == "diverged" else 0):
            other.record("a", "user", f"another history {n}")
    for name in ("views.db", "views.db-wal", "views.db-shm"):
        (folder / "projections" / name).unlink(missing_ok=True)
    (folder / "projections").mkdir(exist_ok=True)
    shutil.copy(memory / "projections" / "views.db", folder / "projections")
    with MemoryStore.open(folder, model=None) as other:
        assert other.status().views.state == state
        if state == "ahead":
            assert other.status().warnings[0].startswith("the log has lost history")
        if doctor:
            found = other.admin.doctor(fix=True)
            assert found.log_damaged
            assert [item.fixed for item in found.findings if item.what == "views"] == [True]
        assert not other.recall("lost", mode="text").hits
        (item,) = other.admin.quarantine().items()
        assert (item.was, item.state) == ("views.db", state)
        with dbapi2.connect(other.admin.quarantine().folder / item.name) as kept:
            assert kept.execute("SELECT count(*) FROM turns WHERE text = 'soon to be lost'").fetchone() == (1,)
        kept.close()
        assert other.status().views.state == "current"


def test_of_many_that_open_damaged_views_at_once_one_quarantines_them(memory):
    """The others open what it has begun anew, and do not take that for the damaged file of the same name."""
    with MemoryStore.open(memory, model=None) as store:
        before = store.recall("number7").hits
    for round_ in range(1, 6):
        overwrite(memory / "projections" / "views.db")
        barrier, answers = threading.Barrier(4), []

        def ask(barrier=barrier, answers=answers):
            with MemoryStore.open(memory, model=None) as mine:
                barrier.wait()
                answers.append(mine.recall("number7").hits)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert answers == [before] * 4
        with MemoryStore.open(memory, model=None) as store:
            assert len(store.admin.quarantine().items()) == round_


@pytest.mark.parametrize("name", ["views.db", "embeddings.db", "snapshots.db"])
def test_an_unwritable_database_is_rebuilt_on_open(memory, name):
    """Also where no seal tells, as after a crash."""
    path = memory / "projections" / name
    sealing.seal_of(path).unlink(missing_ok=True)
    forbid_writing(path)
    with MemoryStore.open(memory, model=HashEncoder(), background=False) as store:
        session = store.session("a")
        session.record("user", "a wombat")
        session.set("animal", "wombat")
        session.checkpoint("now")
        store.admin.catch_up_vectors()
        assert store.recall("wombat").hits[0].text == "a wombat"
        assert session.get("animal") == "wombat"
        assert [item.was for item in store.admin.quarantine().items()] == [name]
        assert store.admin.doctor(deep=True).healthy


@pytest.mark.parametrize("spoil", [forbid_writing, overwrite_the_first_page_of_turns])
def test_damage_that_shows_when_views_without_a_seal_are_written_is_repaired_by_the_doctor(memory, spoil):
    """The doctor is the first to open them."""
    path = memory / "projections" / "views.db"
    sealing.seal_of(path).unlink()
    spoil(path)
    with MemoryStore.open(memory, model=None) as store:
        store.record("a", "user", "a wombat")
        (views,) = [item for item in store.admin.doctor(fix=True).findings if item.what == "views"]
        assert views.fixed
        assert [hit.text for hit in store.recall("wombat").hits] == ["a wombat"]
        assert [item.was for item in store.admin.quarantine().items()] == ["views.db"]


@pytest.mark.parametrize("name", ["views.db", "embeddings.db", "snapshots.db"])
def test_a_database_that_cannot_be_read_now_is_neither_damaged_nor_moved(memory, name, monkeypatch):
    """Busy, or without permission to read: another process may find nothing wrong with it."""
    connect = sqlite.driver.connect

    def refused(path, *arguments, **options):
        if path.name != name:
            return connect(path, *arguments, **options)
        error = dbapi2.OperationalError("unable to open database file")
        error.sqlite_errorcode = 14
        raise error

    monkeypatch.setattr(sqlite.driver, "connect", refused)
    with MemoryStore.open(memory, model=None) as store:
        (ailment,) = store.admin.doctor(deep=True, fix=True).findings
        assert (ailment.state, ailment.fixable, ailment.fixed) == ("unreadable", False, False)
        assert store.admin.quarantine().items() == []
    assert (memory / "projections" / name).is_file()


def test_what_is_wrong_with_a_log_is_found_in_both_depths_and_never_mended(memory, tmp_path):
    """With the remedy for the events that are lost, not only for the trigger."""
    with MemoryStore.open(memory, model=None) as store:
        copy = copy_store(store.parts.log, tmp_path / "copy")
    with closing(Tampering(copy / LOG_FILE)) as tampering:
        tampering.execute("DELETE FROM events WHERE position > 10")
        tampering.write(5, recorded_at=1)
        tampering.put_triggers_back()
        tampering.execute("DROP TRIGGER events_refuse_update")
    with MemoryStore.open(copy, model=None, create=False) as store:
        for deep, fix in ((False, False), (True, True), (True, False)):
            found = store.admin.doctor(deep=deep, fix=fix)
            assert (found.log_damaged, found.healthy) == (True, False)
            of_log = {item.state: item.where for item in found.findings if item.what == "log" and not item.fixable}
            assert of_log.keys() == {"ahead", "changed", "removed", "unprotected", "witness"}
            assert of_log["changed"] == "log.db at 5"


def test_a_deep_check_reports_progress(memory):
    """Log, views, rows and segments each count up to their own end."""
    moves = []
    size = sum(path.stat().st_size for path in segment_of(memory / "projections").iterdir() if path.suffix != ".json")
    with MemoryStore.open(memory, model=None) as store:
        store.admin.doctor(deep=True, progress=lambda done, total: moves.append((done, total)))
    assert moves
    assert all(0 < done <= total for done, total in moves)
    assert (size, size) in moves
