"""P13: no disk, no descriptors: a clear error, nothing half written, and it works again later.

P13: no memory: an error, a process that lives, and a store that works when there is memory again. A store of
another user: what may not be read or written is named in one sentence, and nothing of it is changed.
"""

import gc
import hashlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import mnemolog
from mnemolog import MemoryStore, MnemologError, NewTurn, restore_backup
from mnemolog.adapters.importers import import_files
from mnemolog.cli.entry import run
from mnemolog.domain.values import TEXT_BYTES_MAX, VALUE_BYTES_MAX
from mnemolog.infra import sqlite
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.projections.sql.opening import Schema, open_or_rebuild
from tests.support import HashEncoder, open_files

pytestmark = pytest.mark.promise("P13")


TURNS = 60


class Operation(NamedTuple):
    """What is done where there is no room."""

    does: Callable[[MemoryStore, Path], object]
    needs: int
    """Bytes of its largest file that it adds at most: a sweep goes a little beyond."""
    file: str = ""
    """Whose size the limit begins at; else at nothing."""
    before: Callable[[MemoryStore, Path], object] = lambda *_: None
    """What is done while there is room."""


def append(store, _):
    store.record("trip", "user", "x" * 60_000, key="k")


def append_many(store, _):
    turns = [NewTurn(session="trip", role="user", text="y" * 500, key=f"m{n}") for n in range(100)]
    store.record_many(turns)


def checkpoint(store, _):
    with sqlite.mapped_errors(store.path), store.parts.log.reading() as reads:
        wal_checkpointer.checkpoint(reads.driver, "TRUNCATE")


def vectors(store, _):
    store.admin.catch_up_vectors()


def views(store, _):
    store.admin.catch_up_views()


def backup(store, target):
    store.backup(target / "backup")


def status(store, _):
    store.status()


def recall(store, _):
    store.recall("turn 7 of it")


def verify(store, _):
    assert store.verify().sound


def rebuild(store, _):
    store.rebuild()


def restore(store, target):
    if not (target / "kept").exists():
        store.backup(target / "kept", keys=target / "keys")
    restore_backup(target / "kept", target / "restored early", keys=target / "keys")


def export(store, target):
    store.audit.export(target / "log.jsonl")


def forget(store, _):
    store.forget(session="other")


def create(_, target):
    with MemoryStore.open(target / "new", model=None) as store:
        store.session("trip").record("user", "in a new store")


