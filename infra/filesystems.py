"""Detect network file systems, where SQLite's locks and shared memory do not work.

"WAL does not work over a network filesystem" (https://www.sqlite.org/wal.html): two machines that write one log there
damage it, and nothing says so at the time.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors

ALLOW_VARIABLE: Final = "MNEMOLOG_ALLOW_NETWORK_FILESYSTEM"
MOUNTS: Final = Path("/proc/self/mountinfo")

NETWORK: Final = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gfs", "gfs2", "gpfs", "lustre"),
        *("ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "pvfs2", "smb", "smb2", "smb3", "smbfs", "vboxsf", "vmhgfs"),
    )
)
NETWORK_FUSE: Final = frozenset(
    (
        *("afpfs", "beegfs", "ceph", "cifs", "curlftpfs", "davfs", "davfs2", "gcsfuse", "glusterfs", "goofys", "hdfs"),
        *("juicefs", "mfs", "moosefs", "nfs", "rclone", "s3fs", "seaweedfs", "smbnetfs", "sshfs", "vmhgfs-fuse"),
    )
)
"""What stands behind `fuse.` in the name of the type. Other FUSE file systems are of this machine, or not known."""

_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Where a file system is mounted, and its type."""

    point: str
    kind: str

    @property
    def is_network(self) -> bool:
        """Whether several machines may have mounted it."""
        family, _, name = self.kind.partition(".")
        return (name in NETWORK_FUSE) if family == "fuse" else self.kind in NETWORK


def parse(text: str) -> list[Mount]:
    """Return the mounts listed in `/proc/self/mountinfo`, in its order. Invalid lines are skipped.

    A line is `36 35 98:0 /root /mnt rw,noatime master:1 - ext3 /dev/root rw`: any number of fields before the dash.
    """
    found = []
    for line in text.splitlines():
        before, dash, behind = line.partition(" - ")
        fields = before.split(" ")
        if dash and len(fields) >= 5 and behind:
            found.append(Mount(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]), behind.split(" ")[0]))
    return found


def mount_of(path: Path, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path is on: the innermost; of several at one place the last, which hides the others."""
    place = Path(os.path.realpath(path))
    return max(
        (mount for mount in reversed(mounts) if place.is_relative_to(mount.point)),
        key=lambda mount: len(mount.point),
        default=None,
    )


def mounts_now() -> list[Mount]:
    """Return the mounts of this machine; none on a system without `/proc/self/mountinfo`."""
    try:
        return parse(MOUNTS.read_text(errors="surrogateescape"))
    except OSError:
        return []


def require_local(folder: Path, *, allowed: bool = False) -> None:
    """Raise `NetworkFilesystem` if a folder, which need not exist yet, is on a network file system.

    Nothing is refused if that is `allowed`, by the argument or by the environment, or on a system that lists no mounts.
    """
    if allowed or os.environ.get(ALLOW_VARIABLE) == "1":
        return
    mount = mount_of(folder, mounts_now())
    if mount is not None and mount.is_network:
        raise errors.NetworkFilesystem(folder, mount.kind)
