"""Write files and folders atomically: a crash leaves the old state or the new one, never a mix.

Everything is written under a temporary name, made durable and then renamed. Only its owner may read it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import filelock

from mnemolog.domain import errors
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.infra.runtime.regular_files import is_folder, open_descriptor

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""The content is private, whatever the umask of the program allows."""

LOCK_POLL_S: Final = 0.01
_REMOVED: Final = "removed"
_SCRATCH: Final = "mnemolog"
_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)


def temporary_name(prefix: str) -> str:
    """Return a name that no other process picks and that readers skip."""
    return f".{prefix}.{os.getpid()}.{secrets.token_hex(4)}"


# Files


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write into. It becomes `path`, durably, when the block ends.

    A process that is killed meanwhile leaves `.NAME.PID.*.part` beside it, and `path` as it was. Raises `InvalidInput`
    if the name is taken, unless `replace` is set; `StoreNotWritable`, `StorageFull`, `OutOfDescriptors`.
    """
    if path.exists() and not replace:
        raise _taken(path)
    temporary = path.with_name(f"{temporary_name(path.name)}.part")
    with mapped_to_store_errors(path):
        try:
            with open(temporary, "xb", opener=_open_private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _rename(temporary, path, replace=replace)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        sync(path.absolute().parent)


def replace_file(path: Path, data: bytes, *, prefix: str, synced: bool) -> None:
    """Write a file as a whole, in place of the one of that name. It is durable on return if `synced`."""
    temporary = path.with_name(temporary_name(prefix))
    try:
        (write_synced if synced else write_unsynced)(temporary, data)
        temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)
    if synced:
        sync(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and make its content durable."""
    write_pieces(path, [data])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> int:
    """Write a new file piece by piece and make its content durable. Return its size in bytes."""
    size = 0
    with open(path, "xb", opener=_open_private) as file:
        for piece in pieces:
            size += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return size


def write_unsynced(path: Path, data: bytes) -> None:
    """Write a file, new or over an old one, that may be lost in a power cut."""
    with open(path, "wb", opener=_open_private) as file:
        file.write(data)


def lock_file(path: Path, *, wait_s: float = -1) -> filelock.BaseFileLock:
    """Return a lock on a file, not yet taken. Taking it waits at most `wait_s` seconds, -1 without limit.

    Each has a descriptor of its own, so that threads exclude one another as well.
    """
    return filelock.FileLock(path, wait_s, FILE_MODE, poll_interval=LOCK_POLL_S, thread_local=False)


