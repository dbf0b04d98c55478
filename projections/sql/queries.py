"""Queries on the views: turns and sessions, with filters, the positions in spans of sessions, and sessions as of then.

Sessions are stored in the order of their start, so a page is read without the sessions before it. Turns are counted by
bisection, and only of sessions that have events on both sides of the position.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.message import Role
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scopes
from mnemolog.domain.session import Span
from mnemolog.domain.values import (
    INTEGER_MAX,
    ORIGIN,
    Micros,
    Position,
    Version,
    to_datetime,
    to_micros,
    within_calendar,
)
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.sql import distrust
from mnemolog.projections.sql.conversation_views import SESSIONS, TURNS
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.turn_tables import PLACES, places_of

NEXT_TO_SLASH: Final = "0"
"""The character after "/". A range up to it contains every path below."""


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which turns a recall may return. A field left at its default filters nothing."""

    scopes: Scopes = ()
    """At or below any of these."""
    session: str | None = None
    """Only its own turns, or with `spans` what it sees."""
    spans: tuple[Span, ...] | None = None
    """Only turns in any of these; an empty tuple matches no turn."""
    beside: Scopes | None = None
    """With `spans`: also turns of sessions at or below these that are no branches of `session` or of its ancestors."""
    roles: tuple[Role, ...] = ()
    speakers: tuple[str, ...] = ()
    since: Micros | None = None
    """Said at this moment or later."""
    until: Micros | None = None
    """Said before this moment."""
    after: Position | None = None
    """Recorded after this position."""
    last: Position | None = None
    """Recorded at this position or before. Not the same as `upto`: later turns count in rankings."""
    metadata: Mapping[str, Any] = {}
    """Turns that have each of these keys with exactly this JSON value."""
    distrusted: frozenset[Position] = frozenset()
    """Without these turns."""
    upto: Position | None = None
    """Ignore turns after this position. None for the head."""

    @property
    def leave_everything(self) -> bool:
        """Whether all turns match."""
        return self == Filters()


def below(column: sa.ColumnElement[str], scopes: Scopes) -> sa.ColumnElement[bool]:
    """Return the condition that a scope is any of `scopes` or below it."""
    ranges = [(column == item) | ((column >= item + "/") & (column < item + NEXT_TO_SLASH)) for item in scopes]
    return sa.or_(*ranges) if ranges else sa.true()


def below_any(scopes: Scopes, also: str = "") -> tuple[str, list[str]]:
    """Return the same condition on a column `scope` as SQL, with its values. There is at least one scope.

    `also` is another condition that holds for all rows: it limits how much of one scope an index reads.
    """
    values = [value for item in scopes for value in (item, f"{item}/", item + NEXT_TO_SLASH)]
    return f"({' OR '.join([f'scope = ?{also} OR (scope >= ? AND scope < ?)'] * len(scopes))})", values


class LastTurn(NamedTuple):
    """Where the last turn is, and when it was recorded."""

    position: Position
    recorded_at: Micros


def last_turn(connection: sa.Connection, *, upto: Position | None = None) -> LastTurn:
    """Return the last turn, or the last one up to a position; position 0 and time 0 if there is none."""
    query = "SELECT position, recorded_at FROM turns WHERE position <= ? ORDER BY position DESC LIMIT 1"
    found = fetch(connection, query, INTEGER_MAX if upto is None else upto)
    return LastTurn(*found[0]) if found else LastTurn(ORIGIN, Micros(0))


def last_recorded_at(connection: sa.Connection) -> datetime | None:
    """Return when the turn at the highest position was recorded, None if there is none."""
    found = fetch(connection, "SELECT recorded_at FROM turns ORDER BY position DESC LIMIT 1")
    return to_datetime(found[0][0]) if found else None


def turns_at(connection: sa.Connection, positions: Sequence[Position]) -> dict[Position, Turn]:
    """Return the turns at `positions`, by position. Positions without a turn are left out."""
    return {Position(row[0]): _turn(row) for row in fetch(connection, _SELECT_TURNS, listed(positions))}


