"""Apply filters to all turns, by the bitmaps of blocks and the rows behind them, which leaves a mask of positions."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.domain.scope import Scopes
from mnemolog.domain.session import Span
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Micros, Position
from mnemolog.projections.sql import position_blocks
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.position_blocks import (
    ROLE,
    SCOPE,
    SPEAKER,
    Key,
    closed_to,
    metadata_key,
    session_key,
    text_key,
)
from mnemolog.projections.sql.queries import Filters, below_any, branches, last_turn
from mnemolog.projections.sql.turn_tables import PLACES, stored

Bits = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PositionMask:
    """A set of positions. Positions after the end of `bits` are not in it."""

    bits: Bits
    """Shape (last position + 1,)."""

    def __len__(self) -> int:
        return int(np.count_nonzero(self.bits))

    def holds(self, positions: NDArray[np.int64]) -> Bits:
        """Return for each of these positions (ascending) whether it is in the set."""
        within = int(np.searchsorted(positions, len(self.bits)))
        found = np.zeros(len(positions), dtype=np.bool_)
        np.take(self.bits, positions[:within], out=found[:within])
        return found

    def among(self, positions: Sequence[Position]) -> set[Position]:
        """Return those of a few positions that are in the set."""
        ascending = sorted(positions)
        return set(compress(ascending, self.holds(np.array(ascending, dtype=np.int64)).tolist()))

    def upto(self, last: Position) -> "PositionMask":
        """Return the positions of the set up to `last`."""
        return PositionMask(self.bits[: last + 1])

    def positions(self, *, after: Position = ORIGIN) -> NDArray[np.int64]:
        """Return the positions of the set after `after`, ascending."""
        return np.flatnonzero(self.bits[after + 1 :]) + (after + 1)


Positions = NDArray[np.int64]

_BITMAPS: Final = "SELECT block, positions FROM bitmaps WHERE field = ? AND value = ? AND block < ?"
_ROLES: Final = f"SELECT DISTINCT value FROM bitmaps WHERE field = '{ROLE}'"
_STARTED: Final = "SELECT started_position FROM sessions WHERE session = ?"
_TIMES: Final = "SELECT block, earliest, latest, times FROM blocks WHERE block < ?3 AND latest >= ?1 AND earliest < ?2"
_SAID_AT: Final = "coalesce(said_at, recorded_at)"
_ONE_OF: Final = "{} IN (SELECT value FROM json_each(?))"
_SAID_BETWEEN: Final = (
    f"SELECT position FROM turns WHERE {_ONE_OF.format('position')} AND {_SAID_AT} >= ? AND {_SAID_AT} < ?"
)
_WITH_METADATA: Final = (
    "EXISTS (SELECT 1 FROM turn_metadata AS named WHERE key = ? AND value = ? AND named.position = turns.position)"
)
_OF_SESSIONS: Final = f"FROM turns CROSS JOIN sessions ON started_position = place / {PLACES} WHERE"
"""The scope of each turn is looked up: as a condition on turns, it would read all sessions."""


def turns_left(connection: sa.Connection, filters: Filters) -> PositionMask:
    """Return the turns that match `filters`. Raises `ProjectionUnreadable` for a bitmap that is not readable as one."""
    try:
        return PositionMask(_matching(connection, filters))
    except (ValueError, IndexError) as error:
        path = Path(connection.engine.url.database or "views.db")
        raise errors.ProjectionUnreadable(path, f"a bitmap of its filters is damaged: {error}") from error


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


def _matching(connection: sa.Connection, filters: Filters) -> Bits:
    newest = last_turn(connection, upto=filters.upto).position
    end = newest if filters.last is None else min(filters.last, newest)
    bits = np.zeros(end + 1, dtype=np.bool_)
    closed = min(closed_to(connection), end + 1)
    if closed:
        bits[:closed] = _in_blocks(connection, filters, -(-closed // position_blocks.BLOCK))[:closed]
    if closed <= end:
        bits[_after_blocks(connection, filters, closed, end)] = True
    if filters.after is not None:
        bits[: filters.after + 1] = False
    bits[[position for position in filters.distrusted if position <= end]] = False
    return bits


def _after_blocks(connection: sa.Connection, filters: Filters, first: int, last: int) -> Positions:
    """Return the positions from `first` to `last` that match, without regard to `after`, `last` and `upto`."""
    found: list[tuple[str, Sequence[Any]]] = [("position BETWEEN ? AND ?", (first, last))]
    if filters.scopes:
        found.append(below_any(filters.scopes))
    if filters.session is not None and filters.spans is None:
        found.append(("session = ?", (filters.session,)))
    if filters.roles:
        found.append((_ONE_OF.format("role"), (listed([role.value for role in filters.roles]),)))
    if filters.speakers:
        found.append((_ONE_OF.format("speaker"), (listed(filters.speakers),)))
    found += [(_WITH_METADATA, (key, stored(value))) for key, value in filters.metadata.items()]
    if filters.since is not None:
        found.append((f"{_SAID_AT} >= ?", (filters.since,)))
    if filters.until is not None:
        found.append((f"{_SAID_AT} < ?", (filters.until,)))
    beside, of_beside = below_any(filters.beside) if filters.beside else (str(filters.beside == ()), [])
    conditions = " AND ".join(condition for condition, _ in found)
    query = f"SELECT position, session, {beside} {_OF_SESSIONS} {conditions} ORDER BY 1"
    driver: Any = connection.connection.driver_connection
    values = [*of_beside, *(value for _, values in found for value in values)]
    rows = driver.execute(query, values)  # One in memory at a time.
    if filters.spans is None:
        return np.fromiter((position for position, *_ in rows), dtype=np.int64)
    of_session: dict[str, list[int]] = defaultdict(list)
    left, own = list[int](), _own(connection, filters)
    for position, session, is_beside in rows:
        if is_beside and session not in own:
            left.append(position)
        of_session[session].append(position)
    for span in filters.spans:
        turns = of_session.get(span.session, [])
        end = len(turns) if span.upto is None else bisect_right(turns, span.upto)
        left += turns[bisect_right(turns, span.after) : end]
    return np.array(left, dtype=np.int64)


def _in_blocks(connection: sa.Connection, filters: Filters, count: int) -> Bits:
    """Return which positions of the first blocks match, without regard to `after`, `last` and `upto`."""
    required = list[Sequence[Key]]()
    if filters.roles:
        required.append([text_key(ROLE, role.value) for role in filters.roles])
    if filters.speakers:
        required.append([text_key(SPEAKER, speaker) for speaker in filters.speakers])
    required += [[metadata_key(key, stored(value))] for key, value in filters.metadata.items()]
    parts = [_with_any(connection, keys, count) for keys in required]
    if filters.scopes:
        parts.append(_at_or_below(connection, filters.scopes, count))
    if filters.session is not None and filters.spans is None:
        parts.append(_in_spans(connection, (Span(filters.session, ORIGIN),), count))
    if filters.spans is not None:
        seen = _in_spans(connection, filters.spans, count)
        if filters.beside is not None:
            others = _at_or_below(connection, filters.beside, count)
            others &= ~_in_spans(connection, [Span(session, ORIGIN) for session in _own(connection, filters)], count)
            seen |= others
        parts.append(seen)
    if filters.since is not None or filters.until is not None:
        parts.append(_between(connection, filters.since, filters.until, count))
    if not parts:
        parts.append(_at_or_below(connection, (), count))
    matching = parts[0]
    for part in parts[1:]:
        matching &= part
    return matching


def _own(connection: sa.Connection, filters: Filters) -> frozenset[str]:
    """Return the sessions of which only `spans` match: branches of one session. Others match if `beside`."""
    return frozenset() if filters.beside is None else frozenset(branches(connection, filters.session or ""))


def _at_or_below(connection: sa.Connection, scopes: Scopes, count: int) -> Bits:
    """Return the turns at or below any of these scopes, all turns for none."""
    keys = [text_key(SCOPE, scope) for scope in scopes]
    return _with_any(connection, keys or [Key(ROLE, value) for (value,) in fetch(connection, _ROLES)], count)


def _with_any(connection: sa.Connection, keys: Iterable[Key], count: int) -> Bits:
    """Return the turns that have any of these keys."""
    matching = np.zeros((count, position_blocks.BLOCK), dtype=np.bool_)
    for key in keys:
        rows = fetch(connection, _BITMAPS, *key, count)
        full = [row for row in rows if len(row[1]) == position_blocks.BITS_BYTES]
        few = [row for row in rows if len(row[1]) != position_blocks.BITS_BYTES]
        bits = np.unpackbits(np.frombuffer(b"".join(some for _, some in full), dtype=np.uint8), bitorder="little")
        matching[[block for block, _ in full]] |= bits.view(np.bool_).reshape(-1, position_blocks.BLOCK)
        places = np.frombuffer(b"".join(some for _, some in few), dtype="<u2")
        of_block = np.array([block for block, _ in few], dtype=np.int64)
        matching[np.repeat(of_block, [len(some) // 2 for _, some in few]), places] = True
    return matching.reshape(-1)


def _in_spans(connection: sa.Connection, spans: Sequence[Span], count: int) -> Bits:
    """Return the turns of sessions in any of `spans`."""
    matching = np.zeros(count * position_blocks.BLOCK, dtype=np.bool_)
    of_session: dict[str, list[Span]] = {}
    for span in spans:
        of_session.setdefault(span.session, []).append(span)
    for session, parts in of_session.items():
        keys = [session_key(started) for (started,) in fetch(connection, _STARTED, session)]
        turns = _with_any(connection, keys, count)
        for span in parts:
            within = slice(span.after + 1, None if span.upto is None else span.upto + 1)
            matching[within] |= turns[within]
    return matching


def _between(connection: sa.Connection, since: Micros | None, until: Micros | None, count: int) -> Bits:
    """Return the turns said at `since` or later and before `until`."""
    low, high = -INTEGER_MAX if since is None else since, INTEGER_MAX if until is None else until
    matching: Bits = np.zeros((count, position_blocks.BLOCK), dtype=np.bool_)
    rows = fetch(connection, _TIMES, low, high, count)
    if not rows:
        return matching.reshape(-1)
    numbers = np.array([block for block, *_ in rows], dtype=np.int64)
    times = np.frombuffer(b"".join(row[-1] for row in rows), dtype="<u2").reshape(-1, position_blocks.BLOCK)
    begin, end = _as_stored([(earliest, latest) for _, earliest, latest, _ in rows], low, high)
    matching[numbers] = (times > begin) & (times < end)
    # Stored times are rounded down: where one is that of a limit, the table of turns has the exact one.
    row, place = divmod(np.flatnonzero(((times == begin) | (times == end)) & (times > 0)), position_blocks.BLOCK)
    unsure = listed((numbers[row] * position_blocks.BLOCK + place).tolist())
    found = [position for (position,) in fetch(connection, _SAID_BETWEEN, unsure, low, high)]
    matching = matching.reshape(-1)
    matching[found] = True
    return matching


def _as_stored(spans: Sequence[tuple[int, int]], *limits: int) -> list[NDArray[np.uint16]]:
    """Return how blocks with these earliest and latest times would store other times. Shape (blocks, 1) each.

    0 is before all turns of a block, 65,535 long after them.
    """
    first, last = min(earliest for earliest, _ in spans) - 1, max(latest for _, latest in spans) + 1
    earliest, unit = np.array(
        [(start, position_blocks.time_unit(start, end)) for start, end in spans], dtype=np.int64
    ).T
    stored_as = [np.clip((min(max(at, first), last) - earliest >> unit) + 1, 0, 0xFFFF) for at in limits]
    return [numbers.astype(np.uint16)[:, np.newaxis] for numbers in stored_as]
