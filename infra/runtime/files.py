"""Files: open those from untrusted sources, write atomically, and map the errors of the operating system.

A store, a backup or an export can come from another person, so only regular files are opened. A pipe would block its
reader, a device may have side effects, and a symbolic link leads out of its folder. A file that is read as a whole has
a size limit. Errors of reading are `OSError`, so that each caller maps them as it maps all others.

Files and folders are written under a temporary name, made durable and then renamed: a crash leaves the old state or the
new one, never a mix. Only their owner may read them.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

import filelock

from mnemolog.domain import errors

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
    return OSError(errno.EINVAL, f"it is {_KINDS.get(kind, 'a file')}, not {_KINDS.get(wanted, 'a file')}", str(path))


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


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)


@contextmanager
def mapped_to_store_errors(path: Path, *, access: str = "write to") -> Iterator[None]:
    """Raise `StorageFull`, `OutOfDescriptors` or `StoreNotWritable` for `path` instead of an `OSError`."""
    try:
        yield
    except OSError as error:
        raise as_store_error(error, path, access=access) from error


@contextmanager
def mapped_to_projection_errors(path: Path) -> Iterator[None]:
    """Raise `StorageFull` or `ProjectionUnreadable` for `path` instead of an `OSError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise errors.StorageFull(path) from error
        raise errors.ProjectionUnreadable(path, str(error)) from error


def as_store_error(error: OSError, path: Path, *, access: str = "write to") -> errors.MnemologError:
    """Return what `error` means to a caller that writes to `path`, or that has another `access` to it."""
    if error.errno in _NO_SPACE:
        return errors.StorageFull(path)
    if error.errno in _NO_DESCRIPTOR:
        return errors.OutOfDescriptors(path)
    return errors.StoreNotWritable(path, _why(error), access=access)


def _why(error: OSError) -> str:
    """Return the cause in words, with the file it is about unless that is a temporary one."""
    why = error.strerror or str(error)
    name = error.filename
    return why if not isinstance(name, str) or Path(name).name.startswith(".") else f"{why}: {name}"


def are_descriptors_exhausted() -> bool:
    """Whether this process can open no further file now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _NO_DESCRIPTOR
    return False


ROOM_MIN_BYTES: Final = 1 << 18
"""Three databases with 32 KiB of shared memory each, and as much again."""


def local_path(field: str, given: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded. Raises `InvalidInput` for what is no path or has an unknown `~name`."""
    if not isinstance(given, str | os.PathLike) or given == "":
        raise errors.InvalidInput(field, f"expected a path, got {given!r}")
    if str(given).startswith((":memory:", "sqlite:")):
        raise errors.InvalidInput(
            field, f"{str(given)!r} is no path: a store is a folder; `tempfile.mkdtemp()` makes one for a test"
        )
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise errors.InvalidInput(field, f"{str(given)!r}: {error}") from error


def is_writable(folder: Path) -> bool:
    """Whether files can be created in a folder. False on a read-only file system, for the superuser as well."""
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def has_room(folder: Path) -> bool:
    """Whether SQLite finds room for its shared memory files, without which it cannot write. True where none tells."""
    try:
        return shutil.disk_usage(folder).free >= ROOM_MIN_BYTES
    except OSError:
        return True


def is_readable(path: Path) -> bool:
    """Whether this user may read a file. False if there is none."""
    return os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)


def local_paths(field: str, given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Return one path or several, with `~` expanded. Raises `InvalidInput`."""
    several = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    return [local_path(field, path) for path in several]


FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
"""The content is private, whatever the umask of the program allows."""

LOCK_POLL_S: Final = 0.01
_REMOVED: Final = "removed"
_SCRATCH: Final = "mnemolog"


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


def file_to_write(target: Path | BinaryIO, *, replace: bool) -> AbstractContextManager[BinaryIO]:
    """Give a new file to write into, as `new_file` does, or one that is open and stays so."""
    return new_file(target, replace=replace) if isinstance(target, Path) else nullcontext(target)


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
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
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


def remove(path: Path) -> None:
    """Delete a file, a symbolic link or a folder with all that is in it, if it exists. Raises `OSError`."""
    if is_folder(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


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
