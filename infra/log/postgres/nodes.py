"""The nodes of a log: which local folders have projections of it, how far, and what they have purged."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple

from mnemolog.domain.values import Micros
from mnemolog.infra.log.postgres.schema import SCHEMA

_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_NOTE: Final = (
    f"INSERT INTO {SCHEMA}.nodes AS n (log, node, label, opened_at, seen_at, position, purged) "
    f"VALUES (%b, %b, %b, {_NOW}, {_NOW}, coalesce(%b::bigint, 0), %b) ON CONFLICT (log, node) DO UPDATE SET "
    "label = excluded.label, seen_at = excluded.seen_at, position = coalesce(%b::bigint, n.position), "
    "purged = excluded.purged, opened_at = CASE WHEN %b THEN excluded.opened_at ELSE n.opened_at END"
)
_SELECT: Final = (
    f"SELECT node, label, opened_at, seen_at, position, purged FROM {SCHEMA}.nodes WHERE log = %b ORDER BY label, node"
)


class NodeRow(NamedTuple):
    """A node as the log's database knows it: a folder with projections of the log. Times are those of the server."""

    node: str
    """Its random id."""
    label: str
    """Its host and folder, for people."""
    opened_at: Micros
    seen_at: Micros
    """When it last noted something here: it does so seldom."""
    position: int
    """How far its views have read the log."""
    purged: int
    """What was forgotten up to this position is gone from its projections."""


class PostgresNodes:
    """The nodes of one log, of which `number` returns the number in the database of a connection.

    Every method raises only errors of mnemolog.
    """

    def __init__(self, number: Callable[[Any], int], connection: Callable[[], AbstractContextManager[Any]]) -> None:
        """`connection` gives a driver connection in autocommit mode, and maps its errors."""
        self._number, self._connection = number, connection

    def note(self, node: str, label: str, *, position: int | None, purged: int, opened: bool) -> None:
        """Note the state of a node, which is added if it is new. None keeps the position; `opened` sets the time."""
        with self._writing() as driver:
            driver.execute(_NOTE, (self._number(driver), node, label, position, purged, position, opened))

    def all(self) -> list[NodeRow]:
        """Return all nodes in the order of their labels."""
        with self._connection() as driver:
            return [NodeRow(*row) for row in driver.execute(_SELECT, (self._number(driver),)).fetchall()]

    def remove(self, node: str) -> bool:
        """Remove a node. Return whether it was there."""
        with self._writing() as driver:
            return bool(
                driver.execute(
                    f"DELETE FROM {SCHEMA}.nodes WHERE log = %b AND node = %b", (self._number(driver), node)
                ).rowcount
            )

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        """Give a connection to write with: a node of a store that only reads the log notes its state as well."""
        with self._connection() as driver, driver.transaction():
            driver.execute("SET TRANSACTION READ WRITE")
            yield driver