WITH_SESSIONS: Final = f"turns CROSS JOIN sessions ON started_position = place / {PLACES}"
LISTED: Final = "position IN (SELECT value FROM json_each(?))"
_SELECT_TURNS: Final = (
    "SELECT position, session, scope, version, role, text, speaker, key, said_at, recorded_at, extra, "
    f"{distrust.of('turns.position', str(INTEGER_MAX))} FROM {WITH_SESSIONS} WHERE {LISTED}"
)


_BESIDE: Final = (
    "SELECT own.position, other.position FROM json_each(?) CROSS JOIN turns AS own ON own.position = value CROSS JOIN "
    "turns AS other ON other.place IN (SELECT place FROM turns WHERE {} LIMIT ?) ORDER BY own.position, other.place {}"
)
_AFTER: Final = _BESIDE.format(
    f"place > own.place AND place < (own.place / {PLACES} + 1) * {PLACES} ORDER BY place", ""
)
_BEFORE: Final = _BESIDE.format(
    f"place < own.place AND place >= own.place / {PLACES} * {PLACES} ORDER BY place DESC", "DESC"
)


def roles_at(connection: sa.Connection, positions: Sequence[Position]) -> dict[Position, Role]:
    """Return the roles of the turns at `positions`, by position."""
    query = "SELECT position, role FROM turns WHERE position IN (SELECT value FROM json_each(?))"
    return {Position(position): Role(role) for position, role in fetch(connection, query, listed(positions))}


def turns_beside(
    connection: sa.Connection, positions: Sequence[Position], *, newest_first: bool, limit: int
) -> dict[Position, list[Position]]:
    """Return the next turns in the session of each turn, up to `limit`: those after it, in order.

    With `newest_first` those before it, the newest first. A turn without such is left out.
    """
    found = dict[Position, list[Position]]()
    for position, other in fetch(connection, _BEFORE if newest_first else _AFTER, listed(positions), limit):
        found.setdefault(position, []).append(other)
    return found


def starts_of(connection: sa.Connection, sessions: Collection[str]) -> list[tuple[str, Position, bool, bool]]:
    """Return id and start of sessions, whether each is a branch, and whether it ever hid turns that it saw."""
    query = (
        "SELECT session, started_position, parent IS NOT NULL, hides FROM sessions "
        "WHERE session IN (SELECT value FROM json_each(?))"
    )
    return fetch(connection, query, listed(list(sessions)))


def titles_of(connection: sa.Connection, sessions: Collection[str]) -> dict[str, str]:
    """Return the titles of sessions by id; empty titles for sessions without one."""
    query = "SELECT session, title FROM sessions WHERE session IN (SELECT value FROM json_each(?))"
    return dict(fetch(connection, query, listed(list(sessions))))


def texts_at(connection: sa.Connection, positions: Sequence[Position]) -> Iterator[tuple[Position, str]]:
    """Yield position and text of the turns at `positions`, ascending, one in memory at a time."""
    driver: Any = connection.connection.driver_connection
    query = "SELECT position, text FROM turns WHERE position IN (SELECT value FROM json_each(?)) ORDER BY position"
    yield from driver.execute(query, (listed(positions),))


def turns_in(
    connection: sa.Connection,
    spans: Sequence[Span],
    *,
    after: Position = ORIGIN,
    before: Position | None = None,
    newest_first: bool = False,
    limit: int,
) -> list[Turn]:
    """Return up to `limit` turns in any of `spans`, after position `after` and before position `before`.

    The oldest ones in order; with `newest_first` the newest ones, newest first. For the next page give
    the last position as `after`, or as `before` with `newest_first`.
    """
    page = positions_in(connection, spans, after=after, before=before, newest_first=newest_first, limit=limit)
    turns = turns_at(connection, page)
    return [turns[position] for position in page]


def sessions(
    connection: sa.Connection, *, scopes: Scopes = (), agents: Sequence[str] | None = None, since: Micros | None = None
) -> list[SessionSummary]:
    """Return the sessions within `scopes`, of any of `agents`, started at `since` or later, in that order."""
    query = sa.select(SESSIONS).where(below(SESSIONS.c.scope, scopes)).order_by(SESSIONS.c.started_position)
    if agents is not None:
        query = query.where(SESSIONS.c.agent.in_(agents))
    if since is not None:
        query = query.where(SESSIONS.c.started_at >= since)
    return with_said(connection, [summary(row) for row in connection.execute(query)])


