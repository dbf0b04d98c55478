"""A store that is only read, on a disk that cannot be written or not: all of it can be read, and nothing is changed."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
import tempfile

import pytest

import mnemolog
from mnemolog import MemoryStore, errors
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.forgetting import service as purging
from mnemolog.projections.quarantine import Quarantine
from tests.support import HashEncoder, can_mount

pytestmark = pytest.mark.local

TURNS = ("tea in Porto with Ana", "the train leaves at nine", "a heliotrope notebook for Ana")
RUN = """
import contextlib, io, json, sys
from mnemolog.cli import main
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["mnemolog", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main()
        except SystemExit as end:
            status = end.code
    answers.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


def filled(folder, **how):
    """Make a store with turns, vectors, values and a checkpoint, and return it open."""
    store = MemoryStore.open(folder, model=HashEncoder(), **how)
    session = store.session("trip", scope="acme/ana", title="Porto")
    for text in TURNS:
        session.record("user", text)
    session.set("colour", "heliotrope")
    session.note("buy tickets")
    session.checkpoint("before")
    store.rebuild()
    store.recall("tea")
    return store


def contents(folder):
    """Return the digest, mode and time of change of every file below a folder."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mode,
            path.stat().st_mtime_ns if path.is_file() else 0,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def memory(request, tmp_path):
    """The folder of a store that was closed; encrypted, unless a test asks for a plain one."""
    folder = tmp_path / "memory"
    filled(folder, encrypt=getattr(request, "param", "encrypted") == "encrypted").close()
    return folder


def on_read_only_disk(folder, *command, **how):
    """Run a command that finds `folder` on a read-only file system or, where none can be mounted, write-protected."""
    if can_mount():
        mount = 'mount -o bind,ro "$1" "$1" && shift && exec "$@"'
        command = ("unshare", "-m", "sh", "-c", mount, "sh", str(folder), *command)
        return subprocess.run(command, text=True, capture_output=True, timeout=240, check=False, **how)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        return subprocess.run(command, text=True, capture_output=True, timeout=240, check=False, **how)
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def run_all(folder, *lines):
    """Run command lines with `folder` on a read-only disk; return status, output and errors of each."""
    ran = on_read_only_disk(folder, sys.executable, "-c", RUN, input=json.dumps(lines))
    assert ran.returncode == 0, ran.stderr
    return [(line, *answer) for line, answer in zip(lines, json.loads(ran.stdout), strict=True)]


@pytest.mark.parametrize("memory", ["encrypted", "plain"], indirect=True)
def test_every_command_that_reads_works_on_a_read_only_disk(memory, tmp_path):
    before = contents(memory)
    words = {
        "sessions": "trip",
        "scopes": "acme/ana",
        "agents": "agent",
        "status": "read-only",
        "head": "",
        "show trip": TURNS[0],
        "show trip --at 3": TURNS[1],
        "recall heliotrope --model none": TURNS[2],
        "find train": TURNS[1],
        "replay": TURNS[2],
        "diff 2 4": "",
        "verify": "",
        "verify --contents": "",
        "doctor": "",
        "doctor --deep": "",
        "memory list trip": "heliotrope",
        "task trip": "",
        "notes trip": "buy tickets",
        "checkpoint list trip": "before",
        "current": "",
        "forgotten": "",
        "model list": "",
        "language": "en",
        "quarantine list": "",
        "audit": "",
        f"export {tmp_path / 'log.jsonl'}": "",
        f"backup {tmp_path / 'copy'}": "",
    }
    lines = [_with_folder(line.split(), memory) for line in words]
    for (line, status, out, err), expected in zip(run_all(memory, *lines), words.values(), strict=True):
        assert status == (1 if line[0] == "current" else 0), (line, out, err)  # There was no switch.
        assert expected in out, (line, out, err)
    assert contents(memory) == before
    mnemolog.restore_backup(tmp_path / "copy", tmp_path / "again")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) > len(TURNS)


def _with_folder(line, folder):
    words = 2 if line[0] in ("memory", "checkpoint", "model", "quarantine", "audit") else 1
    return [*line[:words], str(folder), *line[words:]]


def test_a_command_that_writes_says_in_one_sentence_that_nothing_can_be_written(memory):
    before = contents(memory)
    lines = ("record trip tea", "rebuild", "checkpoint create trip after", "doctor --fix")
    for line, status, out, err in run_all(memory, *(_with_folder(line.split(), memory) for line in lines)):
        assert status == 1, (line, out, err)
        assert err.splitlines()[0] == f"error: cannot write to {memory}: the store was opened read-only", line
    assert contents(memory) == before


def test_a_store_that_a_killed_process_left_can_be_read_on_a_read_only_disk(tmp_path):
    """Where its newest commits cannot be read, they are not passed over."""
    with filled(tmp_path / "live") as store:
        store.parts.projections.stop()  # Its note of who embeds would go while the folder is copied.
        shutil.copytree(store.path, tmp_path / "memory")
    memory = tmp_path / "memory"
    assert (memory / "log.db-wal").stat().st_size > 0
    before = contents(memory)
    ((_, status, out, err),) = run_all(memory, ["show", str(memory), "trip"])
    assert status == 0, err
    assert TURNS[-1] in out
    assert contents(memory) == before
    (memory / "log.db-shm").unlink()
    ((_, status, out, err),) = run_all(memory, ["show", str(memory), "trip"])
    assert (status, out) == (1, "")
    assert "the newest commits are in log.db-wal" in err
    assert "copy the folder to where it can be written" in err


def test_a_store_opened_read_only_follows_its_writer_and_writes_nothing(tmp_path):
    with filled(tmp_path / "memory") as writer, MemoryStore.open(writer.path, model=None, read_only=True) as reader:
        before = {name: kept for name, kept in contents(writer.path).items() if not name.endswith("-shm")}
        assert reader.recall("heliotrope notebook").hits[0].text == TURNS[2]
        assert reader.verify().sound
        assert reader.status().read_only
        assert {name: kept for name, kept in contents(writer.path).items() if not name.endswith("-shm")} == before
        writer.session("trip").record("user", "the ferry to Afurada")
        assert reader.recall("ferry Afurada").hits[0].text == "the ferry to Afurada"
        assert reader.find("ferry")[0].text == "the ferry to Afurada"


def test_whatever_would_write_raises_and_names_the_reason(memory):
    with MemoryStore.open(memory, model=HashEncoder(), read_only=True) as store:
        session = store.find_session("trip")
        writes = [
            lambda: store.session("new"),
            lambda: session.record("user", "tea"),
            lambda: session.set("colour", "red"),
            lambda: store.recall("tea", receipt=True),
            lambda: store.rebuild(),
            lambda: store.admin.doctor(fix=True),
            lambda: store.admin.set_language("de"),
            lambda: store.models.activate(HashEncoder()),
        ]
        for write in writes:
            with pytest.raises(errors.StoreNotWritable, match="opened read-only"):
                write()
        assert store.recall("tea").hits
    with pytest.raises(errors.InvalidInput, match="receipt"):
        MemoryStore.open(memory, read_only=True, receipts=True)
    with pytest.raises(errors.StoreNotFound):
        MemoryStore.open(memory.parent / "none", read_only=True)
    assert not (memory.parent / "none").exists()


def test_a_store_on_a_read_only_disk_is_refused_with_the_way_to_read_it(memory):
    script = (
        "import sys; from mnemolog import MemoryStore, errors\n"
        "try: MemoryStore.open(sys.argv[1], model=None)\n"
        "except errors.StoreNotWritable as error: print(error, error.hint)"
    )
    ran = on_read_only_disk(memory, sys.executable, "-c", script, str(memory))
    assert f"cannot write to {memory}: this process may not write into the folder" in ran.stdout, ran.stderr
    assert "`read_only=True` opens the store to read it" in ran.stdout


def test_the_copies_of_projections_are_private_and_deleted_when_the_store_is_closed(memory, monkeypatch, tmp_path):
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with MemoryStore.open(memory, model=None, read_only=True) as store:
        assert store.recall("tea").hits
        (copies,) = temporary.iterdir()
        assert stat.S_IMODE(copies.stat().st_mode) == 0o700
        assert (copies / "projections" / "views.db").exists()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("pending", [False, True])
def test_a_copy_of_projections_loses_what_another_store_forgets_at_its_next_read(tmp_path, monkeypatch, pending):
    """Also what was in the copy because it was made before the store's own projections were purged."""
    (temporary := tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    secret = TURNS[2].encode()

    def left():
        return [path.name for path in temporary.rglob("*") if path.is_file() and secret in path.read_bytes()]

    with filled(tmp_path / "memory") as writer:
        turn = writer.turns("trip")[2]
        with monkeypatch.context() as patched:
            if pending:
                patched.setattr(purging, "purge", lambda *_, **__: "not now")
                assert not writer.forget(positions=[turn.position]).complete
            reader = MemoryStore.open(writer.path, model=HashEncoder(), read_only=True, background=False)
        with reader:
            if not pending:
                assert reader.recall("heliotrope").hits[0].text == TURNS[2]
                reader.find_session("trip").get("colour")
                assert "views.db" in left()
                assert writer.forget(positions=[turn.position]).complete
            assert [turn.text for turn in reader.turns("trip")] == list(TURNS[:2])
            assert left() == []
            assert reader.recall("tea").hits[0].text == TURNS[0]


def test_damaged_projections_are_rebuilt_in_the_copy_and_left_as_they_are_in_the_store(memory):
    StoreLayout(memory).views.write_bytes(b"damaged " * 512)
    before = contents(memory)
    with MemoryStore.open(memory, model=None, read_only=True) as store:
        assert store.recall("heliotrope").hits[0].text == TURNS[2]
    now = contents(memory)
    assert {name: now[name] for name in before} == before


FILL = """
import contextlib
from mnemolog import MemoryStore, errors
store = MemoryStore.open("memory", model=None)
try:
    while True:
        store.session("trip").record("user", "tea " * 1_000)
except errors.StorageFull:
    store.close()
with contextlib.suppress(OSError), open("rest", "wb", buffering=0) as rest:
    while rest.write(bytes(4096)) == 4096:
        pass
"""


@pytest.mark.skipif(not can_mount(), reason="no disk of a few megabytes can be mounted")
def test_a_store_on_a_full_disk_can_still_be_read(tmp_path):
    """Not a byte is left, and no projection was built. A turn is refused, and the note says why."""
    lines = [["status"], ["verify"], ["show", "trip"], ["recall", "tea", "--model", "none"], ["doctor"], ["sessions"]]
    lines = [[command, "memory", *more] for command, *more in [*lines, ["record", "trip", "more"]]]
    mount = 'mount -t tmpfs -o size=2m none "$1" && cd "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, "-c", FILL + RUN]
    ran = subprocess.run(command, input=json.dumps(lines), text=True, capture_output=True, timeout=110, check=True)
    *read, refused = json.loads(ran.stdout)
    assert [status for status, _, _ in read] == [0] * len(read), read
    assert "tea tea" in read[3][1]
    assert (refused[0], "is full: free some space" in refused[2]) == (1, True)


def aside(memory):
    """Put a file into the quarantine of a store, which is returned."""
    quarantine = Quarantine(StoreLayout(memory).own_quarantine)
    stray = StoreLayout(memory).projections / "stray.db"
    stray.write_text("content")
    assert quarantine.add(stray, reason="planted")
    return quarantine


def test_the_quarantine_of_a_store_that_is_only_read_is_shown_and_kept(memory):
    """It is that of the folder, not of the copy that answers."""
    items = aside(memory).items()
    with MemoryStore.open(memory, model=None, read_only=True) as store:
        shown = store.admin.quarantine()
        assert (shown.items(), store.status().quarantine.items, shown.purge(dry_run=True)) == (items, 1, items)
        with pytest.raises(errors.StoreNotWritable):
            shown.purge()
    assert Quarantine(StoreLayout(memory).own_quarantine).items() == items


def test_on_a_full_disk_purging_the_quarantine_makes_room(memory, run, monkeypatch):
    """There commands only read: this one still deletes."""
    quarantine = aside(memory)
    monkeypatch.setattr("mnemolog.cli.command.has_room", lambda _: False)
    assert "1 item" in run("quarantine", "list", memory).exited().stdout
    run("quarantine", "purge", memory, "--yes").exited()
    assert quarantine.items() == []
