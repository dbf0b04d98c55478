"""What keys have: facts at any position and time, and their histories."""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, cast

import msgspec
import sqlalchemy as sa

from mnemolog.domain.facts import FILES, NOTHING, Assertion, Belief, believed, latest_first
from mnemolog.domain.head import Known
from mnemolog.domain.scope import Scopes, covered
from mnemolog.domain.values import Clock, Micros, Position, to_datetime
from mnemolog.projections.read_models import Fact, FactChange, FactState
from mnemolog.projections.sql import distrust
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.facts import COLUMNS
from mnemolog.projections.sql.queries import below_any, last_turn
from mnemolog.projections.sql.turn_tables import PLACES

# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_POSITIONS: Final = msgspec.json.Decoder(tuple[Position, ...])
_VALUE: Final = msgspec.msgpack.Decoder()
_OF_KEY: Final = (
    "FROM facts WHERE scope = {scope} AND key = {key} AND valid_from <= ?1 AND position <= ?2 "
    f"AND (retracted IS NULL OR retracted > ?2) AND {distrust.of_fact('?2')} IS NULL "
    "ORDER BY valid_from DESC, position DESC"
)
_LATEST_FIRST: Final = f"SELECT {COLUMNS} {_OF_KEY.format(scope='?3', key='?4')}"
ANSWER_TURNS_MAX: Final = 6
"""Turns of its session after which an answer is no echo of a turn any more."""
_SHOWN: Final = "SELECT value AS shown, value AS turn, NULL AS answer FROM json_each(?1)"
_ANSWERS: Final = (
    "SELECT said.position, before.position, said.text FROM json_each(?1) JOIN turns AS said ON said.position = value "
    f"AND said.role = 'assistant' JOIN turns AS before ON before.place < said.place "
    f"AND before.place >= max(said.place - {ANSWER_TURNS_MAX}, said.place / {PLACES} * {PLACES}) "
    "WHERE EXISTS (SELECT 1 FROM fact_evidence)"
)
TOGETHER_MAX: Final = 10
"""Of a key with fewer assertions, they are read together with those of other keys."""
BEGINS: Final = "key BETWEEN ?3 AND ?3 || char(0x10ffff)"
EACH_LATEST_FIRST: Final = (
    f"SELECT {COLUMNS} FROM (SELECT scope AS in_scope, key AS named FROM fact_keys WHERE {BEGINS} AND {{}}) "
    f"CROSS JOIN facts AS held ON held.position IN (SELECT position {_OF_KEY.format(scope='in_scope', key='named')} "
    f"LIMIT {TOGETHER_MAX}) ORDER BY key, scope, valid_from DESC, position DESC"
)


def keys_before(connection: sa.Connection, scope: str, position: Position) -> list[str]:
    """Return the keys of exactly one scope that were asserted before a position."""
    query = "SELECT DISTINCT key FROM facts WHERE scope = ? AND position < ?"
    return [key for (key,) in fetch(connection, query, scope, position) if not key.startswith(FILES)]


def known_now(connection: sa.Connection, upto: Position, clock: Clock | None) -> Known:
    """Return what is known up to a position about now, or without a clock about then.

    Now is what the clock says, and at least when something was last recorded: what was just asserted holds.
    """
    query = "SELECT recorded_at FROM facts WHERE position <= ? ORDER BY position DESC LIMIT 1"
    facts = (at for (at,) in fetch(connection, query, upto))
    now = 0 if clock is None else clock.now()
    return Known(upto, Micros(max(now, last_turn(connection, upto=upto).recorded_at, *facts)))


def belief(
    connection: sa.Connection, scope: str, key: str, known: Known, *, without: Container[int] = ()
) -> Belief | None:
    """Return what a key has, `None` included; None if nothing was said, or nothing besides the assertions `without`."""
    driver: Any = connection.connection.driver_connection
    rows = driver.execute(_LATEST_FIRST, (known.valid_at, known.upto, scope, key))
    return believed(row for row in map(Assertion._make, rows) if row.position not in without)


def value_of(found: Belief | None) -> Any:
    """Return the value that a belief says; None if nothing is known."""
    return None if found is None else _VALUE.decode(found.decides.value)


