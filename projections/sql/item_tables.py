"""The items of all namespaces, in tables."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.items import SEPARATOR, ItemDeleted, ItemPut, ItemTouched, namespace_of
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.sql.database import SqlProjection, fetch

FILE: Final = "items.db"

_METADATA: Final = sa.MetaData()
sa.Table(
    "items",
    _METADATA,
    sa.Column("namespace", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.BLOB, nullable=False),
    sa.Column("paths", sa.BLOB),
    sa.Column("ttl_s", sa.REAL),
    sa.Column("expires_at", sa.Integer),
    sa.Column("created_at", sa.Integer, nullable=False),
    sa.Column("updated_at", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Index("items_by_position", "position"),
    sa.Index("items_by_expiry", "expires_at", sqlite_where=sa.text("expires_at IS NOT NULL")),
    sqlite_strict=True,
)
_COLUMNS: Final = "namespace, key, value, paths, ttl_s, expires_at, created_at, updated_at"
# An expired item no longer exists: an item put under its key is new.
_PUT: Final = (
    f"INSERT INTO items ({_COLUMNS}, position) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "created_at = CASE WHEN expires_at <= excluded.updated_at THEN excluded.created_at ELSE created_at END, "
    "value = excluded.value, paths = excluded.paths, ttl_s = excluded.ttl_s, expires_at = excluded.expires_at, "
    "updated_at = excluded.updated_at, position = excluded.position"
)
_TOUCH: Final = "UPDATE items SET expires_at = ? WHERE namespace = ? AND key = ? AND expires_at > ? AND expires_at < ?"
_VECTORS: Final = "embeddings"
_LIVING: Final = "(expires_at IS NULL OR expires_at > ?)"


class StoredItem(NamedTuple):
    """An item with its times."""

    namespace: str
    key: str
    value: dict[str, Any]
    paths: list[str] | None
    ttl_s: float | None
    expires_at: int | None
    created_at: Micros
    updated_at: Micros


class ItemTables(SqlProjection):
    """The items of a log."""

    name = "items/1"
    metadata = _METADATA

    def take(self, connection: sa.Connection, events: Sequence[RecordedEvent]) -> None:
        """Put, touch and delete items."""
        for recorded in events:
            namespace = namespace_of(recorded.stream)
            if namespace is None:
                continue
            now = recorded.recorded_at
            match recorded.event:
                case ItemPut() as put:
                    paths = None if put.paths is None else to_msgpack(put.paths)
                    values = (to_msgpack(put.value), paths, put.ttl_s, put.expires_at, now, now)
                    connection.exec_driver_sql(_PUT, (namespace, put.key, *values, recorded.position))
                case ItemTouched() as touched:
                    until = touched.expires_at
                    connection.exec_driver_sql(_TOUCH, (until, namespace, touched.key, now, until))
                case ItemDeleted() as deleted:
                    connection.exec_driver_sql(
                        "DELETE FROM items WHERE namespace = ? AND key = ?", (namespace, deleted.key)
                    )

    def erase(self, connection: sa.Connection, erased: Sequence[RecordedEvent], *, upto: Position) -> None:
        """Fill the namespaces again that lost content, and delete all vectors: whose they are is unknown."""
        lost = [(item.stream, namespace) for item in erased if (namespace := namespace_of(item.stream)) is not None]
        for stream, namespace in dict.fromkeys(lost):
            connection.exec_driver_sql("DELETE FROM items WHERE namespace = ?", (namespace,))
            for events in self.log.read_stream(stream, upto=upto):
                self.take(connection, events)
        if lost:
            _delete_vectors(connection)

    def sweep(self, *, now: Micros) -> int:
        """Delete the rows of expired items, which no read returns. Return how many."""
        with self.database.writing() as connection:
            return connection.exec_driver_sql("DELETE FROM items WHERE expires_at <= ?", (now,)).rowcount

    def _start_over(self, connection: sa.Connection) -> None:
        super()._start_over(connection)
        _delete_vectors(connection)


def find(connection: sa.Connection, namespace: str, key: str, *, now: Micros) -> StoredItem | None:
    """Return an item that has not expired, or None."""
    query = f"SELECT {_COLUMNS} FROM items WHERE namespace = ? AND key = ? AND {_LIVING}"
    return next((_item(row) for row in fetch(connection, query, namespace, key, now)), None)


def below(connection: sa.Connection, prefix: str, *, now: Micros, limit: int | None = None) -> list[StoredItem]:
    """Return the unexpired items of a namespace and of all namespaces below it, newest first."""
    query = f"SELECT {_COLUMNS} FROM items WHERE {_LIVING}"
    asked: tuple[Any, ...] = (now,)
    if prefix:  # The range is every namespace that begins with the prefix and a separator.
        query += " AND (namespace = ? OR (namespace > ? AND namespace < ?))"
        asked += (prefix, prefix + SEPARATOR, prefix + chr(ord(SEPARATOR) + 1))
    query += " ORDER BY position DESC LIMIT ?"
    return [_item(row) for row in fetch(connection, query, *asked, -1 if limit is None else limit)]


def namespaces(connection: sa.Connection, *, now: Micros) -> list[str]:
    """Return the namespaces that have items."""
    return [row[0] for row in fetch(connection, f"SELECT DISTINCT namespace FROM items WHERE {_LIVING}", now)]


def _delete_vectors(connection: sa.Connection) -> None:
    """Delete the vectors that `mnemolog.projections.recall.similarity` keeps beside the items."""
    if sa.inspect(connection).has_table(_VECTORS):
        connection.exec_driver_sql(f"DELETE FROM {_VECTORS}")


def _item(row: Sequence[Any]) -> StoredItem:
    namespace, key, value, paths, *rest = row
    decoded = None if paths is None else msgspec.msgpack.decode(paths, type=list[str])
    return StoredItem(namespace, key, msgspec.msgpack.decode(value, type=dict[str, Any]), decoded, *rest)