def with_said(
    connection: sa.Connection, found: Sequence[SessionSummary], *, upto: int = INTEGER_MAX
) -> list[SessionSummary]:
    """Return sessions with the times when their first and their last turn up to a position were said."""
    within = f"place BETWEEN value * {PLACES} AND value * {PLACES} + {PLACES - 1} AND position <= ?"
    said = f"SELECT coalesce(said_at, recorded_at) FROM turns WHERE {within} ORDER BY place"
    query = f"SELECT value, ({said} LIMIT 1), ({said} DESC LIMIT 1) FROM json_each(?)"
    wanted = listed([item.started_position for item in found])
    times = {started: moments for started, *moments in fetch(connection, query, upto, upto, wanted)}
    return [
        item
        if None in (of := times[item.started_position])
        else msgspec.structs.replace(
            item, said_from=to_datetime(within_calendar(of[0])), said_until=to_datetime(within_calendar(of[1]))
        )
        for item in found
    ]


def scopes(connection: sa.Connection, within: Scopes) -> list[str]:
    """Return the scopes of sessions, at or below any of `within`, in order."""
    query = sa.select(SESSIONS.c.scope).distinct().where(below(SESSIONS.c.scope, within))
    return sorted(connection.execute(query).scalars().all())


def session_titles(connection: sa.Connection) -> dict[str, str]:
    """Return the titles of all sessions by id."""
    return dict(fetch(connection, "SELECT session, title FROM sessions ORDER BY started_position"))


def counts(connection: sa.Connection) -> tuple[int, int]:
    """Return the number of sessions and the number of turns."""
    ((sessions, turns),) = fetch(connection, "SELECT count(*), coalesce(sum(turns - forgotten), 0) FROM sessions")
    return sessions, turns


def turns_up_to(connection: sa.Connection, position: Position) -> int:
    """Return the number of turns up to a position."""
    return connection.execute(sa.select(sa.func.count()).where(TURNS.c.position <= position)).scalar_one()


def one_of(values: Sequence[Any]) -> sa.Select[Any]:
    """Return values as a subquery for `IN`."""
    return sa.select(sa.func.json_each(listed(values)).table_valued("value").c.value)


def _turn(row: tuple[Any, ...]) -> Turn:
    position, session, scope, version, role, text, speaker, key, said_at, recorded_at, packed, distrusted = row
    recorded = to_datetime(Micros(recorded_at))
    extra = msgspec.msgpack.decode(packed) if packed is not None else {"tool_calls": [], "metadata": {}}
    return Turn(
        position=Position(position),
        session=session,
        scope=scope,
        version=Version(version),
        role=Role(role),
        text=text,
        speaker=speaker,
        key=key,
        said_at=recorded if said_at is None else to_datetime(Micros(said_at)),
        recorded_at=recorded,
        tool_calls=extra["tool_calls"],
        metadata=extra["metadata"],
        distrusted=distrusted,
    )


def summary(row: sa.Row[Any]) -> SessionSummary:
    """Return a row of `SESSIONS` as a session."""
    return SessionSummary(
        session=row.session,
        title=row.title,
        agent=row.agent,
        scope=row.scope,
        parent=row.parent,
        branched_at=row.branched_at,
        reason=row.reason,
        turns=row.turns - row.forgotten,
        forgotten_turns=row.forgotten,
        started_at=to_datetime(Micros(row.started_at)),
        ended_at=None if row.ended_at is None else to_datetime(Micros(row.ended_at)),
        started_position=Position(row.started_position),
        last_position=Position(row.last_position),
    )


SPANS_INLINE_MAX: Final = 16
"""Maximum number of spans written into the statement; more are passed as one JSON list.

Written out, they are checked only for turns that match a text search, which helps in a session with 100,000 turns.
The list is evaluated as a whole, but it can hold thousands of spans; SQLite limits the depth of expressions to 1,000.
"""

