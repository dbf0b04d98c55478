"""Blocks: what filters and word statistics need of 1,024 positions at once, written when the views have read them all.

A block has a bitmap of its turns for every scope, session, role, speaker and metadata value in it, and the rounded
times and the lengths of its turns. New turns never change a block; forgetting removes turns from it. Positions after
the last block are read from the table of turns. Numbers of two bytes are in the order of the machine: little-endian.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.values import Position
from mnemolog.projections.sql.database import METADATA, fetch, listed
from mnemolog.projections.sql.turn_tables import PLACES

BLOCK: Final = 1_024
"""Positions in a block."""
BITS_BYTES: Final = BLOCK // 8
LISTED_MAX: Final = BITS_BYTES // 2 - 1
"""Positions of a block up to which a bitmap lists them, two bytes each. With more it has a bit for every position."""
LENGTH_MAX: Final = 0xFFFF
"""The stored length of a turn that is this long or longer; the text index has the exact one."""
_TIME_BITS: Final = 15
"""Bits of a time in a block, from the highest one in which the times of the block differ."""

BITMAPS: Final = sa.Table(
    "bitmaps",
    METADATA,
    sa.Column("field", sa.Text, primary_key=True),
    sa.Column("value", sa.BLOB, primary_key=True),
    sa.Column("block", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("positions", sa.BLOB, nullable=False),
    sqlite_strict=True,
    sqlite_with_rowid=False,
)
"""The turns of a block that have a value in a field, counted from the start of the block."""

BLOCKS: Final = sa.Table(
    "blocks",
    METADATA,
    sa.Column("block", sa.Integer, primary_key=True),
    sa.Column("turns", sa.Integer, nullable=False),
    sa.Column("words", sa.Integer, nullable=False),
    sa.Column("earliest", sa.Integer, nullable=False),
    sa.Column("latest", sa.Integer, nullable=False),
    sa.Column("times", sa.BLOB, nullable=False),
    sa.Column("lengths", sa.BLOB, nullable=False),
    sqlite_strict=True,
)
"""A row for each block.

`earliest` and `latest` are of the times when its turns were said, or else recorded. `times` has 2 bytes for each
position: how long after the earliest its turn was said, rounded down to `time_unit`, plus one; 0 if it is no turn.
`lengths` has 2 bytes for each position: the words of its turn in the text index plus one, 0 if it is no turn.

