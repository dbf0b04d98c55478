"""Files for others to keep: there as a whole, and durable, or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mnemolog.domain import errors


@contextmanager
def new_file(path: Path, *, overwrite: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write into; it gets its name when the block is done, readable for its owner alone.

    Whoever is killed meanwhile leaves `.NAME.PID.*.part` beside it, and `path` as it was. Raises `InvalidInput` for a
    name that is taken unless `overwrite` is set, `StoreNotWritable`, `StorageFull`.
    """
    if path.exists() and not overwrite:
        raise _taken(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    with mapped_errors(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _name(temporary, path, overwrite=overwrite)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
        sync(path.absolute().parent)


def _name(temporary: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        temporary.replace(path)
        return
    try:
        path.hardlink_to(temporary)  # Refuses a name that was taken meanwhile, as a rename does not.
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:  # There are file systems without hard links.
        if path.exists():
            raise _taken(path) from None
        temporary.rename(path)


def _taken(path: Path) -> errors.InvalidInput:
    return errors.InvalidInput("file", f"{path} is there already; choose another name, or say that it may be replaced")


def sync(path: Path) -> None:
    """Make durable what a file holds that nobody has open, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn errors of the file system into `StorageFull` or `StoreNotWritable`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise errors.StorageFull(path) from error
        raise errors.StoreNotWritable(path, error.strerror or str(error)) from error
