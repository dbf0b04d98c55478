"""Open the file of a log, or create it together with its keys."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.position import Clock, Micros
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra import sqlite
from mnemolog.infra.keys import keys_file
from mnemolog.infra.log.engine import LOG_FORMAT, PLAIN_FORMAT, LogIdentity, StagedRow
from mnemolog.infra.log.sqlite.schema import APPLICATION_ID, INSERT_EVENTS, METADATA, create_schema
from mnemolog.infra.runtime.files import as_store_error, make_folder, sync

LOG_FILE: Final = "log.db"


def find_or_create(
    folder: Path,
    *,
    clock: Clock,
    create: bool,
    encrypt: bool | None,
    identity: LogIdentity | None = None,
    read_only: bool = False,
) -> LogIdentity:
    """Return the identity of the log in `folder`, created where there is none and `create` is set.

    With `identity` the new log is a copy of the log that has it, without its keys. With `read_only` no file is
    written. A new log is encrypted unless `encrypt` is False. Raises `StoreNotFound`, `NotAStore`,
    `StoreNotWritable`, `FormatTooNew`, and the driver's errors.
    """
    found = _find(folder, read_only=read_only)
    if found is None:
        found = _create(
            folder, clock=clock, create=create and not read_only, encrypt=encrypt is not False, identity=identity
        )
    return found


def _find(folder: Path, *, read_only: bool = False) -> LogIdentity | None:
    """Return the identity of the log in `folder`, or None where a new one may be created.

    Another process may create the log between two steps of a look, so a folder that is refused is looked at again.
    """
    try:
        return _look(folder, read_only=read_only)
    except (errors.NotAStore, errors.LogDamaged):
        if not (folder / LOG_FILE).exists():
            raise
        return _look(folder, read_only=read_only)


def _look(folder: Path, *, read_only: bool) -> LogIdentity | None:
    """Return what `_find` does, as one look finds it.

    Reads through a connection that changes nothing: the file may be another program's database.
    """
    path = folder / LOG_FILE
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise errors.NotAStore(folder, "it is a file; a store is a folder")
    if not path.exists():
        _refuse_lost(folder, "is missing")
        if {entry.name for entry in folder.iterdir()} - {keys_file.KEYS_FILE + part for part in keys_file.PARTS}:
            raise errors.NotAStore(folder, f"it holds files, but no {LOG_FILE}")
        return None
    if not path.stat().st_size:  # Not opened: SQLite deletes the write-ahead log of an empty file.
        _refuse_lost(folder, "is empty")
    connection = sqlite.connect_read_only(path) if read_only else sqlite.driver.connect(path)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        application_id = connection.execute("PRAGMA application_id").fetchone()[0]
        if not tables and application_id == 0:
            _refuse_lost(folder, "is empty")
            return None  # A creation that was killed before its commit.
        if application_id != APPLICATION_ID or "log" not in tables:
            why = "is the database of another program"
            _refuse_lost(folder, why)
            raise errors.NotAStore(folder, f"{LOG_FILE} {why}")
        if (foreign := sqlite.foreign_in_schema(connection, _schema(), triggers=True)) is not None:
            raise errors.LogDamaged(f"{path}: {foreign}")
        row = connection.execute("SELECT log_id, format, created_at FROM log").fetchone()
    except sqlite.driver.dbapi2.DatabaseError as error:
        if "not a database" in str(error):
            why = "is not a SQLite database"
            _refuse_lost(folder, why)
            raise errors.NotAStore(folder, f"{LOG_FILE} {why}") from error
        raise
    finally:
        connection.close()
    if row is None or [type(value) for value in row] != [str, int, int]:
        raise errors.LogDamaged(f"{path}: the log has lost its identity")
    if row[1] > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=row[1], supported=LOG_FORMAT)
    return LogIdentity(row[0], row[1], Micros(row[2]))


@cache
def _schema() -> Mapping[str, str]:
    """The statements of the tables. Missing indexes and triggers are for `verify` to find."""
    found = sqlite.schema_of(METADATA.create_all)
    return {name: found[name] for name in METADATA.tables}


def _refuse_lost(folder: Path, why: str) -> None:
    """Raise `LogDamaged` for a folder that was a store: it has files that depend on a log, but no log."""
    layout = StoreLayout(folder)
    derived = (layout.views, layout.embeddings, layout.snapshots, layout.vectors, layout.quarantine)
    left = next((path for path in derived if path.exists()), layout.keys)
    if left != layout.keys or keys_file.are_in_use(folder):
        raise errors.LogDamaged(f"{folder} was a store: it has {left.relative_to(folder)}, but its {LOG_FILE} {why}")


def _create(folder: Path, *, clock: Clock, create: bool, encrypt: bool, identity: LogIdentity | None) -> LogIdentity:
    if not create:
        raise errors.StoreNotFound(folder)
    if identity is not None and identity.log_format > LOG_FORMAT:
        raise errors.FormatTooNew(folder, found=identity.log_format, supported=LOG_FORMAT)
    try:
        make_folder(folder)
    except OSError as error:
        raise as_store_error(error, folder) from error
    made = identity or LogIdentity(secrets.token_hex(16), PLAIN_FORMAT, clock.now())
    if encrypt and identity is None:
        # The keys first, durably: a log without its keys could never be read.
        made = LogIdentity(keys_file.create(folder, created_at=made.created_at), LOG_FORMAT, made.created_at)
        _sync_names(folder)
    with sqlite.transaction_on(folder / LOG_FILE, create=True) as connection:
        if not sa.inspect(connection).has_table("log"):  # Another process may have created it meanwhile.
            create_schema(connection, **made._asdict())
    _sync_names(folder)
    found = _find(folder)
    if found is None:
        raise errors.StoreNotWritable(folder, "the log was not created")
    return found


def write_copy(path: Path, identity: LogIdentity, pages: Iterable[Sequence[StagedRow]]) -> None:
    """Write the events of another database into a new file of a log, durably. Raises the driver's errors."""
    with sqlite.transaction_on(path, create=True) as connection:
        driver: Any = connection.connection.driver_connection
        create_schema(connection, **identity._asdict())
        for rows in pages:
            driver.executemany(INSERT_EVENTS[1], rows)
    sync(path.absolute().parent)


def _sync_names(folder: Path) -> None:
    """Make the new file's name durable, as its content already is."""
    sync(folder)
    sync(folder.absolute().parent)
