"""Paths as callers give them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mnemolog.domain.errors import InvalidInput

ROOM_MIN_BYTES: Final = 1 << 18
"""Three databases with 32 KiB of shared memory each, and as much again."""


def local_path(field: str, given: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded. Raises `InvalidInput` for what is no path or has an unknown `~name`."""
    if not isinstance(given, str | os.PathLike) or given == "":
        raise InvalidInput(field, f"expected a path, got {given!r}")
    if str(given).startswith((":memory:", "sqlite:")):
        raise InvalidInput(
            field, f"{str(given)!r} is no path: a store is a folder; `tempfile.mkdtemp()` makes one for a test"
        )
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise InvalidInput(field, f"{str(given)!r}: {error}") from error


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