HAVE_WHAT_THEY_NEED = frozenset({"append", "append many", "checkpoint"})
"""A store that is open has its files open: these take no other."""
READS = {"status": status, "recall": recall, "verify": verify}
"""What changes nothing of the store."""
ALSO = {"create": create, "rebuild": rebuild, "backup and restore": restore, "export": export, "forget": forget}
"""What is tried without descriptors only."""
OPERATIONS = {
    "append": Operation(append, 80_000, "log.db-wal"),
    "append many": Operation(append_many, 120_000, "log.db-wal"),
    "checkpoint": Operation(checkpoint, 120_000, "log.db", before=append_many),
    "views": Operation(views, 300_000),
    "vectors": Operation(vectors, 260_000),
    "backup": Operation(backup, 140_000),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A closed store with turns and no projections, to be copied; every library that is needed has been imported."""
    folder = tmp_path_factory.mktemp("template")
    with MemoryStore.open(folder / "warm", model=HashEncoder(), background=False) as store:
        fill(store)
        for does in (*(operation.does for operation in OPERATIONS.values()), *READS.values(), *ALSO.values()):
            does(store, folder)
        restore_backup(folder / "backup", folder / "restored")
    with MemoryStore.open(folder / "store", model=None) as store:
        fill(store)
    shutil.rmtree(folder / "store" / "projections", ignore_errors=True)
    return folder / "store"


def fill(store):
    store.start_session("trip")
    store.record_many([NewTurn(session="trip", role="user", text=f"turn {n} of it") for n in range(TURNS)])
    store.start_session("other")
    store.record("other", "user", "to be forgotten")


@pytest.fixture
def copied(template, tmp_path):
    """Return a new copy of the template."""

    def copy(number):
        folder = tmp_path / f"memory{number}"
        shutil.copytree(template, folder)
        return folder

    return copy


def attempt(work):
    """Return the error of ours that `work` raised, None if it went well. Any other error fails the test."""
    try:
        work()
    except mnemolog.MnemologError as error:
        return error
    return None


def require_whole(folder, other, *, done, what):
    """The store is sound and has all it had, nothing is half there, and the operation can be done now."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert store.verify().sound, what
        assert len(store.turns("trip", limit=1_000)) in (TURNS, TURNS + 1, TURNS + 100), what
        assert store.admin.doctor(deep=True).log_damaged is False, what
        assert not (other / "backup").exists() or done, what
        if not (other / "backup").exists():
            assert not list(other.glob(".backup.*")), what
        for operation in (append, append_many, checkpoint, views, vectors, create):
            operation(store, other)
        shutil.rmtree(other / "backup", ignore_errors=True)
        backup(store, other)
        restore_backup(other / "backup", other / "restored")
        found = store.recall("turn 7 of it", k=3)
        assert found.legs == ("text", "vector"), what
        assert len(store.turns("trip", limit=1_000)) == TURNS + 101, what
        assert found.hits[0].text == "turn 7 of it", what


@pytest.mark.timeout(3_600)
@pytest.mark.promise("P13", "points of each operation")
@pytest.mark.parametrize("name", OPERATIONS)
def test_without_room_on_the_disk(copied, tmp_path, file_limit, name, tries):
    """The largest file that may be written is moved over the whole operation, in steps."""
    operation, outcomes = OPERATIONS[name], []
    for number in range(tries):
        folder, other = copied(number), tmp_path / f"other{number}"
        other.mkdir()
        with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
            store.start_session("opened")  # The files are there, the write-ahead log too.
            operation.before(store, other)
            size = (folder / operation.file).stat().st_size if operation.file else 0
            room = size + number * operation.needs // tries // 512 * 512
            file_limit(room)
            error = attempt(lambda: operation.does(store, other))  # noqa: B023
            file_limit(resource.RLIM_INFINITY)
        outcomes.append(error)
        require_whole(folder, other, done=error is None, what=f"{name} with {room} bytes: {error!r}")
        shutil.rmtree(folder)
        shutil.rmtree(other)
    assert any(outcomes)  # Else the limit was never in the way.
    assert outcomes[0] is not None


@pytest.mark.timeout(3_600)
@pytest.mark.promise("P13", "limits on descriptors")
@pytest.mark.parametrize("name", [*OPERATIONS, *READS, *ALSO, "open"])
def test_without_descriptors(copied, tmp_path, descriptor_limit, name, tries):
    """None is left, then one, two, ..."""
    outcomes = []
    for number in range(tries):
        folder, other = copied(number), tmp_path / f"other{number}"
        other.mkdir()
        opened = []

        def work(folder=folder, other=other, opened=opened):
            if name != "open":
                (READS.get(name) or ALSO.get(name) or OPERATIONS[name].does)(opened[0], other)
                return
            opened.append(MemoryStore.open(folder, model=HashEncoder(), background=False))
            append(opened[0], other)

        if name != "open":
            opened.append(MemoryStore.open(folder, model=HashEncoder(), background=False))
        descriptor_limit(number)
        try:
            error = attempt(work)
        finally:
            descriptor_limit(None)
        for store in opened:
            store.close()
        outcomes.append(error)
        require_whole(folder, other, done=error is None, what=f"{name} with {number} descriptors: {error!r}")
        shutil.rmtree(folder)
        shutil.rmtree(other)
    if name in HAVE_WHAT_THEY_NEED:
        assert outcomes == [None] * tries
        return
    assert isinstance(outcomes[0], mnemolog.errors.OutOfDescriptors | mnemolog.errors.ProjectionError), outcomes[0]
    assert outcomes[0].hint


def test_an_import_that_fills_the_disk_reports_the_recorded_turns_and_can_resume(folder, tmp_path, file_limit):
    """Whole transactions stay; importing again records the rest, and nothing twice."""
    path = tmp_path / "talk.jsonl"
    lines = [
        json.dumps({"role": "user", "text": random.Random(number).randbytes(30_000).hex()}) for number in range(200)
    ]
    path.write_text("\n".join(lines))
    with MemoryStore.open(folder, model=None) as store:
        file_limit(5 << 20)
        with pytest.raises(mnemolog.errors.AppendError) as caught:
            import_files(store, path)
        file_limit(resource.RLIM_INFINITY)
    (note,) = caught.value.__notes__
    recorded = int(note.removesuffix(" turns recorded"))
    with MemoryStore.open(folder, model=None) as store:
        report = import_files(store, path)
        assert 0 < recorded < len(lines)
        assert (report.already_there, report.recorded) == (recorded, len(lines) - recorded)
        assert store.verify().sound


def test_a_database_that_cannot_be_begun_is_not_left_open(folder, request):
    """Who tries again and again on a full disk does not run out of descriptors, nor maps what others cut."""

    def begin(database):
        with database.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 4")
            connection.exec_driver_sql("CREATE TABLE large AS SELECT zeroblob(100000)")

    folder.mkdir()
    path = folder / "projections" / "views.db"
    request.addfinalizer(gc.enable)
    gc.disable()
    schema = Schema(lambda connection: None)
    with pytest.raises(mnemolog.StorageFull):
        open_or_rebuild(path, begin, folder / "projections" / "quarantine", schema=schema, busy_timeout_s=1)
    assert path.exists()
    assert open_files(folder) == []


STEP_BYTES = 256 << 10
STEPS = 24
CHILD_S = 120
HUNGRY = {
    "record": lambda store, number: store.session("trip").record("user", "x" * TEXT_BYTES_MAX, key=f"k{number}"),
    "record_many": lambda store, number: store.record_many(
        [NewTurn(session="trip", role="user", text="y" * (TEXT_BYTES_MAX // 2), key=f"m{number}/{n}") for n in range(4)]
    ),
    "set": lambda store, number: store.session("trip").set(f"k{number}", "z" * (VALUE_BYTES_MAX - 100)),
}


def used_bytes():
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")


def try_with_little_memory(folder, operation, encrypted):
    """Runs in a child, which must not end: the operation with a little more memory each time.

    Some is always left: `cryptography` aborts without a few hundred bytes.
    """
    refused = 0
    with MemoryStore.open(folder, model=None, background=False, encrypt=encrypted) as store:
        session = store.session("trip")
        session.record("user", "before", key="before")
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        for number in range(STEPS):
            resource.setrlimit(resource.RLIMIT_AS, (used_bytes() + (number + 1) * STEP_BYTES, unlimited[1]))
            try:
                HUNGRY[operation](store, number)
            except (MemoryError, MnemologError):
                refused += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, unlimited)
        HUNGRY[operation](store, STEPS)
        session.record("user", "after", key="after")
        assert store.recall("after").hits[0].text == "after"
        assert store.verify().sound
    print(refused)


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("operation", HUNGRY)
def test_a_large_write_without_memory_is_refused_and_the_process_lives(tmp_path, record_property, operation, encrypted):
    """msgspec's own `encode` ended the process with a segmentation fault."""
    code = f"from {__name__} import try_with_little_memory as t; t({str(tmp_path / 'm')!r}, {operation!r}, {encrypted})"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD_S, check=False)
    assert child.returncode == 0, f"{child.returncode}: {child.stderr[-6_000:]}"
    refused = int(child.stdout)
    record_property("tried", refused)
    assert refused > 0
    with MemoryStore.open(tmp_path / "m", model=None, create=False) as store:
        assert store.verify().sound


OWNER, NOBODY = 12_345, 65_534
TEXTS = ["tea in Porto", "a train at nine"]


class Rights(NamedTuple):
    """What others may do with the files of a store."""

    folders: int
    files: int
    private: str = ""
    """The one path that its owner alone may open."""
    named: str = "."
    """The path that is named to who wants to read what was said; empty if nothing is in the way."""


CASES = {
    "a private folder": Rights(0o700, 0o600),
    "a folder that may be listed alone": Rights(0o744, 0o644),
    "private files": Rights(0o755, 0o600, named="log.db"),
    "a private log": Rights(0o755, 0o644, "log.db", named="log.db"),
    "private keys": Rights(0o755, 0o644, "keys.db", named="keys.db"),
    "private projections": Rights(0o755, 0o644, "projections", named="projections"),
    "private views": Rights(0o755, 0o644, "projections/views.db", named="projections/views.db"),
    "a folder that may be read": Rights(0o755, 0o644, named=""),
}
COMMANDS = {
    "status": ["status"],
    "sessions": ["sessions"],
    "record": ["record", "trip", "not allowed"],
    "backup": ["backup", "TARGET"],
    "doctor": ["doctor"],
    "export": ["export", "TARGET"],
}


def command(name, folder, target):
    """Run a command line in this process. Return its exit code."""
    first, *others = COMMANDS[name]
    try:
        return run([first, str(folder), *(str(target) if each == "TARGET" else each for each in others)])
    except SystemExit as end:
        return end.code


def contents(folder):
    """Return owner, mode and digest of everything in a folder."""
    return {
        path: (path.stat().st_uid, path.stat().st_mode, path.is_file() and hashlib.sha256(path.read_bytes()).digest())
        for path in sorted([folder, *folder.rglob("*")])
    }


@pytest.fixture(scope="module")
def of_the_owner():
    """A folder that everybody may enter, with a closed store. Commands and a recall have imported what they need."""
    base = Path(tempfile.mkdtemp())
    base.chmod(0o755)
    with MemoryStore.open(base / "memory", model=None, background=False) as store:
        for text in TEXTS:
            store.session("trip").record("user", text)
        store.rebuild()
        store.recall("tea")
    shutil.copytree(base / "memory", base / "warm")
    for name in COMMANDS:
        command(name, base / "warm", base / f"warm {name}")
    yield base
    shutil.rmtree(base)


@pytest.fixture(params=CASES)
def foreign(request, of_the_owner):
    """A store of another user, a folder to write into, and the rights; tried as who has no others."""
    rights, folder, own = CASES[request.param], of_the_owner / "foreign", of_the_owner / "own"
    shutil.copytree(of_the_owner / "memory", folder)
    own.mkdir()
    for path in sorted([folder, *folder.rglob("*")], reverse=True):
        os.chown(path, OWNER, OWNER)
        path.chmod(rights.folders if path.is_dir() else rights.files)
    if rights.private:
        (folder / rights.private).chmod(0o700 if (folder / rights.private).is_dir() else 0o600)
    os.chown(own, NOBODY, NOBODY)
    yield folder, own, rights
    shutil.rmtree(folder)
    shutil.rmtree(own)


@pytest.fixture
def as_nobody():
    """Act as a user that owns nothing."""
    gc.collect()  # Semaphores of earlier tests may only be removed by their owner.
    groups = os.getgroups()

    def act(work):
        os.setgroups([])
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            return work()
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    return act


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@needs_root
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_another_user_is_opened_as_far_as_it_may_be_read_and_never_changed(foreign, as_nobody, read_only):
    """Through the library: one error that names the path; read-only, all of it where all may be read."""
    folder, _, rights = foreign
    before = contents(folder)

    def work():
        with MemoryStore.open(folder, model=None, background=False, read_only=read_only) as store:
            return [turn.text for turn in store.turns("trip")] + [hit.text for hit in store.recall("tea").hits]

    if read_only and not rights.named:
        assert as_nobody(work) == [*TEXTS, TEXTS[0]]
    else:
        with pytest.raises(mnemolog.errors.StoreNotWritable) as caught:
            as_nobody(work)
        says = str(caught.value)
        if rights.named and (read_only or rights.named in (".", "projections")):
            assert says == f"cannot read {folder / rights.named}: Permission denied"
        else:
            assert says == f"cannot write to {folder}: this process may not write into the folder"
            assert ("read_only=True" in caught.value.hint) == (rights.named != "log.db")
    assert contents(folder) == before


@needs_root
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_for_a_store_of_another_user_says_one_sentence_and_changes_nothing(foreign, as_nobody, capsys, name):
    """What reads answers where it may; all else is an error and a hint."""
    folder, own, rights = foreign
    before = contents(folder)
    capsys.readouterr()
    code = as_nobody(lambda: command(name, folder, own / "target"))
    said = capsys.readouterr()
    assert contents(folder) == before
    assert "Traceback" not in said.err
    if code == 0:
        assert name != "record"
        assert not rights.named or (rights.named == "keys.db" and name in ("sessions", "export"))
        return
    first, second = said.err.strip().splitlines()
    assert first.startswith(("error: cannot read ", "error: cannot write to ")), first
    assert str(folder / rights.named) in first or (name == "record" and str(folder) in first)
    assert "cannot read" in first or name == "record"
    assert second.startswith("hint: ")
    assert not list(own.iterdir()), "nothing is half there"
    assert code == 1
