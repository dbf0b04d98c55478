"""Checksums of closed databases. SQLite pages have none, so a flipped bit could cause a wrong answer.

The checksum is a file beside the database, its seal. Every transaction that writes removes it, and closing the store
writes it again once everything is in the main file. So a database with a seal must have exactly the sealed bytes. A
database without a seal (its process was killed, or another process has it open) is not checked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Final

import msgspec
import sqlalchemy as sa
import xxhash

from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.store_layout import CHECKSUM_PART
from mnemolog.infra.runtime.files import open_file, read_file, replace_file

SEALED_BYTES_MAX: Final = 1 << 30
"""Maximum size of a sealed database. Reading a larger one would delay opening and closing by about a second."""


class Seal(msgspec.Struct, frozen=True, kw_only=True):
    """The expected size and checksum of a database."""

    size_bytes: int
    xxh3_128: str


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(Seal)


def path_of(database: Path) -> Path:
    """Return the path of a database's seal."""
    return database.with_name(database.name + CHECKSUM_PART)


def break_seal(database: Path) -> None:
    """Remove the seal of a database. Call it under the write lock, before anything is committed."""
    path_of(database).unlink(missing_ok=True)


def why_invalid(database: Path) -> str | None:
    """Return why a database does not match its seal; None if it matches or has no seal."""
    while (seal := _read(database)) is not None:
        found = _look(database)
        if found is None or found == seal:
            return None
        if _read(database) == seal:  # Otherwise another process is writing it.
            return f"its {found.size_bytes:,} bytes are not the {seal.size_bytes:,} that were sealed when it was closed"
    return None


def seal(connection: sa.Connection, database: Path) -> bool:
    """Seal a database, unless it is sealed, large, or in use. Return whether it has a seal now.

    The connection must not be in a transaction.
    """
    if path_of(database).exists():
        return True
    if connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
        return False
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # No other connection writes until it ends.
    try:
        log = database.with_name(database.name + "-wal")
        if log.exists() and log.stat().st_size:
            return False
        found = _look(database)
        if found is None or found.size_bytes > SEALED_BYTES_MAX:
            return False
        replace_file(path_of(database), to_json(found), prefix="seal", synced=False)
        return True
    finally:
        connection.exec_driver_sql("ROLLBACK")


def _read(database: Path) -> Seal | None:
    """Return the seal; None if there is none or it is unreadable, which is harmless."""
    with suppress(OSError, *UNDECODABLE):
        return _DECODER.decode(read_file(path_of(database)))
    return None


def _look(database: Path) -> Seal | None:
    """Compute the seal of the current file; None if it cannot be read."""
    try:
        with open_file(database) as file:
            if os.fstat(file.fileno()).st_size > SEALED_BYTES_MAX:
                return Seal(size_bytes=os.fstat(file.fileno()).st_size, xxh3_128="")
            digest = file_digest(file, xxhash.xxh3_128).hexdigest()
            return Seal(size_bytes=file.tell(), xxh3_128=digest)
    except OSError:
        return None
