"""The quarantine: nothing is lost by it, it is bounded, and two who do the same do not disturb each other.

The checksum over views that nobody has open: every byte counts, and only what was closed is judged. Who may reach a
store, and where: modes of its files, and the file systems that it may lie on.
"""

import json
import os
import shutil
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import mnemolog
from mnemolog import MemoryStore, NewTurn, restore_backup
from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.infra import filesystems
from mnemolog.infra.filesystems import Mount, mount_of, parse
from mnemolog.infra.runtime import files
from mnemolog.projections import quarantine
from mnemolog.projections.quarantine import Quarantine, identity
from mnemolog.projections.sql import database as sealing
from mnemolog.projections.sql.conversation_views import TURNS
from mnemolog.projections.vectors.folders import FORMAT, Manifest, log_range_of, segment_name, write_manifest
from tests.support import HashEncoder, projections_of


@pytest.fixture
def aside(tmp_path):
    return Quarantine(tmp_path / "projections" / "quarantine")


def thing(aside, name="thing", text="content"):
    """A file below the projections, to be set aside."""
    path = aside.folder.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_quarantined_file_is_renamed_with_its_reason_beside_it(aside):
    """The bytes are the same, the old name is free, and the reason says what, why and when."""
    path = thing(aside, "vectors/generation/segment")
    moved = aside.add(path, reason="one bit too many", state="damaged")
    assert moved.read_text() == "content"
    assert not path.exists()
    note = json.loads((moved.parent / f"{moved.name}.reason.json").read_text())
    assert (note["was"], note["reason"]) == ("vectors/generation/segment", "one bit too many")
    (item,) = aside.items()
    assert (item.name, item.was, item.state) == (moved.name, note["was"], "damaged")
    assert timedelta(0) <= datetime.now(UTC) - item.when < timedelta(minutes=1)
    assert item.bytes == len("content")


def test_a_flipped_bit_in_a_reason_accuses_no_log(aside, tmp_path):
    """A reason tells what a segment remembers of the history: as it was written, or not at all."""
    segment = tmp_path / "projections" / segment_name(0, 7)
    segment.mkdir(parents=True)
    texts = dict.fromkeys(("fingerprint", "model", "recipe", "metric", "index", "faiss_version"), "")
    numbers = ("dimension", "turns", "vectors", "probes", "candidates", "block_rows")
    told = {"format": FORMAT, "log_id": "f" * 32, "after": 0, "upto": 7, "digest_at_upto": "ab" * 32}
    write_manifest(segment, Manifest(skipped=(), files={}, **texts, **dict.fromkeys(numbers, 0), **told))
    moved = aside.add(segment, reason="one bit too many", built_from=log_range_of(segment))
    path = moved.parent / f"{moved.name}.reason.json"
    (written,) = aside.items()
    assert (written.upto, written.digest) == (7, "ab" * 32)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        (item,) = aside.items()
        told = (item.log_id, item.after, item.upto, item.digest)
        assert told in (("", None, None, ""), (written.log_id, 0, 7, written.digest))


def test_a_database_moves_with_its_parts_and_a_folder_with_its_files_as_one_item(aside):
    """What SQLite keeps beside the file stays beside it, so that the item can be opened. Segments are folders."""
    path = thing(aside, "views.db")
    for part in DATABASE_PARTS:
        thing(aside, f"views.db{part}", text="part")
    moved = aside.add(path, reason="damaged", parts=DATABASE_PARTS)
    (item,) = aside.items()
    assert item.bytes == len("content") + len(DATABASE_PARTS) * len("part")
    assert all((moved.parent / (moved.name + part)).read_text() == "part" for part in DATABASE_PARTS)
    assert list(aside.folder.parent.glob("views.db*")) == []
    thing(aside, "segment/index")
    assert (aside.add(aside.folder.parent / "segment", reason="damaged") / "index").exists()
    aside.purge()
    assert [path.name for path in aside.folder.iterdir()] == [".lock"]


