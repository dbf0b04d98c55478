"""Apply filters to all turns: with the bitmaps of blocks, and with rows after the last block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Micros
from mnemolog.domain.scope import ROOT
from mnemolog.domain.spans import Span
from mnemolog.projections.sql import blocks
from mnemolog.projections.sql.blocks import ROLE, SCOPE, SPEAKER, Key, closed_to, metadata_key, session_key, text_key
from mnemolog.projections.sql.conversation_views import SESSIONS, TURNS
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.places import PLACES
from mnemolog.projections.sql.position_mask import Bits, PositionMask
from mnemolog.projections.sql.queries import Filters, below, conditions, last_turn
from mnemolog.projections.sql.turn_metadata import stored

_BITMAPS: Final = "SELECT block, positions FROM bitmaps WHERE field = ? AND value = ? AND block < ?"
_ROLES: Final = "SELECT DISTINCT value FROM bitmaps WHERE field = 'role'"
_STARTED: Final = "SELECT started_position FROM sessions WHERE session = ?"
_TIMES: Final = (
    "SELECT block, CASE WHEN earliest >= ?1 AND latest < ?2 THEN NULL ELSE times END FROM blocks "
    "WHERE block < ?3 AND latest >= ?1 AND earliest < ?2"
)


def turns_left(connection: sa.Connection, filters: Filters) -> PositionMask:
    """Return the turns that match `filters`. Raises `ProjectionUnreadable` for a bitmap that is not readable as one."""
    try:
        return PositionMask(_matching(connection, filters))
    except (ValueError, IndexError) as error:
        path = Path(connection.engine.url.database or "views.db")
        raise errors.ProjectionUnreadable(path, f"a bitmap of its filters is damaged: {error}") from error


def _matching(connection: sa.Connection, filters: Filters) -> Bits:
    newest = last_turn(connection, upto=filters.upto).position
    end = newest if filters.last is None else min(filters.last, newest)
    bits = np.zeros(end + 1, dtype=np.bool_)
    closed = min(closed_to(connection), end + 1)
    if closed:
        bits[:closed] = _in_blocks(connection, filters, -(-closed // blocks.BLOCK))[:closed]
    if closed <= end:
        # The scope of each turn is looked up: as a condition on turns, it would read all sessions.
        of_turn = SESSIONS.c.started_position == TURNS.c.place // PLACES
        within = [] if filters.scope == ROOT else [below(SESSIONS.c.scope, filters.scope)]
        within += [TURNS.c.position.between(closed, end), *conditions(replace(filters, scope=ROOT))]
        query = sa.select(TURNS.c.position).select_from(TURNS).join(SESSIONS, of_turn).where(*within)
        bits[np.fromiter(connection.execute(query).scalars(), dtype=np.int64)] = True
    if filters.after is not None:
        bits[: filters.after + 1] = False
    return bits


def _in_blocks(connection: sa.Connection, filters: Filters, count: int) -> Bits:
    """Return which positions of the first blocks match, without regard to `after`, `last` and `upto`."""
    required = list[Sequence[Key]]()
    if filters.scope != ROOT:
        required.append([text_key(SCOPE, filters.scope)])
    if filters.roles:
        required.append([text_key(ROLE, role.value) for role in filters.roles])
    if filters.speakers:
        required.append([text_key(SPEAKER, speaker) for speaker in filters.speakers])
    required += [[metadata_key(key, stored(value))] for key, value in filters.metadata.items()]
    parts = [_with_any(connection, keys, count) for keys in required]
    if filters.session is not None:
        parts.append(_in_spans(connection, (Span(filters.session, ORIGIN),), count))
    if filters.spans is not None:
        parts.append(_in_spans(connection, filters.spans, count))
    if not parts:
        parts.append(_with_any(connection, [Key(ROLE, value) for (value,) in fetch(connection, _ROLES)], count))
    if filters.since is not None or filters.until is not None:
        parts.append(_between(connection, filters.since, filters.until, count))
    matching = parts[0]
    for part in parts[1:]:
        matching &= part
    return matching


def _with_any(connection: sa.Connection, keys: Iterable[Key], count: int) -> Bits:
    """Return the turns that have any of these keys."""
    matching = np.zeros((count, blocks.BLOCK), dtype=np.bool_)
    for key in keys:
        rows = fetch(connection, _BITMAPS, *key, count)
        full = [row for row in rows if len(row[1]) == blocks.BITS_BYTES]
        listed = [row for row in rows if len(row[1]) != blocks.BITS_BYTES]
        bits = np.unpackbits(np.frombuffer(b"".join(some for _, some in full), dtype=np.uint8), bitorder="little")
        matching[[block for block, _ in full]] |= bits.view(np.bool_).reshape(-1, blocks.BLOCK)
        places = np.frombuffer(b"".join(some for _, some in listed), dtype="<u2")
        of_block = np.array([block for block, _ in listed], dtype=np.int64)
        matching[np.repeat(of_block, [len(some) // 2 for _, some in listed]), places] = True
    return matching.reshape(-1)


def _in_spans(connection: sa.Connection, spans: Sequence[Span], count: int) -> Bits:
    """Return the turns of sessions in any of `spans`."""
    matching = np.zeros(count * blocks.BLOCK, dtype=np.bool_)
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
    """Return the positions said at `since` or later and before `until`, and possibly some that are no turns."""
    low, high = -INTEGER_MAX if since is None else since, INTEGER_MAX if until is None else until
    matching = np.zeros((count, blocks.BLOCK), dtype=np.bool_)
    for block, times in fetch(connection, _TIMES, low, high, count):
        if times is None:
            matching[block] = True
        else:
            at = np.frombuffer(times, dtype="<i8")
            matching[block] = (at >= low) & (at < high)
    return matching.reshape(-1)
