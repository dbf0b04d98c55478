"""When the turns of a scope were recorded, looked up without reading the turns."""

from __future__ import annotations

from bisect import bisect_right

import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.domain.scope import Scopes
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.filtering import turns_left
from mnemolog.projections.sql.queries import Filters


class TurnTimes:
    """The turns at or below some scopes in the order of the log, without forgotten ones, numbered from 1.

    Reads the bitmaps of the scopes, and of a turn no more than the time when it was recorded.
    """

    def __init__(self, connection: sa.Connection, scopes: Scopes) -> None:
        self._connection = connection
        self._positions: list[int] = turns_left(connection, Filters(scopes=scopes)).positions().tolist()

    def __len__(self) -> int:
        return len(self._positions)

    def position(self, number: int) -> Position:
        """Return the position of a turn; 0 for number 0."""
        return Position(self._positions[number - 1]) if number else ORIGIN

    def recorded_at(self, number: int) -> Micros:
        """Return when a turn was recorded."""
        position = self._positions[number - 1]
        ((time,),) = fetch(self._connection, "SELECT recorded_at FROM turns WHERE position = ?", position)
        return Micros(time)

    def until(self, time: Micros) -> int:
        """Return how many were recorded at or before a time. Reads the times of O(log n) turns."""
        return bisect_right(range(1, len(self) + 1), time, key=self.recorded_at)

    def up_to(self, position: Position) -> int:
        """Return how many have this position or an earlier one."""
        return bisect_right(self._positions, position)