def sync(path: Path) -> None:
    """Make durable the content of a closed file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_private(path: str, flags: int) -> int:
    return open_descriptor(Path(path), flags, mode=FILE_MODE)


def _rename(temporary: Path, path: Path, *, replace: bool) -> None:
    if replace:
        temporary.replace(path)
        return
    try:
        path.hardlink_to(temporary)  # Unlike a rename it refuses a name that was taken meanwhile.
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:  # Some file systems have no hard links.
        if path.exists():
            raise _taken(path) from None
        temporary.rename(path)


def _taken(path: Path) -> errors.InvalidInput:
    return errors.InvalidInput("file", f"{path} exists; choose another name, or replace it (replace=True)")


# Folders


def make_folder(folder: Path, *, root: str = "") -> None:
    """Make a folder and its missing parents. An existing one stays as it is.

    The parent of a folder named `root` has to exist: who deletes a store is not to find parts of it there again.
    """
    if folder.is_dir():
        return
    if folder.name != root:
        make_folder(folder.parent, root=root)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


@contextmanager
def temporary_folder(prefix: str, final: Path) -> Iterator[Path]:
    """Give a new folder beside `final`, to build it in. If it is not published when the block ends, it is deleted.

    Folders of this prefix that killed processes left there are deleted, because they hold content. Raises
    `StoreNotWritable`, `StorageFull`, `OutOfDescriptors`.
    """
    temporary = final.absolute().with_name(temporary_name(prefix))
    with mapped_to_store_errors(final):
        sweep(temporary.parent, prefix)
        spare = os.open(os.devnull, os.O_RDONLY)  # Deleting takes a descriptor: by then none may be left.
        lock = None
        try:
            make_folder(temporary)
            lock = _locked(temporary)
            yield temporary
        finally:
            os.close(spare)
            _delete(temporary)
            if lock is not None:
                os.close(lock)


class ScratchFolder:
    """A folder that exists as long as this object, outside of every store."""

    def __init__(self) -> None:
        self.path = Path(tempfile.gettempdir(), temporary_name(_SCRATCH))
        self.path.mkdir(mode=FOLDER_MODE)
        # Not a TemporaryDirectory: the child of a fork would delete the folder of its parent.
        self.close = weakref.finalize(self, _delete_own, self.path, _locked(self.path), os.getpid())
        """Deletes the folder."""


def _delete_own(folder: Path, lock: int | None, made_by: int) -> None:
    if os.getpid() == made_by:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def sweep_scratch() -> None:
    """Delete the scratch folders of processes that were killed. What cannot be deleted is left to the next sweep."""
    with suppress(OSError):
        sweep(Path(tempfile.gettempdir()), _SCRATCH)


def sweep(folder: Path, prefix: str) -> None:
    """Delete this user's temporary folders in `folder` whose process was killed. A running one has its own locked."""
    name = re.compile(rf"\.{re.escape(prefix)}\.\d+\.[0-9a-f]{{8}}")
    with suppress(FileNotFoundError), os.scandir(folder) as entries:  # `glob` is slow where others have thousands.
        for entry in entries:
            if name.fullmatch(entry.name) and (lock := _locked(folder / entry.name)) is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return a descriptor with a lock on a folder of this user; None if it is locked, or its disk has no locks."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_uid == os.geteuid():
                return descriptor
        os.close(descriptor)
    return None


def publish_folder(temporary: Path, final: Path, *, replace: bool = False) -> None:
    """Give a finished folder, whose files are durable, its final name, and make that durable.

    A name is free if nothing or an empty folder has it; `replace` deletes a folder that has it. Raises
    `FileExistsError` for a name that is taken, and leaves everything as it was.
    """
    for path in sorted(temporary.rglob("*"), reverse=True):
        if path.is_dir():
            sync(path)
    sync(temporary)
    replaced = None
    if replace and final.exists():
        replaced = final.with_name(temporary_name("replaced"))
        final.rename(replaced)
    try:
        temporary.rename(final)  # Allowed over an empty folder, but over nothing else.
    except OSError as error:
        if replaced is not None:
            with suppress(OSError):
                replaced.rename(final)
        if error.errno not in _TAKEN:
            raise
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from error
    sync(final.parent)
    if replaced is not None:
        _delete(replaced)


def remove_folder(folder: Path) -> None:
    """Delete a folder that was replaced. It is renamed first, so that no reader sees half of it.

    What cannot be deleted now is left to `remove_leftovers`.
    """
    doomed = folder.with_name(temporary_name(_REMOVED))
    with suppress(OSError):
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def leftovers(folder: Path, prefix: str) -> list[Path]:
    """Return the temporary files and folders of writers of `folder`, running or interrupted."""
    return [path for kind in (prefix, _REMOVED) for path in folder.glob(f".{kind}.*")]


def remove_leftovers(folder: Path, prefix: str) -> None:
    """Delete what interrupted writers of `folder` left. The caller must be its only writer."""
    for path in leftovers(folder, prefix):
        shutil.rmtree(path, ignore_errors=True)


def _delete(folder: Path) -> None:
    """Delete a folder as far as possible. Unlike `shutil.rmtree` it needs no more than one free descriptor."""
    with suppress(OSError):
        if not is_folder(folder):  # A symbolic link: what it leads to is not ours.
            folder.unlink()
        for path in sorted(folder.rglob("*"), reverse=True):
            if is_folder(path):
                path.rmdir()
            else:
                path.unlink()
    with suppress(OSError):
        folder.rmdir()
