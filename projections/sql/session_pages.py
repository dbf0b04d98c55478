"""Sessions as of a position of the log: a page of them, and their numbers by scope and by agent.

Sessions are stored in the order of their start, so a page is read without the sessions before it. Turns are counted by
bisection, and only of sessions that have events on both sides of the position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scopes
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Micros, Position, to_micros
from mnemolog.projections.read_models import SessionSummary
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import SESSIONS
from mnemolog.projections.sql.database import fetch, listed

ROWS_AT_ONCE: Final = 200

By = Literal["scope", "agent"]


class AsOf(NamedTuple):
    """A moment of the log."""

    position: Position
    recorded_at: Micros
    """When the event at that position was recorded."""


class Group(Result, frozen=True, kw_only=True):
    """The sessions of one scope, or of one agent, that had started at a moment."""

    name: str
    sessions: int
    turns: int
    """Number of their own turns up to that moment, without forgotten ones."""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list."""

    scopes: Scopes = ()
    """At or below any of these."""
    agents: Sequence[str] | None = None
    title: str = ""
    """A part of the title or the id, in any case."""


def page(
    connection: sa.Connection,
    which: Which,
    *,
    as_of: AsOf,
    before: Position | None = None,
    after: Position | None = None,
    limit: int,
) -> Iterator[SessionSummary]:
    """Yield up to `limit` sessions that had started at a moment, the last ones first.

    They started before the position `before`; or with `after` they are the first ones that started after it, first to
    last. Turns and the end of a session are those of the moment; `last_position` is at most that of the moment.
    """
    rising = after is not None
    left = limit
    part = which.title.casefold()
    low, high = after or ORIGIN, min(as_of.position, INTEGER_MAX if before is None else before - 1)
    while left > 0 and low < high:
        found = _rows(connection, which, low, high, rising=rising, limit=min(left, ROWS_AT_ONCE))
        for row in found:
            if part in row.title.casefold() or part in row.session.casefold():
                yield _as_of(connection, queries.summary(row), as_of)
                left -= 1
                if not left:
                    return
        if not found:
            return
        low, high = (found[-1].started_position, high) if rising else (low, found[-1].started_position - 1)


def _rows(
    connection: sa.Connection, which: Which, low: int, high: int, *, rising: bool, limit: int
) -> list[sa.Row[Any]]:
    started = SESSIONS.c.started_position
    query = sa.select(SESSIONS).where(started > low, started <= high, queries.below(SESSIONS.c.scope, which.scopes))
    query = query.order_by(started if rising else started.desc()).limit(limit)
    if which.agents is not None:
        query = query.where(SESSIONS.c.agent.in_(which.agents))
    return list(connection.execute(query))


def _as_of(connection: sa.Connection, found: SessionSummary, as_of: AsOf) -> SessionSummary:
    if found.last_position <= as_of.position:
        return found
    ended_at = found.ended_at
    return msgspec.structs.replace(
        found,
        turns=queries.turns_until(connection, found.session, as_of.position),
        ended_at=ended_at if ended_at is not None and to_micros("ended_at", ended_at) <= as_of.recorded_at else None,
        last_position=as_of.position,
    )


def groups(connection: sa.Connection, *, by: By, scopes: Scopes = (), upto: Position) -> list[Group]:
    """Return the sessions at or below any of `scopes` that had started at a position, counted by scope or by agent."""
    column = SESSIONS.c[by]
    within = sa.and_(SESSIONS.c.started_position <= upto, queries.below(SESSIONS.c.scope, scopes))
    is_over = SESSIONS.c.last_position <= upto
    turns = sa.func.sum(sa.case((is_over, SESSIONS.c.turns - SESSIONS.c.forgotten), else_=0))
    counted = {
        name: (sessions, number)
        for name, sessions, number in connection.execute(
            sa.select(column, sa.func.count(), turns).where(within).group_by(column)
        )
    }
    crossing = sa.select(column, SESSIONS.c.session).where(within, SESSIONS.c.last_position > upto)
    for name, session in connection.execute(crossing).all():
        sessions, number = counted[name]
        counted[name] = (sessions, number + queries.turns_until(connection, session, upto))
    return [Group(name=name, sessions=sessions, turns=turns) for name, (sessions, turns) in sorted(counted.items())]


class Families(NamedTuple):
    """Sessions that are related by their parents."""

    sessions: list[SessionSummary]
    """In the order of their start: a parent comes before its children."""
    more: Position | None
    """The start of the root of the last family: the next page continues before it. None if there are no more."""


