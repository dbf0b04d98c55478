"""Who may reach a store, and where: modes of its files, and the file systems that it may lie on."""

import os
import stat

import pytest

import mnemolog
from mnemolog import MemoryStore, restore_backup
from mnemolog.infra import filesystems
from mnemolog.infra.filesystems import Mount, mount_of, parse
from tests.support import HashEncoder


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