def test_a_crash_at_any_moment_leaves_the_original_or_item_and_reason(tmp_path, aside, monkeypatch):
    """Cut off at each file operation in turn, and once more after that: nothing lost, no item without reason."""
    operations = ("write_synced", "sync")
    for after in range(1, 10):
        path = thing(aside, text=f"content {after}")
        before = {item.name for item in aside.items()}
        with monkeypatch.context() as patched:
            seen = _cut_off_after(patched, after, operations)
            with suppress(KeyboardInterrupt):
                aside.add(path, reason="cut off")
        added = [item for item in aside.items() if item.name not in before]
        assert path.exists() == (not added)
        assert all(item.reason == "cut off" for item in added)
        if seen[0] < after:
            break
        path.unlink(missing_ok=True)
    else:
        pytest.fail("it never came to its end")
    assert after > 3
    # Reasons without their item are no items, and go with the next thing that is set aside.
    assert len(list(aside.folder.glob("*.reason.json"))) == len(aside.items())


def _cut_off_after(patched, after, names):
    """Have the `after`-th call of these functions of `files` die like a process does. Counts in the list."""
    seen = [0]
    for name in names:
        original = getattr(files, name)

        def counted(*arguments, original=original):
            seen[0] += 1
            if seen[0] == after:
                raise KeyboardInterrupt
            return original(*arguments)

        patched.setattr(files, name, counted)
    return seen


def test_a_reason_without_its_item_is_no_item_and_an_item_without_its_reason_is_one(aside):
    """The first is left by a crash and cleaned up. The second was put there by hand."""
    aside.folder.mkdir(parents=True)
    leftover = aside.folder / "thing.20260101T000000Z.00000000.reason.json"
    leftover.write_text("{}")
    assert aside.items() == []
    assert aside.status().items == 0
    aside.add(thing(aside), reason="another")
    assert not leftover.exists()
    assert len(aside.items()) == 1
    aside.purge()
    (aside.folder / "by-hand").write_text("x")
    (item,) = aside.items()
    assert (item.name, item.when) == ("by-hand", None)
    assert aside.purge() == [item]


def test_a_full_quarantine_takes_nothing_more_and_deletes_nothing(aside, monkeypatch):
    """The damaged thing stays where it is, whichever limit is reached; a purge makes room."""
    monkeypatch.setattr(quarantine, "ITEMS_MAX", 2)
    for _ in range(2):
        assert aside.add(thing(aside), reason="damaged")
    path = thing(aside)
    assert aside.add(path, reason="damaged") is None
    assert path.exists()
    assert aside.status().full
    assert "purge" in aside.status().action
    assert len(aside.items()) == 2
    aside.delete(aside.items()[:1])
    assert not aside.status().full
    assert aside.add(path, reason="damaged")
    monkeypatch.setattr(quarantine, "ITEMS_MAX", 64)
    monkeypatch.setattr(quarantine, "BYTES_MAX", 2 * len("content"))
    assert aside.status().full
    assert aside.add(thing(aside), reason="damaged") is None
    aside.purge()
    monkeypatch.setattr(quarantine, "BYTES_MAX", 3)
    assert aside.add(thing(aside), reason="large"), "renaming costs no space: else nothing could be done about it"
    assert aside.status().full


def test_a_new_thing_under_the_old_name_is_left_alone(aside):
    """Who judged the old one comes too late: somebody has set it aside and made it anew."""
    path = thing(aside, text="damaged")
    judged = identity(path)
    aside.add(path, reason="by the first")
    thing(aside, text="made anew")
    assert aside.add(path, reason="by the second", judged=judged) is None
    assert path.read_text() == "made anew"


