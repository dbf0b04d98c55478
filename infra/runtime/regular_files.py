"""Open files from untrusted sources: a store, a backup or an export can come from another person.

Only regular files are opened. A pipe would block its reader, a device may have side effects, and a symbolic link leads
out of its folder. A file that is read as a whole has a size limit. Errors are `OSError`, so that each caller maps them
as it maps all others.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Final

DOCUMENT_BYTES_MAX: Final = 64 << 20
"""The most bytes of a small file, such as a manifest or a note, that is read as a whole."""

_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_file(path: Path, *, follow: bool = False, within: Path | None = None) -> BufferedReader:
    """Open a regular file for reading.

    `follow` also opens what a symbolic link leads to, for files that the user has named. With `within`, a folder that
    the path is below, none of the folders in between may be a symbolic link. Raises `OSError`.
    """
    return os.fdopen(open_descriptor(path, os.O_RDONLY, follow=follow, within=within), "rb")


def read_file(
    path: Path, *, size_max: int = DOCUMENT_BYTES_MAX, follow: bool = False, within: Path | None = None
) -> bytes:
    """Return the content of a regular file of at most `size_max` bytes. Otherwise as `open_file`. Raises `OSError`."""
    with open_file(path, follow=follow, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= size_max else b""  # `read` allocates all that it is asked for.
        if len(data) > size:
            data += file.read(size_max + 1 - len(data))
    if size > size_max or len(data) > size_max:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, {size_max:,} are allowed", str(path))
    return data


def open_descriptor(
    path: Path, flags: int, *, mode: int = 0o600, follow: bool = False, within: Path | None = None
) -> int:
    """Return a descriptor of a regular file, opened with these flags. Otherwise as `open_file`. Raises `OSError`."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK  # Not to wait for the other end of a pipe.
    if not follow:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, mode) if within is None else _open_below(within, path, flags, mode)
    except OSError as error:
        raise _explained(error, path, follow=follow) from error
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind != stat.S_IFREG:
            raise _refused(path, kind, stat.S_IFREG)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_file(path: Path, *, kind: int = stat.S_IFREG) -> None:
    """Raise `OSError` if `path` is anything but a regular file, or another `kind`. It may be missing."""
    try:
        found = stat.S_IFMT(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if found != kind:
        raise _refused(path, found, kind)


def require_folder(path: Path) -> None:
    """Raise `OSError` if `path` is anything but a folder, such as a symbolic link to one. It may be missing."""
    require_file(path, kind=stat.S_IFDIR)


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder, and no symbolic link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _open_below(folder: Path, path: Path, flags: int, mode: int) -> int:
    """Open a file folder by folder, from `folder` on, so that no link on the way is followed."""
    *folders, name = path.relative_to(folder).parts
    if ".." in folders or name == "..":
        raise OSError(errno.EINVAL, "it is outside of its folder", str(path))
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in folders:
            below = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(name, flags, mode, dir_fd=at)
    finally:
        os.close(at)


def _refused(path: Path, kind: int, wanted: int) -> OSError:
    why = f"it is {_KINDS.get(kind, 'a file')}, not {_KINDS.get(wanted, 'a file')}"
    return OSError(errno.EINVAL, why, str(path))


def _explained(error: OSError, path: Path, *, follow: bool) -> OSError:
    """Return the error in words that say what is wrong with the file."""
    try:
        kind = stat.S_IFMT((path.stat if follow else path.lstat)().st_mode)
    except OSError:
        kind = 0
    if kind in _KINDS and not isinstance(error, PermissionError):
        return _refused(path, kind, stat.S_IFREG)
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return OSError(error.errno, "a folder on its path is a symbolic link or no folder", str(path))
    return error