def families(
    connection: sa.Connection,
    *,
    scopes: Scopes = (),
    as_of: AsOf,
    before: Position | None = None,
    limit: int,
) -> Families:
    """Return the families of more than one session whose roots are the newest, as of a moment.

    They have `limit` sessions or a few more. Their roots started before the position `before`. A family with more than
    `limit` sessions is cut to its first ones.
    """
    parents = _parents(connection, scopes, as_of.position)
    children = _by_parent(parents)
    roots = {
        item.session: item for item in _named(connection, [name for name in children if name not in parents], as_of)
    }
    chosen: list[str] = []
    more: Position | None = None
    for root in sorted(roots.values(), key=lambda item: -item.started_position):
        if before is not None and root.started_position >= before:
            continue
        if len(chosen) >= limit:
            return Families(_named(connection, chosen, as_of), more)
        chosen += _below(children, root.session)[:limit]
        more = root.started_position
    return Families(_named(connection, chosen, as_of), None)


def family(connection: sa.Connection, session: str, *, as_of: AsOf, limit: int) -> Families:
    """Return the first `limit` sessions that are related to one, as of a moment; none for an unknown one."""
    parents = _parents(connection, (), as_of.position)
    root, seen = session, {session}
    while (parent := parents.get(root)) is not None and parent not in seen:
        seen.add(root := parent)
    members = _below(_by_parent(parents), root)
    return Families(_named(connection, members[:limit], as_of), None)


def _parents(connection: sa.Connection, scopes: Scopes, upto: Position) -> dict[str, str]:
    """Return the parent of each session that has one, in the order of their start."""
    query = sa.select(SESSIONS.c.session, SESSIONS.c.parent).where(
        SESSIONS.c.parent.is_not(None),
        SESSIONS.c.started_position <= upto,
        queries.below(SESSIONS.c.scope, scopes),
    )
    rows = connection.execute(query.order_by(SESSIONS.c.started_position))
    return {row.session: row.parent for row in rows}


def actors(connection: sa.Connection, sessions: Sequence[str]) -> set[str]:
    """Return who recorded the turns of sessions: an empty name for unknown ones."""
    of = "session IN (SELECT value FROM json_each(?))"
    query = f"SELECT DISTINCT ifnull(actor, '') FROM {queries.WITH_SESSIONS} WHERE {of}"
    return {actor for (actor,) in fetch(connection, query, listed(sessions))}


def names(connection: sa.Connection, scopes: Scopes = ()) -> tuple[list[str], list[str]]:
    """Return the keys of facts, and who recorded turns and asserted facts. With `scopes` only at or below any of them.

    Reads every turn.
    """
    within, values = queries.below_any(scopes) if scopes else ("1", [])
    keys = f"SELECT DISTINCT key FROM fact_keys WHERE {within} ORDER BY key"
    turns = f"SELECT actor FROM {queries.WITH_SESSIONS} WHERE {within}"
    actors = f"{turns} UNION SELECT actor FROM facts WHERE {within} ORDER BY actor"
    found = fetch(connection, keys, *values), fetch(connection, actors, *values, *values)
    of_facts, of_actors = ([name for (name,) in rows if name] for rows in found)
    return of_facts, of_actors


def branches(connection: sa.Connection, session: str, scopes: Scopes = ()) -> list[str]:
    """Return the sessions that come from the first ancestor of one by branching, itself and that ancestor included.

    With `scopes` only those at or below any of them.

    Reads the sessions that were started after that ancestor.
    """
    while found := fetch(connection, _BRANCHED_FROM, session):
        session = found[0][0]
    within, values = queries.below_any(scopes) if scopes else ("1", [])
    return _below(_by_parent(dict(fetch(connection, f"{_BRANCHED_AFTER} AND {within}", session, *values))), session)


_BRANCHED_FROM: Final = "SELECT parent FROM sessions WHERE session = ? AND branched_at IS NOT NULL"
_BRANCHED_AFTER: Final = (
    "SELECT session, parent FROM sessions WHERE branched_at IS NOT NULL AND started_position > "
    "(SELECT started_position FROM sessions WHERE session = ?)"
)


def _by_parent(parents: Mapping[str, str]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = {}
    for session, parent in parents.items():
        children.setdefault(parent, []).append(session)
    return children


def _below(children: Mapping[str, Sequence[str]], root: str) -> list[str]:
    """Return a session and all below it, level by level."""
    found, seen = [root], {root}
    for item in found:
        for child in children.get(item, ()):
            if child not in seen:
                seen.add(child)
                found.append(child)
    return found


def _named(connection: sa.Connection, sessions: Sequence[str], as_of: AsOf) -> list[SessionSummary]:
    """Return the sessions with these ids that had started at a moment, in the order of their start."""
    query = sa.select(SESSIONS).where(
        SESSIONS.c.session.in_(queries.one_of(sessions)), SESSIONS.c.started_position <= as_of.position
    )
    rows = connection.execute(query.order_by(SESSIONS.c.started_position)).all()
    return [_as_of(connection, queries.summary(row), as_of) for row in rows]
