"""Copy a database that may be in use, with SQLite's backup instead of a file copy.

Opening and closing the file of a live database would drop this process's locks on it, and its newest commits may be
only in the write-ahead log.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.runtime.atomic_files import sync
from mnemolog.infra.runtime.paths import has_room, is_writable

PAGES_PER_STEP: Final = 512
"""Pages copied between two calls of `moved`, which may stop the copy: 2 MiB of 4 KiB pages."""


def copy_database(source: Path, target: Path, *, moved: Callable[[int], None] = lambda _: None) -> None:
    """Copy the database `source`, as it is now, into the new file `target`, and make that durable.

    `moved` is called after every step with the bytes copied in it, and may raise to stop. Writers are not blocked: the
    copy is of one moment, seen through one read transaction. Without it, every commit of another process would restart
    the copy, and under load it would never end; with it, the write-ahead log of the source cannot be emptied until the
    copy ends. Raises `MnemologError` for the source, and `OSError` for the target.
    """
    _make_new(target)
    try:
        with sqlite.mapped_errors(source):
            may_write = is_writable(source.parent) and has_room(source.parent)
            engine = sqlite.create_engine(source, synchronous="NORMAL", read_only=not may_write)
            try:
                with engine.connect() as connection:
                    _copy(connection.connection.driver_connection, target, moved)
            finally:
                engine.dispose()
        sqlite.clear_read_only_flag(target)
    except errors.StorageFull as error:  # Only the copy is written.
        raise errors.StorageFull(target) from error
    except errors.LogWriteFailed as error:
        raise errors.StoreNotWritable(target, str(error.__cause__)) from error
    sync(target)


def _copy(source: Any, target: Path, moved: Callable[[int], None]) -> None:
    page_bytes = source.execute("PRAGMA page_size").fetchone()[0]
    left: list[int] = []

    def step(_: int, remaining: int, total: int) -> None:
        before = left[-1] if left else total
        left.append(remaining)
        moved((before - remaining) * page_bytes)

    copy = sqlite.driver.connect(target)
    try:
        copy.execute("PRAGMA journal_mode=OFF").fetchone()  # An interrupted copy is deleted as a whole.
        copy.execute("PRAGMA synchronous=OFF").fetchone()  # Synced when it is whole.
        source.execute("BEGIN")
        try:
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # From here on it sees this moment.
            source.backup(copy, pages=PAGES_PER_STEP, progress=step)
        finally:
            source.execute("ROLLBACK")
    finally:
        copy.close()


def _make_new(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, sqlite.FILE_MODE))