_POSITION_AT: Final = (
    f"coalesce((SELECT position FROM turns WHERE place BETWEEN first + (low + high) / 2 AND first + high - 1 "
    f"ORDER BY place LIMIT 1), {INTEGER_MAX})"
)
_BISECT: Final = (
    "{name}(low, high) AS (SELECT 0, turns FROM of UNION ALL "
    f"SELECT iif({_POSITION_AT} <= {{limit}}, (low + high) / 2 + 1, low), "
    f"iif({_POSITION_AT} <= {{limit}}, high, (low + high) / 2) FROM {{name}}, of WHERE low < high)"
)
_POSITIONS: Final = (
    f"WITH RECURSIVE of(first, turns) AS (SELECT started_position * {PLACES}, turns FROM sessions WHERE session = ?1), "
    f"{_BISECT.format(name='begin', limit='?2')}, {_BISECT.format(name='stop', limit='?3')} "
    "SELECT position FROM turns WHERE place >= (SELECT first + low FROM begin, of WHERE low = high) "
    "AND place < (SELECT first + low FROM stop, of WHERE low = high) ORDER BY place {order} LIMIT ?4"
)
"""The turns of a session in a range of positions. Positions increase with places, so both ends are found by bisection:
a page costs the same in a session of any length."""
_COUNT: Final = (
    f"WITH RECURSIVE of(first, turns) AS (SELECT started_position * {PLACES}, turns FROM sessions WHERE session = ?1), "
    f"{_BISECT.format(name='stop', limit='?2')} SELECT low, first, (SELECT forgotten FROM sessions WHERE session = ?1) "
    "FROM stop, of WHERE low = high"
)
_PRESENT: Final = "SELECT count(*) FROM turns WHERE place >= ? AND place < ?"
_RISING: Final = _POSITIONS.replace("{order}", "ASC")
_FALLING: Final = _POSITIONS.replace("{order}", "DESC")


class _Range(NamedTuple):
    session: str
    after: int
    upto: int


def in_spans(spans: Sequence[Span]) -> sa.ColumnElement[bool]:
    """Return the condition that a turn lies in one of `spans`, which may overlap. Without spans it is false."""
    if not spans:
        return sa.false()
    if len(spans) > SPANS_INLINE_MAX:
        return TURNS.c.position.in_(one_by_one(spans))
    return sa.or_(
        *(
            sa.and_(
                in_session(span.session),
                TURNS.c.position + 0 > span.after,  # Plus 0: SQLite is to read the session, not the index of positions.
                TURNS.c.position + 0 <= _end(span),
            )
            for span in spans
        )
    )


def in_session(session: str) -> sa.ColumnElement[bool]:
    """Return the condition that a turn is of a session."""
    start = sa.select(SESSIONS.c.started_position).where(SESSIONS.c.session == session).scalar_subquery()
    return TURNS.c.place.between(*places_of(start))


def one_by_one(spans: Sequence[Span]) -> sa.Select[tuple[int]]:
    """Return the positions of the turns in `spans` as a subquery that reads each span's session."""
    rows = listed([(span.session, span.after, _end(span)) for span in spans])
    each = sa.func.json_each(rows).table_valued("value", name="span")
    part = TURNS.alias("part")
    session, after, upto = (sa.func.json_extract(each.c.value, f"$[{n}]") for n in range(3))
    found = sa.select(part.c.position).select_from(each).join(SESSIONS, SESSIONS.c.session == session)
    lies_in = sa.and_(
        part.c.place.between(*places_of(SESSIONS.c.started_position)),
        part.c.position + 0 > after,
        part.c.position + 0 <= upto,
    )
    return found.join(part, lies_in)