def test_a_file_system_that_refuses_leaves_everything_as_it_was(aside, monkeypatch):
    """No error for the reader who wanted an answer: what is damaged is not used, that is all."""
    path = thing(aside)
    monkeypatch.setattr(files, "write_synced", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    assert aside.add(path, reason="damaged") is None
    assert path.exists()
    assert aside.items() == []


def test_purge_deletes_all_items_and_a_dry_run_none(aside):
    """Both return the same items."""
    for name in ("one", "two"):
        aside.add(thing(aside, name), reason="x")
    assert len(aside.items()) == 2
    assert aside.purge(dry_run=True) == aside.items()
    assert len(aside.purge()) == 2
    assert [path.name for path in aside.folder.iterdir()] == [".lock"]


FLIPS = 300


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a store with a few hundred turns, closed; and what it answers."""
    folder = tmp_path_factory.mktemp("made") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.start_session("s", scope="acme")
        for n in range(0, 300, 50):
            texts = [f"the ferry number{m} leaves at {m % 24} o'clock" for m in range(n, n + 50)]
            session.record_many([NewTurn(session=session, role="user", text=text) for text in texts])
        store.admin.catch_up_vectors()
        return folder, answers(store)


@pytest.fixture
def closed(made, tmp_path):
    """A copy of that store, and what it answers."""
    folder, told = made
    return shutil.copytree(folder, tmp_path / "memory"), told


def answers(store):
    return (
        store.recall("number7 ferry", mode="text", k=20).hits,
        store.recall("number3", k=20).hits,
        store.sessions(),
    )


def views_of(folder):
    return folder / "projections" / "views.db"


def test_no_flipped_bit_of_closed_views_changes_an_answer(closed, tmp_path):
    """SQLite would see some, answer wrongly with others, and never notice most."""
    folder, told = closed
    random, size = np.random.default_rng(11), views_of(folder).stat().st_size
    pristine = views_of(folder).read_bytes()
    for at, bit in random.integers((size, 8), size=(FLIPS, 2)).tolist():
        data = bytearray(pristine)
        data[at] ^= 1 << bit
        views_of(folder).write_bytes(data)
        assert sealing.why_not_as_sealed(views_of(folder)) is not None
    copy = tmp_path / "copy"
    for at in random.integers(size, size=4).tolist():
        data = bytearray(pristine)
        data[at] ^= 1
        shutil.copytree(folder, copy)
        views_of(copy).write_bytes(data)
        with MemoryStore.open(copy, model=HashEncoder(), background=False) as store:
            assert store.status().views.state == "damaged"
            assert answers(store) == told
            assert store.status().quarantine.items == 1
        assert sealing.why_not_as_sealed(views_of(copy)) is None
        shutil.rmtree(copy)


def test_views_that_are_sealed_are_opened_as_they_are(closed):
    """Also by one who changes nothing, and the seal stays."""
    folder, told = closed
    before = sealing.seal_of(views_of(folder)).read_bytes()
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert store.status().views.state == "current"
        assert answers(store) == told
        assert store.status().quarantine.items == 0
    assert sealing.seal_of(views_of(folder)).read_bytes() == before


def test_a_writer_breaks_the_seal_and_renews_it_at_the_end(closed):
    """Before the commit: at no moment is there a seal of other bytes."""
    folder, _ = closed
    before = sealing.seal_of(views_of(folder)).read_bytes()
    with MemoryStore.open(folder, model=None) as store:
        store.session("s").record("user", "one more")
        assert store.recall("more", mode="text").hits
        assert not sealing.seal_of(views_of(folder)).exists()
        assert store.status().views.state == "current"
    assert sealing.seal_of(views_of(folder)).read_bytes() != before
    assert sealing.why_not_as_sealed(views_of(folder)) is None


def test_a_write_that_fails_leaves_views_without_a_seal_and_not_accused(closed):
    """Nothing was committed, but that is not known to who comes after a kill."""
    folder, told = closed
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        views = projections_of(store).current_views()
        with suppress(RuntimeError), views.database.writing() as connection:
            connection.execute(TURNS.delete())
            assert not sealing.seal_of(views_of(folder)).exists()
            raise RuntimeError
        assert sealing.why_not_as_sealed(views_of(folder)) is None
        assert answers(store) == told
    assert sealing.seal_of(views_of(folder)).exists()


def test_who_closes_while_another_writes_does_not_seal(closed):
    """The other does, when it closes."""
    folder, _ = closed
    with MemoryStore.open(folder, model=None) as one:
        one.session("s").record("user", "one more")
        one.recall("more", mode="text")
        with projections_of(one).current_views().database.writing(), MemoryStore.open(folder, model=None) as two:
            assert two.recall("ferry", mode="text").hits
        assert not sealing.seal_of(views_of(folder)).exists()
    assert sealing.seal_of(views_of(folder)).exists()
    assert sealing.why_not_as_sealed(views_of(folder)) is None


def test_very_large_views_and_an_unreadable_seal_are_not_judged(closed, monkeypatch):
    """A seal only ever says that a file was whole once."""
    folder, told = closed
    sealing.seal_of(views_of(folder)).write_bytes(b"\xff")
    assert sealing.why_not_as_sealed(views_of(folder)) is None
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        assert answers(store) == told
        monkeypatch.setattr(sealing, "SEALED_BYTES_MAX", 1_000)
        store.session("s").record("user", "one more")
        assert store.recall("more", mode="text").hits
    assert not sealing.seal_of(views_of(folder)).exists()


@pytest.fixture
def lax():
    """A umask that takes nothing away."""
    was = os.umask(0)
    yield
    os.umask(was)


def modes_below(folder):
    """Modes by path of the folder and everything below it."""
    found = {".": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
    return found


def lax_ones(folder):
    """Of them those that others may read, write or enter."""
    return {name: oct(mode) for name, mode in modes_below(folder).items() if mode & 0o077}


def test_every_file_and_folder_of_a_store_is_its_owners_alone(folder, lax):
    """While it is open, with a write-ahead log, and after it was closed: segments, locks, quarantine and notes too."""
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        session = store.start_session("trip")
        for number in range(3):
            session.record("user", f"turn {number}")
        session.checkpoint("here")
        store.recall("turn")
        store.admin.catch_up_vectors()
        assert (folder / "log.db-wal").exists()
        assert (folder / "log.db-shm").exists()
        assert lax_ones(folder) == {}
        store.rebuild("all")
    assert (folder / "projections" / "views.db-seal").exists()
    (folder / "projections" / "views.db").write_bytes(b"no database at all")  # Nobody has it open.
    with MemoryStore.open(folder, model=None) as store:
        store.sessions()
        assert store.admin.quarantine().items()
        assert lax_ones(folder) == {}
    names = modes_below(folder)
    assert any("manifest.json" in name for name in names)
    assert any(".lock" in name for name in names)
    assert lax_ones(folder) == {}


def test_forgetting_leaves_no_file_that_others_may_read(tmp_path, lax):
    """Its lock, and the folders above a store that it creates, are its owner's alone too."""
    folder = tmp_path / "above" / "m"
    with MemoryStore.open(folder, model=None) as store:
        store.session("trip").record("user", "tea")
        store.forget(session="trip")
    assert lax_ones(folder.parent) == {}


SAMPLE = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
23 22 0:5 / /dev rw - devtmpfs devtmpfs rw
30 22 0:40 / /home rw,relatime shared:12 master:3 propagate_from:2 - nfs4 server:/export/home rw,vers=4.2
31 30 254:1 / /home/local rw - xfs /dev/vdb rw
32 22 0:41 / /mnt/with\\040space rw - cifs //server/share rw
33 22 0:42 / /mnt/ssh rw - fuse.sshfs me@there:/ rw
34 22 0:43 / /mnt/ntfs rw - fuseblk /dev/vdc rw
35 22 0:44 / /mnt/twice rw - nfs server:/a rw
36 35 0:45 / /mnt/twice rw - tmpfs tmpfs rw
37 22 0:46 / /mnt/portal rw - fuse.portal portal rw
38 22 0:47 / /guest rw - 9p hostshare rw,trans=virtio
this line is nonsense
39 22 0:48 / /short
"""


@pytest.mark.parametrize(
    ("path", "kind", "is_network"),
    [
        ("/var/lib/memory", "ext4", False),
        ("/home/alice/memory", "nfs4", True),
        ("/home", "nfs4", True),
        ("/homework", "ext4", False),
        ("/home/local/memory", "xfs", False),
        ("/mnt/with space/memory", "cifs", True),
        ("/mnt/ssh/memory", "fuse.sshfs", True),
        ("/mnt/ntfs/memory", "fuseblk", False),
        ("/mnt/twice/memory", "tmpfs", False),
        ("/mnt/portal/memory", "fuse.portal", False),
        ("/guest/memory", "9p", True),
    ],
)
def test_the_innermost_and_last_mount_of_a_path_says_what_it_is(path, kind, is_network, tmp_path):
    """By whole names of folders, with spaces, and whatever is mounted over it."""
    found = mount_of(tmp_path.__class__(path), parse(SAMPLE))
    assert found is not None
    assert (found.kind, found.is_network) == (kind, is_network)


def test_lines_that_are_no_mounts_are_passed_over():
    assert len(parse(SAMPLE)) == 11
    assert parse("") == []
    assert mount_of(filesystems.MOUNTS, []) is None


def test_a_link_is_followed_to_where_the_files_would_be(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "there")
    found = mount_of(tmp_path / "link" / "memory", [Mount("/", "ext4"), Mount(str(tmp_path / "there"), "nfs")])
    assert found == (str(tmp_path / "there"), "nfs")


@pytest.fixture
def on_nfs(tmp_path, monkeypatch):
    """Let everything below the test's folder be on NFS."""
    (tmp_path / "mountinfo").write_text(
        f"1 0 0:1 / / rw - ext4 /dev/vda rw\n2 1 0:2 / {tmp_path}/net rw - nfs4 s:/ rw\n"
    )
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "mountinfo")
    return tmp_path / "net"