def fact(connection: sa.Connection, scope: str, key: str, known: Known) -> Fact | None:
    """Return the fact of a key; None if it has none, or none any more."""
    return _held(belief(connection, scope, key, known))


def facts(
    connection: sa.Connection,
    scopes: Scopes,
    known: Known,
    *,
    prefix: str = "",
    chosen: Callable[[str], bool] = bool,
) -> list[Fact]:
    """Return the facts at or below any of `scopes`, or all, by key, whose key begins with `prefix` and is `chosen`.

    Files are among them only if `prefix` says so.
    """
    where, values = below_any(scopes, f" AND {BEGINS}") if scopes else ("1", [])
    rows = fetch(connection, EACH_LATEST_FIRST.format(where), known.valid_at, known.upto, prefix, *values)
    found = list[Fact | None]()
    for (scope, key), group in groupby(map(Assertion._make, rows), key=attrgetter("scope", "key")):
        if chosen(key) and (prefix.startswith(FILES) or not key.startswith(FILES)):
            items = list(group)
            is_all = len(items) < TOGETHER_MAX
            found.append(_held(believed(items) if is_all else belief(connection, scope, key, known)))
    return [fact for fact in found if fact is not None]


def _held(found: Belief | None) -> Fact | None:
    if found is None or found.decides.value == NOTHING:
        return None
    return as_fact(
        found.decides._replace(valid_from=found.since, checked_at=found.checked_at),
        "holds",
        assertions=tuple(sorted(found.positions)),
    )


def history(connection: sa.Connection, scope: str, key: str, known: Known) -> list[Fact]:
    """Return every assertion of a key recorded up to a position, in the order of the log, with what became of it."""
    query = (
        f"SELECT {distrust.of_fact('?3')}, {COLUMNS} FROM facts "
        "WHERE scope = ?1 AND key = ?2 AND position <= ?3 ORDER BY position"
    )
    rows = [(row[0], Assertion._make(row[1:])) for row in fetch(connection, query, scope, key, known.upto)]
    ordered = latest_first([row for gone, row in rows if gone is None], valid_at=None, upto=known.upto)
    until: dict[int, int] = {}
    next_begins = None
    for _, group in groupby(ordered, key=attrgetter("valid_from")):
        last, *empty = group
        if next_begins is not None:
            until[last.position] = next_begins
        until.update((item.position, item.valid_from) for item in empty)
        next_begins = last.valid_from
    now = believed(item for item in ordered if item.valid_from <= known.valid_at)
    holds = () if now is None else now.positions
    found = []
    for gone, row in rows:
        state: FactState = "later" if row.valid_from > known.valid_at else "superseded"
        if row.retracted is not None and row.retracted <= known.upto:
            state = "retracted"
        elif gone is not None:
            state = "distrusted"
        elif row.position in holds:
            state = "holds"
        found.append(as_fact(row, state, until=until.get(row.position), distrusted=gone))
    return found


def resting_on(connection: sa.Connection, turn: Position, known: Known, scopes: Scopes) -> list[Fact]:
    """Return the assertions of these scopes that rest on a turn, in the order of the log, with what became of each."""
    query = "SELECT DISTINCT scope, key FROM fact_evidence JOIN facts ON position = fact WHERE turn = ?"
    keys_of = (row for row in fetch(connection, query, turn) if covered(scopes, row[0]))
    found = (fact for scope, key in keys_of for fact in history(connection, scope, key, known))
    return sorted((fact for fact in found if turn in fact.because), key=attrgetter("position"))


def superseded(
    connection: sa.Connection, turns: Sequence[Position], known: Known, scopes: Scopes
) -> dict[Position, Position]:
    """Return which turns facts of these scopes rest on of which none holds.

    Each has the position of what took its place: another assertion of the key, or the retraction. So has an answer that
    repeats the value of such a fact soon after its turn.
    """
    query = (
        f"SELECT shown, answer, {COLUMNS} FROM ({_SHOWN} UNION ALL {_ANSWERS}) JOIN fact_evidence USING (turn) "
        f"JOIN facts ON position = fact WHERE position <= ?2 AND {distrust.of_fact('?2')} IS NULL ORDER BY position"
    )
    found = [(*row[:2], Assertion._make(row[2:])) for row in fetch(connection, query, listed(turns), known.upto)]
    by, hold = dict[Position, Position](), set[Position]()
    for turn, answer, item in found:
        if not covered(scopes, item.scope) or not (answer is None or _repeats(answer, item.value)):
            continue
        now = belief(connection, item.scope, item.key, known)
        if item.retracted is not None and item.retracted <= known.upto:
            by[turn] = item.retracted
        elif now is None or item.valid_from > known.valid_at or item.value == now.decides.value:
            hold.add(turn)
        else:
            by[turn] = now.decides.position
    return {turn: position for turn, position in by.items() if turn not in hold}


