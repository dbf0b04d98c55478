"""Map errors of the operating system to mnemolog's errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mnemolog.domain import errors

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
