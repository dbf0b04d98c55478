"""Snapshots: saved states of sessions, so that a long history need not be folded from its beginning.

Disposable like every projection. A snapshot is used only if it is undamaged, in the current format, and of this log and
history (the log's digest at its position); otherwise it is ignored.
"""

import struct
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.session import SessionState, decode_state, encode_state
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.stream_fold import FoldedState
from mnemolog.domain.values import Position, Version
from mnemolog.infra.runtime import fork_guard
from mnemolog.projections.ports import StoreLog
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import Schema, open_or_rebuild

SNAPSHOTS_KEPT_MAX: Final = 8
"""Maximum snapshots per session. The oldest are deleted first."""

SNAPSHOT_FORMAT: Final = 2
"""Increase it with every change of the meaning of a row, including changes of `STATE_FORMAT`."""

_EPOCH: Final = struct.Struct(">q")
"""The prefix of a stored state: the forgetting epoch of its fold. It may contain content that was forgotten since."""

_NOT_ANSWERING: Final = (
    errors.ProjectionError,
    errors.StoreError,
    errors.StorageFull,
    errors.InvalidInput,
    OSError,
    struct.error,
)
"""Errors of a file that is damaged, missing, full or not writable. Callers that read a state never see them."""

METADATA: Final = sa.MetaData()

SNAPSHOTS: Final = sa.Table(
    "snapshots",
    METADATA,
    sa.Column("stream", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("log_id", sa.Text, nullable=False),
    sa.Column("digest", sa.BLOB, nullable=False),
    sa.Column("format", sa.Integer, nullable=False),
    sa.Column("state", sa.BLOB, nullable=False),
    sa.Column("checksum", sa.BLOB, nullable=False),
    sqlite_strict=True,
)


class SnapshotStore:
    """Keeps snapshots in a separate database, opened on first use and created for the first snapshot."""

    def __init__(self, layout: StoreLayout, log: StoreLog) -> None:
        self._layout = layout
        self._path = layout.snapshots
        self._log = log
        self._lock = fork_guard.lock()
        self._opened: ProjectionDatabase | None = None

    def close(self) -> None:
        """Close the file. The log is closed before: then nothing is looked up or saved."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
            self._opened = None

    def _database(self) -> ProjectionDatabase:
        with self._lock:
            if self._opened is None:
                self._opened = open_or_rebuild(
                    self._path,
                    _with_table,
                    self._layout.quarantine,
                    schema=Schema(METADATA.create_all),
                    busy_timeout_s=self._log.busy_timeout_s,
                )
            return self._opened

    def find(self, stream: str, position: Position | None) -> FoldedState[SessionState] | None:
        """Return the newest usable snapshot at or before `position`."""
        query = sa.select(SNAPSHOTS).where(
            SNAPSHOTS.c.stream == stream, SNAPSHOTS.c.log_id == self._log.log_id, SNAPSHOTS.c.format == SNAPSHOT_FORMAT
        )
        if position is not None:
            query = query.where(SNAPSHOTS.c.position <= position)
        try:
            if self._opened is None and not self._path.exists():
                return None
            epoch = self._log.epoch()
            with self._database().reading() as connection:
                # One by one: the first is nearly always usable, and each may be large.
                for row in connection.execute(query.order_by(SNAPSHOTS.c.version.desc())):
                    if row.checksum == checksum(row._asdict()) and self._is_of_this_history(row):
                        (of,) = _EPOCH.unpack_from(row.state)
                        if of == epoch:
                            state = decode_state(row.state[_EPOCH.size :])
                            return FoldedState(Version(row.version), Position(row.position), state, epoch)
        except _NOT_ANSWERING:
            pass
        return None

    def _is_of_this_history(self, row: sa.Row[Any]) -> bool:
        same = row.log_id == self._log.log_id and row.format == SNAPSHOT_FORMAT
        return same and bool(self._log.digest_at(Position(row.position)) == row.digest)

    def save(self, stream: str, folded: FoldedState[SessionState]) -> None:
        """Save a snapshot of a committed state. Errors are ignored, because the state can be folded again."""
        digest = self._log.digest_at(folded.position)
        if folded.state is None or digest is None:
            return
        state = _EPOCH.pack(folded.epoch) + encode_state(folded.state)
        row: dict[str, Any] = {
            "stream": stream,
            "version": folded.version,
            "position": folded.position,
            "log_id": self._log.log_id,
            "digest": digest,
            "format": SNAPSHOT_FORMAT,
            "state": state,
        }
        row["checksum"] = checksum(row)
        newest = (
            sa.select(SNAPSHOTS.c.version)
            .where(SNAPSHOTS.c.stream == stream)
            .order_by(SNAPSHOTS.c.version.desc())
            .limit(SNAPSHOTS_KEPT_MAX)
        )
        of_stream = SNAPSHOTS.c.stream == stream
        tags = sa.select(*(SNAPSHOTS.c[name] for name in ("version", "position", "log_id", "digest", "format")))
        try:
            with self._database().writing() as connection:
                # Checked under the write lock: forgetting raises the epoch, then empties this table under the lock.
                if self._log.epoch() != folded.epoch:
                    return
                # Snapshots of a lost history may have higher versions, and would displace ours.
                foreign = [
                    row.version
                    for row in connection.execute(tags.where(of_stream))
                    if not self._is_of_this_history(row)
                ]
                connection.execute(SNAPSHOTS.delete().where(of_stream, SNAPSHOTS.c.version.in_(foreign)))
                connection.execute(SNAPSHOTS.insert().prefix_with("OR REPLACE"), row)
                connection.execute(SNAPSHOTS.delete().where(of_stream, SNAPSHOTS.c.version.not_in(newest)))
        except _NOT_ANSWERING:
            return


def _with_table(database: ProjectionDatabase) -> ProjectionDatabase:
    with database.writing() as connection:
        METADATA.create_all(connection)
    return database


def is_whole(row: Mapping[str, Any]) -> bool:
    """Whether a row matches its checksum. One that does not is not used."""
    return bool(row["checksum"] == checksum(row))


def checksum(row: Mapping[str, Any]) -> bytes:
    """Return the SHA-256 of a whole row. It covers version and stream, because a mix-up is as wrong as damage."""
    parts = [row[column.name] for column in SNAPSHOTS.columns if column.name != "checksum"]
    return sha256(to_msgpack(parts)).digest()