def _repeats(answer: str, value: bytes) -> bool:
    """Whether an answer has the value of a fact, a text or a number, as a word."""
    said = _VALUE.decode(value)
    is_said = isinstance(said, str | int | float) and not isinstance(said, bool)
    return is_said and re.search(rf"(?<!\w){re.escape(str(said))}(?!\w)", answer, re.IGNORECASE) is not None


def changes(connection: sa.Connection, scopes: Scopes, before: Known, after: Known) -> Iterator[FactChange]:
    """Yield the facts of these scopes that have another value at `after` than at `before`, by scope and key."""
    query = (
        "SELECT DISTINCT scope, key FROM facts "
        "WHERE position <= ?1 AND (position > ?2 OR retracted > ?2 OR valid_from > ?3 OR EXISTS "
        "(SELECT 1 FROM distrusts WHERE max(position, coalesce(undone, 0)) > ?2)) ORDER BY scope, key"
    )
    rows = fetch(connection, query, after.upto, before.upto, before.valid_at)
    for scope, key in (row for row in rows if covered(scopes, row[0])):
        old, new = belief(connection, scope, key, before), belief(connection, scope, key, after)
        was, has = (NOTHING if found is None else found.decides.value for found in (old, new))
        if was == has:
            continue
        change = "added" if was == NOTHING else "changed" if has != NOTHING else "ended" if new else "retracted"
        decides = cast(Belief, old).decides.retracted if new is None else new.decides.position
        if decides is None or decides > after.upto:
            gone = (item.distrusted for item in history(connection, scope, key, after))
            change, decides = "distrusted", max(filter(None, gone))
        values: dict[str, Any] = {"before": _VALUE.decode(was), "after": _VALUE.decode(has), "position": decides}
        yield FactChange(scope=scope, key=key, change=cast(Any, change), **values)


def at(connection: sa.Connection, positions: Sequence[int]) -> list[Assertion]:
    """Return the rows of the assertions at positions, by position."""
    query = f"SELECT {COLUMNS} FROM facts WHERE position IN (SELECT value FROM json_each(?)) ORDER BY position"
    return [Assertion._make(row) for row in fetch(connection, query, listed(positions))]


def made_by(connection: sa.Connection, maker: str) -> list[Assertion]:
    """Return the rows of the assertions of a maker, by position."""
    query = f"SELECT {COLUMNS} FROM facts WHERE maker = ? ORDER BY position"
    return [Assertion._make(row) for row in fetch(connection, query, maker)]


def as_fact(
    row: Assertion,
    state: FactState,
    *,
    until: int | None = None,
    distrusted: Position | None = None,
    assertions: tuple[Position, ...] = (),
    nearest: Sequence[str] = (),
) -> Fact:
    """Return an assertion as a result."""
    retracted = state == "retracted"
    return Fact(
        key=row.key,
        value=_VALUE.decode(row.value),
        scope=row.scope,
        valid_from=to_datetime(Micros(row.valid_from)),
        assumed=bool(row.assumed),
        until=None if until is None else to_datetime(Micros(until)),
        checked_at=to_datetime(Micros(row.checked_at)),
        state=state,
        position=row.position,
        assertions=assertions or (row.position,),
        because=_POSITIONS.decode(row.because),
        recorded_at=to_datetime(Micros(row.recorded_at)),
        maker=row.maker,
        session=row.session,
        actor=row.actor,
        proposal=row.proposal,
        proposed_by=row.proposed_by,
        retracted=row.retracted if retracted else None,
        reason=row.reason if retracted else "",
        distrusted=distrusted,
        nearest=tuple(nearest),
    )