def test_a_store_on_a_network_file_system_is_refused_and_nothing_is_made(on_nfs, tmp_path):
    """Neither by opening nor by restoring."""
    for call in (
        lambda: MemoryStore.open(on_nfs / "memory", model=None),
        lambda: MemoryStore.open(on_nfs / "memory", model=None, create=False),
        lambda: restore_backup(tmp_path / "b", on_nfs / "memory"),
    ):
        with pytest.raises(mnemolog.errors.NetworkFilesystem) as caught:
            call()
        assert caught.value.kind == "nfs4"
        assert "allow_network_filesystem" in caught.value.hint
        assert filesystems.ALLOW_VARIABLE in caught.value.hint
    assert not on_nfs.exists()


def test_a_network_file_system_can_be_allowed_explicitly(on_nfs, monkeypatch):
    """By name in a program, by the environment on the command line. Only a 1 counts."""
    with MemoryStore.open(on_nfs / "memory", model=None, allow_network_filesystem=True) as store:
        store.start_session("trip")
    monkeypatch.setenv(filesystems.ALLOW_VARIABLE, "0")
    with pytest.raises(mnemolog.errors.NetworkFilesystem):
        MemoryStore.open(on_nfs / "memory", model=None)
    monkeypatch.setenv(filesystems.ALLOW_VARIABLE, "1")
    MemoryStore.open(on_nfs / "memory", model=None).close()


def test_where_the_system_does_not_tell_nothing_is_refused(folder, monkeypatch, tmp_path):
    monkeypatch.setattr(filesystems, "MOUNTS", tmp_path / "nothing")
    MemoryStore.open(folder, model=None).close()