The row fits in one page beside that of the table: every page more is one more to read for a recall.
"""

sa.Index("blocks_counted", BLOCKS.c.block, BLOCKS.c.turns, BLOCKS.c.words)
"""For the statistics of all blocks, without reading the blocks."""

TEXT_INDEX: Final = "turns_text"

SCOPE: Final = "scope"
SESSION: Final = "session"
ROLE: Final = "role"
SPEAKER: Final = "speaker"

_TURNS: Final = (
    "SELECT position, started_position, scope, role, speaker, coalesce(said_at, recorded_at) "
    f"FROM turns CROSS JOIN sessions ON started_position = place / {PLACES} WHERE position "
)
_TIMES: Final = "SELECT position, coalesce(said_at, recorded_at) FROM turns WHERE position "
_METADATA: Final = "SELECT position, key, value FROM turn_metadata WHERE position "
_LENGTHS: Final = f"SELECT id, sz FROM {TEXT_INDEX}_docsize WHERE id "
_WITHIN: Final = "BETWEEN ? AND ? ORDER BY 1"
_LISTED: Final = "IN (SELECT value FROM json_each(?))"


class Key(NamedTuple):
    """A value of a field that filters ask for."""

    field: str
    value: bytes


def metadata_key(key: str, stored: bytes) -> Key:
    """Return the key of the turns with a metadata value, given as it is stored."""
    return Key(f"metadata/{key}", stored)


def session_key(started_position: int) -> Key:
    """Return the key of the turns of a session, by the position of its start."""
    return Key(SESSION, str(started_position).encode())


def text_key(field: str, value: str) -> Key:
    """Return the key of the turns with a role or a speaker, or in a scope or below it."""
    return Key(field, value.encode())


class Block(NamedTuple):
    """A row of `BLOCKS`."""

    block: int
    turns: int
    words: int
    earliest: int
    latest: int
    times: bytes
    lengths: bytes


def closed_to(connection: sa.Connection) -> int:
    """Return the first position after the last block."""
    ((last,),) = fetch(connection, "SELECT max(block) FROM blocks")
    return 0 if last is None else (int(last) + 1) * BLOCK


def close_blocks(connection: sa.Connection, *, upto: Position) -> None:
    """Write the blocks that end at position `upto` or before it. The tables have read the log up to there."""
    for number in range(closed_to(connection) // BLOCK, (upto + 1) // BLOCK):
        block, bitmaps = contents(connection, number)
        connection.exec_driver_sql(_INSERT_BLOCK, tuple(block))
        if bitmaps:
            rows = [(*key, number, positions) for key, positions in sorted(bitmaps.items())]
            connection.exec_driver_sql(_INSERT_BITMAP, rows)


def count_words_again(connection: sa.Connection) -> None:
    """Update the lengths of turns in all blocks from the text index."""
    for (number,) in fetch(connection, "SELECT block FROM blocks"):
        words, lengths = _lengths(connection, number * BLOCK)
        connection.exec_driver_sql("UPDATE blocks SET words = ?, lengths = ? WHERE block = ?", (words, lengths, number))


def contents(connection: sa.Connection, number: int) -> tuple[Block, dict[Key, bytes]]:
    """Return the row of a block and its bitmaps, from the other tables."""
    first = number * BLOCK
    turns = fetch(connection, _TURNS + _WITHIN, first, first + BLOCK - 1)
    words, lengths = _lengths(connection, first)
    times = _times(first, {position: at for position, *_, at in turns})
    block = Block(number, len(turns), words, *times, lengths)
    named = fetch(connection, _METADATA + _WITHIN, first, first + BLOCK - 1)
    keys = _keys(turns, named).items()
    return block, {key: bitmap(sorted([position - first for position in positions])) for key, positions in keys}


def time_unit(earliest: int, latest: int) -> int:
    """Return the unit in which a block with these times has the times of its turns, as a number of bits."""
    bits = (latest - earliest).bit_length()
    return bits - _TIME_BITS if bits > _TIME_BITS else 0


def _times(first: int, said: Mapping[int, int]) -> tuple[int, int, bytes]:
    """Return the earliest and the latest of these times of turns by position, and all as a block stores them."""
    earliest, latest = min(said.values(), default=0), max(said.values(), default=0)
    times, unit = array("H", bytes(2 * BLOCK)), time_unit(earliest, latest)
    for position, at in said.items():
        times[position - first] = (at - earliest >> unit) + 1
    return earliest, latest, times.tobytes()


def _lengths(connection: sa.Connection, first: int) -> tuple[int, bytes]:
    """Return the number of words in the turns of a block, and their lengths as they are stored."""
    lengths, words = array("H", bytes(2 * BLOCK)), 0
    for position, stored in fetch(connection, _LENGTHS + _WITHIN, first, first + BLOCK - 1):
        length = number_in(stored)
        lengths[position - first] = min(length + 1, LENGTH_MAX)
        words += length
    return words, lengths.tobytes()


def forget(connection: sa.Connection, positions: Sequence[int]) -> None:
    """Remove turns from their blocks. Call it before the rows of the turns are deleted."""
    closed = closed_to(connection)
    gone = [position for position in positions if position < closed]
    some = listed(gone)
    turns, named = fetch(connection, _TURNS + _LISTED, some), fetch(connection, _METADATA + _LISTED, some)
    for key, found in _keys(turns, named).items():
        of_block: dict[int, list[int]] = defaultdict(list)
        for position in found:
            of_block[position // BLOCK].append(position % BLOCK)
        for number, places in of_block.items():
            _remove(connection, key, number, places)
    lengths = {position: number_in(stored) for position, stored in fetch(connection, _LENGTHS + _LISTED, some)}
    for number in sorted({position // BLOCK for position in gone}):
        _forget_in(connection, number, {position for position in gone if position // BLOCK == number}, lengths)


def _remove(connection: sa.Connection, key: Key, number: int, places: Sequence[int]) -> None:
    where = "WHERE field = ? AND value = ? AND block = ?"
    for (stored,) in fetch(connection, f"SELECT positions FROM bitmaps {where}", *key, number):
        if left := sorted(set(places_in(stored)).difference(places)):
            connection.exec_driver_sql(f"UPDATE bitmaps SET positions = ? {where}", (bitmap(left), *key, number))
        else:
            connection.exec_driver_sql(f"DELETE FROM bitmaps {where}", (*key, number))


def _forget_in(connection: sa.Connection, number: int, gone: Set[int], words: Mapping[int, int]) -> None:
    ((turns, held, stored),) = fetch(connection, "SELECT turns, words, lengths FROM blocks WHERE block = ?", number)
    lengths = array("H", stored)
    for position in gone:
        lengths[position % BLOCK] = 0
    held -= sum(words.get(position, 0) for position in gone)
    first = number * BLOCK
    rows = fetch(connection, _TIMES + _WITHIN, first, first + BLOCK - 1)
    times = _times(first, {position: at for position, at in rows if position not in gone})
    left = Block(number, turns - len(gone), held, *times, lengths.tobytes())
    connection.exec_driver_sql("DELETE FROM blocks WHERE block = ?", (number,))
    connection.exec_driver_sql(_INSERT_BLOCK, tuple(left))


def _keys(turns: Iterable[Any], named: Iterable[Any]) -> dict[Key, list[int]]:
    """Return the positions of turns by the keys that they have, in any order. `named` has their metadata."""
    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for position, started_position, scope, role, speaker, _ in turns:
        alike[started_position, scope, role, speaker].append(position)
    sessions, scopes, roles, speakers = (defaultdict[Any, list[int]](list) for _ in range(4))
    for (started_position, scope, role, speaker), positions in alike.items():
        sessions[started_position] += positions
        scopes[scope] += positions
        roles[role] += positions
        if speaker is not None:
            speakers[speaker] += positions
    found: dict[Key, list[int]] = defaultdict(list)
    found |= {session_key(started_position): positions for started_position, positions in sessions.items()}
    found |= {text_key(ROLE, role): positions for role, positions in roles.items()}
    found |= {text_key(SPEAKER, speaker): positions for speaker, positions in speakers.items()}
    for scope, positions in scopes.items():
        while scope:  # A filter by a scope leaves those below it too.
            found[text_key(SCOPE, scope)] += positions
            scope = scope.rpartition("/")[0]
    for position, name, value in named:
        found[metadata_key(name, value)].append(position)
    return found


def bitmap(places: Sequence[int]) -> bytes:
    """Return places in a block (ascending) as they are stored."""
    if len(places) <= LISTED_MAX:
        return array("H", places).tobytes()
    digits = bytearray(b"0" * BLOCK)
    for place in places:
        digits[~place] = 49  # "1"
    return int(digits, 2).to_bytes(BITS_BYTES, "little")


def places_in(stored: bytes) -> list[int]:
    """Return the places of a bitmap, ascending."""
    if len(stored) != BITS_BYTES:
        return array("H", stored).tolist()
    bits = int.from_bytes(stored, "little")
    return [place for place in range(BLOCK) if bits >> place & 1]


def number_in(stored: bytes) -> int:
    """Return the first number of an FTS5 record, which stores SQLite's variable-length integers."""
    number = 0
    for byte in stored[:8]:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number
    return number << 8 | stored[8]


_INSERT_BLOCK: Final = f"INSERT INTO blocks ({', '.join(Block._fields)}) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_BITMAP: Final = "INSERT INTO bitmaps (field, value, block, positions) VALUES (?, ?, ?, ?)"
