"""The keys of a log in `keys.db`: the queries and the transactions of `KeysEngine`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.keys import keys_file
from mnemolog.infra.keys.key_tree import Node
from mnemolog.infra.keys.keyring import KeyErasure, StoredKeys
from mnemolog.infra.runtime.files import is_writable, sync
from mnemolog.infra.sqlite import OpenedFiles

CHECKPOINT_POLL_S: Final = 0.02


class SqliteKeys:
    """Implements `KeysEngine` on the file at `path`. Safe for many processes; not across a fork.

    Unless `read_only` is given, it is so in a folder that cannot be written.
    """

    def __init__(
        self,
        path: Path,
        *,
        log_id: str,
        files: OpenedFiles | None = None,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        read_only: bool | None = None,
    ) -> None:
        self.path = path
        self.log_id = log_id
        self._busy_timeout_s = busy_timeout_s
        self._read_only = not is_writable(path.parent) if read_only is None else read_only
        self._files = files or OpenedFiles(path.parent)
        self._engine: sa.Engine | None = None
        self._connection: sa.Connection | None = None
        """Kept open: once closed, the pool would give the driver's connection to another caller."""
        self._opened: Any = None
        """The driver's connection."""
        self._secret = b""
        self._closed = False

    def missing(self, why: str) -> errors.KeysMissing:
        """See `KeysEngine`."""
        return errors.KeysMissing(self.path, why)

    def is_there(self) -> bool:
        """See `KeysEngine`."""
        return self.path.exists()

    def secret(self) -> bytes:
        """See `KeysEngine`."""
        with self._driver():
            return self._secret

    def wrapped_with(self) -> str | None:
        """See `KeysEngine`."""
        with self._driver() as driver:
            return keys_file.wrapped_with(driver)

    def last_change(self) -> object:
        """See `KeysEngine`. Another value after any change by another process."""
        driver = self._opened
        if driver is not None:  # Before every page that is read: no more than one statement.
            try:
                return driver.execute("PRAGMA data_version").fetchone()[0]
            except sqlite.driver.dbapi2.Error:
                with self._driver():  # It was closed meanwhile, or the file is not as it was.
                    raise
        with self._driver() as driver:
            return driver.execute("PRAGMA data_version").fetchone()[0]

    def stored(self, stream: str) -> StoredKeys:
        """See `KeysEngine`."""
        # Destroyed ones last: what is destroyed in between is then found twice rather than not at all.
        with self._driver() as driver:
            nodes = keys_file.rows(
                driver,
                "SELECT series, depth, prefix, material FROM nodes WHERE stream = ?",
                (stream,),
                types=(int, int, int, bytes),
            )
            destroyed = keys_file.rows(
                driver, "SELECT series, first, last FROM destroyed WHERE stream = ?", (stream,), types=(int, int, int)
            )
        return StoredKeys([(series, Node(*rest)) for series, *rest in nodes], destroyed)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """See `KeysEngine`."""
        with self._driver() as driver:
            self._files.require_unchanged()
            driver.execute("BEGIN IMMEDIATE")
            try:
                self._secret = keys_file.identity(driver).secret
                yield
                driver.execute("COMMIT")
                self._files.require_in_place()
            except BaseException:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                raise

    def insert(self, stream: str, series: int, nodes: Sequence[Node]) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "INSERT INTO nodes (stream, series, depth, prefix, material) VALUES (?, ?, ?, ?, ?)",
            [(stream, series, *node) for node in nodes],
        )

    def delete(self, stream: str, series: int, places: Collection[tuple[int, int]]) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "DELETE FROM nodes WHERE stream = ? AND series = ? AND depth = ? AND prefix = ?",
            [(stream, series, *place) for place in places],
        )

    def note_destroyed(self, stream: str, series: int, ranges: Sequence[tuple[int, int]], request: str) -> None:
        """See `KeysEngine`."""
        self._opened.executemany(
            "INSERT OR IGNORE INTO destroyed (stream, series, first, last, request) VALUES (?, ?, ?, ?, ?)",
            [(stream, series, *leaves, request) for leaves in ranges],
        )

    def note_request(self, erasure: KeyErasure) -> None:
        """See `KeysEngine`."""
        self._opened.execute(
            "INSERT INTO requests (request, position, recorded_at, event) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (request) DO UPDATE SET position = excluded.position",
            erasure,
        )

    def rewrite(self, change: Callable[[bytes], bytes], *, wrapped_with: str | None) -> None:
        """See `KeysEngine`."""
        self._opened.create_function("changed", 1, change)
        number = keys_file.WRAPPED_FORMAT if wrapped_with else keys_file.CLEAR_FORMAT
        self._opened.execute("UPDATE keys_meta SET format = ?, secret = changed(secret)", (number,))
        self._opened.execute("ALTER TABLE nodes RENAME TO nodes_before")
        self._opened.execute(keys_file.nodes_statement(wrapped=wrapped_with is not None))
        self._opened.execute(
            "INSERT INTO nodes SELECT stream, series, depth, prefix, changed(material) FROM nodes_before"
        )
        self._opened.execute("DROP TABLE nodes_before")
        keys_file.note_wrapping(self._opened, wrapped_with)

    def note_change(self) -> None:
        """See `KeysEngine`. SQLite notes every commit."""

    def requests(self, *, last: bool = False) -> list[KeyErasure]:
        """See `KeysEngine`."""
        query = "SELECT request, position, recorded_at, event FROM requests ORDER BY number" + " DESC LIMIT 1" * last
        with self._driver() as driver:
            return [KeyErasure(*row) for row in keys_file.rows(driver, query, types=(str, int, int, bytes))]

    def has_request(self, request: str) -> bool:
        """See `KeysEngine`."""
        with self._driver() as driver:
            return driver.execute("SELECT 1 FROM requests WHERE request = ?", (request,)).fetchone() is not None

    def series(self) -> list[tuple[str, int]]:
        """See `KeysEngine`. Checks every page of the file."""
        with self._driver() as driver:
            return keys_file.series_in(driver, self.path)

    def wipe(self) -> bool:
        """See `KeysEngine`. The write-ahead log is emptied as well."""
        with self._driver() as driver:
            self._files.require_unchanged()
            if not self._emptied(driver):  # Rewriting would only make the write-ahead log larger, each time.
                return False
            # Not by `secure_delete` alone: SQLite may have left copies of rows that it moved from page to page.
            driver.execute("VACUUM")
            return self._emptied(driver)

    def _emptied(self, driver: Any) -> bool:
        """Empty the write-ahead log. False if others read from it for too long."""
        end = time.monotonic() + self._busy_timeout_s
        while driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() >= end:
                return False
            time.sleep(CHECKPOINT_POLL_S)
        return True

    def copy_to(self, target: Path) -> None:
        """See `KeysEngine`."""
        if not self.is_there():
            raise self.missing("it does not exist")
        sqlite.copy_database(self.path, target)

    def replace(self, copy: Path) -> None:
        """See `KeysEngine`. The file gets its name. It must not be open yet."""
        for part in keys_file.PARTS[1:]:
            self.path.with_name(self.path.name + part).unlink(missing_ok=True)
        copy.rename(self.path)
        sync(self.path.parent)

    def another(self, *, busy_timeout_s: float | None = None) -> SqliteKeys:
        """See `KeysEngine`."""
        return SqliteKeys(
            self.path,
            log_id=self.log_id,
            files=self._files,
            busy_timeout_s=self._busy_timeout_s if busy_timeout_s is None else busy_timeout_s,
            read_only=self._read_only,
        )

    def close(self) -> None:
        """See `KeysEngine`."""
        self._closed = True
        if self._connection is not None and self._engine is not None:
            self._connection.close()
            self._files.close(self.path.name, self._engine)
        self._opened = self._connection = None

    @contextmanager
    def _driver(self) -> Iterator[Any]:
        """Give the connection, opened where it is not."""
        if self._closed:
            raise errors.StoreClosed
        if self._opened is None:
            self._open()
        with keys_file.mapped_errors(self.path, busy_timeout_s=self._busy_timeout_s):
            yield self._opened

    def _open(self) -> None:
        """Open the keys. Raises `KeysMissing` if they are missing, damaged or of another log."""
        if not self.path.exists():
            raise self.missing("it does not exist")
        if not os.access(self.path, os.R_OK):
            raise self.missing("this user may not read it")
        if not self.path.stat().st_size:  # SQLite would make it a database, and wait for connections to what it was.
            raise self.missing("it is empty")
        engine = sqlite.create_engine(
            self.path,
            synchronous="FULL",
            busy_timeout_s=self._busy_timeout_s,
            read_only=self._read_only,
            files=None if self._read_only else self._files,
        )
        connection: sa.Connection | None = None
        try:
            with keys_file.mapped_errors(self.path, busy_timeout_s=self._busy_timeout_s):
                connection = engine.connect()
                driver: Any = connection.connection.driver_connection
                if not keys_file.has_tables(driver):
                    raise self.missing("it is empty")
                if (foreign := keys_file.foreign_in(driver)) is not None:
                    raise self.missing(f"it cannot be used: {foreign}")
                found = keys_file.identity(driver)
                if found.log_id != self.log_id:
                    raise self.missing(f"it belongs to log {found.log_id}, this one is {self.log_id}")
        except BaseException:
            if connection is not None:
                connection.close()
            engine.dispose()
            raise
        self._engine = engine
        self._connection = connection
        self._opened = driver
        self._secret = found.secret