def positions_in(
    connection: sa.Connection,
    spans: Sequence[Span],
    *,
    after: Position = ORIGIN,
    before: Position | None = None,
    newest_first: bool = False,
    limit: int,
) -> list[Position]:
    """Return up to `limit` positions of turns in any of `spans`, after `after` and before `before`.

    The oldest ones, ascending; with `newest_first` the newest ones, descending. Spans beyond a full page
    are not read, so the cost depends on the page and not on the length of the history.
    """
    if limit < 1:
        return []
    found: list[int] = []
    statement = _FALLING if newest_first else _RISING
    for part in _ranges(spans, after=after, before=before, newest_first=newest_first):
        if len(found) >= limit:
            found = sorted(set(found), reverse=newest_first)[:limit]
            if len(found) == limit and (part.upto <= found[-1] if newest_first else part.after >= found[-1]):
                break
        found.extend(row[0] for row in fetch(connection, statement, *part, limit))
    return [Position(position) for position in sorted(set(found), reverse=newest_first)[:limit]]


def turns_until(connection: sa.Connection, session: str, upto: Position) -> int:
    """Return the number of a session's own turns up to a position, without forgotten ones.

    Costs the same in a session of any length, unless turns of it were forgotten: then those left are counted.
    """
    ((number, first, forgotten),) = fetch(connection, _COUNT, session, upto)
    return int(fetch(connection, _PRESENT, first, first + number)[0][0]) if forgotten else int(number)


def _ranges(spans: Sequence[Span], *, after: Position, before: Position | None, newest_first: bool) -> list[_Range]:
    """Return the spans cut to `(after, before)`, in the order in which pages are filled."""
    last = INTEGER_MAX if before is None else before - 1
    cut = [_Range(span.session, max(span.after, after), min(_end(span), last)) for span in spans]
    ranges = [part for part in cut if part.after < part.upto]
    if newest_first:
        return sorted(ranges, key=lambda part: -part.upto)
    return sorted(ranges, key=lambda part: part.after)


def _end(span: Span) -> int:
    return INTEGER_MAX if span.upto is None else span.upto


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


def session_page(
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
                yield _as_of(connection, summary(row), as_of)
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
    query = sa.select(SESSIONS).where(started > low, started <= high, below(SESSIONS.c.scope, which.scopes))
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
        turns=turns_until(connection, found.session, as_of.position),
        ended_at=ended_at if ended_at is not None and to_micros("ended_at", ended_at) <= as_of.recorded_at else None,
        last_position=as_of.position,
    )


def groups(connection: sa.Connection, *, by: By, scopes: Scopes = (), upto: Position) -> list[Group]:
    """Return the sessions at or below any of `scopes` that had started at a position, counted by scope or by agent."""
    column = SESSIONS.c[by]
    within = sa.and_(SESSIONS.c.started_position <= upto, below(SESSIONS.c.scope, scopes))
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
        counted[name] = (sessions, number + turns_until(connection, session, upto))
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
        below(SESSIONS.c.scope, scopes),
    )
    rows = connection.execute(query.order_by(SESSIONS.c.started_position))
    return {row.session: row.parent for row in rows}


def actors(connection: sa.Connection, sessions: Sequence[str]) -> set[str]:
    """Return who recorded the turns of sessions: an empty name for unknown ones."""
    of = "session IN (SELECT value FROM json_each(?))"
    query = f"SELECT DISTINCT ifnull(actor, '') FROM {WITH_SESSIONS} WHERE {of}"
    return {actor for (actor,) in fetch(connection, query, listed(sessions))}


def names(connection: sa.Connection, scopes: Scopes = ()) -> tuple[list[str], list[str]]:
    """Return the keys of facts, and who recorded turns and asserted facts. With `scopes` only at or below any of them.

    Reads every turn.
    """
    within, values = below_any(scopes) if scopes else ("1", [])
    keys = f"SELECT DISTINCT key FROM fact_keys WHERE {within} ORDER BY key"
    turns = f"SELECT actor FROM {WITH_SESSIONS} WHERE {within}"
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
    within, values = below_any(scopes) if scopes else ("1", [])
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
        SESSIONS.c.session.in_(one_of(sessions)), SESSIONS.c.started_position <= as_of.position
    )
    rows = connection.execute(query.order_by(SESSIONS.c.started_position)).all()
    return [_as_of(connection, summary(row), as_of) for row in rows]
