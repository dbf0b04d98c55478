"""Sessions: the list and the search, one session as of a moment, and how sessions descend from each other."""

import re
from bisect import bisect
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

from starlette.responses import Response

from mnemolog.application.facts import Distrust
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.errors import InvalidInput, MnemologError
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointRestored,
    RecordedEvent,
    SessionEnded,
    SessionResumed,
    TurnsRewound,
)
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scope, covered
from mnemolog.domain.session import SessionState, cut, session_stream
from mnemolog.domain.spelling import normalized
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position, require_one_reading, to_datetime, to_micros
from mnemolog.domain.working_memory import is_expired
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall.hits import sees
from mnemolog.projections.recall.phrases import search_for
from mnemolog.projections.sql.queries import actors, names
from mnemolog.projections.sql.shown import Showings, showings
from mnemolog.results import Checkpoint, Note, Task
from mnemolog.server.console.moment import AsOf, as_of
from mnemolog.server.console.page import (
    ConsoleRequest,
    ListPage,
    PageRequest,
    action,
    local_target,
    part_of,
    redirect,
    view,
)
from mnemolog.server.console.receipts_page import ReceiptFilter, newest_receipts
from mnemolog.server.console.rendering import EXCERPT_CHARACTERS_MAX
from mnemolog.store import MemoryStore

LINEAGE_MAX: Final = 100
"""Sessions of a page."""


class Mark(Result, frozen=True, kw_only=True):
    """Something that happened to a session."""

    kind: Literal["rewind", "restore", "checkpoint", "end", "resume"]
    position: Position
    at: datetime
    to: Position | None = None
    """Of a rewind or a restore: turns after this position are hidden since."""
    detail: str = ""
    """The name of a checkpoint, the reason of an end."""


def marks_of(store: MemoryStore, session: str, *, upto: Position) -> tuple[Mark, ...]:
    """Return what happened to a session up to a position, in order. Reads its events, without the turns."""

    def add(marks: tuple[Mark, ...] | None, recorded: RecordedEvent, _: object) -> tuple[Mark, ...]:
        found = _mark(recorded)
        return (marks or ()) + ((found,) if found is not None else ())

    return store.parts.log.fold(session_stream(session), add, upto=upto).state or ()


def hidden_by(marks: Sequence[Mark], position: Position) -> Mark | None:
    """Return what hid a turn first, None if nothing did."""
    return next((mark for mark in marks if mark.to is not None and mark.to < position < mark.position), None)


def _mark(recorded: RecordedEvent) -> Mark | None:
    position, at = recorded.position, to_datetime(recorded.recorded_at)
    match recorded.event:
        case TurnsRewound(to=to):
            return Mark(kind="rewind", position=position, at=at, to=Position(to))
        case CheckpointRestored(position=to):
            return Mark(kind="restore", position=position, at=at, to=Position(to))
        case CheckpointCreated(name=name):
            return Mark(kind="checkpoint", position=position, at=at, detail=name)
        case SessionEnded(reason=reason):
            return Mark(kind="end", position=position, at=at, detail=reason)
        case SessionResumed(reason=reason):
            return Mark(kind="resume", position=position, at=at, detail=reason or "")
    return None


class LineageRow(Result, frozen=True, kw_only=True):
    """A session in the tree."""

    summary: SessionSummary
    depth: int
    """How many sessions of the tree it descends from."""
    marks: tuple[Mark, ...]


class Lineage(ListPage, frozen=True, kw_only=True):
    """Families of sessions."""

    session: str
    """The session whose family is shown; empty for the newest families."""
    rows: tuple[LineageRow, ...]
    """A parent comes before its children, and each family together."""


@view("/lineage", title="Lineage", template="lineage.html")
def lineage(store: MemoryStore, asked: PageRequest) -> Lineage:
    """Show the family of one session, or the newest families that have branches."""
    session, before, upto = asked.text("session"), asked.position("before"), asked.at.position
    within = store if session else asked.limited(store)
    families = within.parts.session_list.families(session=session, as_of=upto, before=before, limit=LINEAGE_MAX)
    rows = (
        LineageRow(summary=item, depth=depth, marks=marks_of(within, item.session, upto=upto))
        for item, depth in _in_tree_order(families.sessions)
    )
    return Lineage(session=session, rows=tuple(rows), earlier=families.more)


def _in_tree_order(sessions: Iterable[SessionSummary]) -> list[tuple[SessionSummary, int]]:
    """Return sessions with their depths: the newest family first, in it each session before its children."""
    children: dict[str, list[SessionSummary]] = {}
    known: dict[str, SessionSummary] = {}
    roots: list[SessionSummary] = []
    for item in sessions:  # A parent comes before its children.
        known[item.session] = item
        (children.setdefault(item.parent, []) if item.parent in known and item.parent else roots).append(item)
    found: list[tuple[SessionSummary, int]] = []
    left = [(root, 0) for root in roots]
    while left:
        item, depth = left.pop()
        found.append((item, depth))
        left += [(child, depth + 1) for child in reversed(children.get(item.session, []))]
    return found


TURNS_MAX: Final = 100
"""Turns of a page."""
VALUES_MAX: Final = 500
NOTES_MAX: Final = 100
"""The newest ones."""
RECEIPTS_MAX: Final = 500
"""Receipts between the turns of a page."""
NEAR_MAX: Final = 3
"""Receipts between two turns by those who record turns of the session, if it is unknown for which session."""
OTHERS_MAX: Final = 20
"""Receipts of others between two turns."""


class Asked(Result, frozen=True, kw_only=True):
    """What the memory was asked between two turns, by recalls and contexts that left a receipt."""

    receipts: tuple[Receipt, ...] = ()
    """In order: what this session asked, and the last `NEAR_MAX` of those who record its turns, in it or above."""
    others: tuple[Receipt, ...] = ()
    """The last `OTHERS_MAX` of what else was asked meanwhile, in it or above."""
    left_out: int = 0
    """How many of these there are."""


class SeenTurn(Result, frozen=True, kw_only=True):
    """A turn of the conversation."""

    turn: Turn
    asked: Asked
    """What was asked just before it."""
    inherited: bool
    """Whether it was recorded in a session that this one was branched from."""
    hidden: bool
    """Whether the session no longer sees it."""
    hidden_by: Mark | None
    """The rewind or the restore that hid it."""
    shown: Showings | None
    """How many answers had shown it; None if none had, or if the caller does not see all of them."""
    distrust: Distrust | None
    """Why no answer shows it; None if one may, or if that is not the caller's to see."""


class KeptValue(Result, frozen=True, kw_only=True):
    """A value of working memory."""

    key: str
    value: Any
    expires_at: datetime | None
    """None if it never expires."""
    expired: bool
    """Whether it had expired at the moment of the page: then the agent did not see it."""


class SessionView(ListPage, frozen=True, kw_only=True):
    """A session at a moment, with a page of its turns."""

    session: str
    title: str
    agent: str
    scope: str
    started_at: datetime
    started_position: Position
    reason: str
    """Why it was started: `new`, `branch`, `compress` and so on."""
    parent: str | None
    branched_at: Position | None
    lineage: tuple[str, ...]
    """The sessions that it was branched from, the first one first."""
    begun: bool
    """Whether it had been started at the moment of the page; otherwise everything below is empty."""
    ended: bool = False
    turns: tuple[SeenTurn, ...] = ()
    asked: Asked = Asked()
    """What was asked after the last turn of the page."""
    asked_to: Position | None = None
    """Receipts up to here were not looked through; None if all were."""
    values: tuple[KeptValue, ...] = ()
    values_left_out: int = 0
    task: Task | None = None
    notes: tuple[Note, ...] = ()
    notes_left_out: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()


@action("/distrust", title="Distrust", verb="forget")
async def distrust(asked: ConsoleRequest) -> Response:
    """Show turns in no answer from here on."""
    await asked.caller.store.distrust(positions=asked.positions("positions"), reason=asked.text("reason"))
    return redirect(local_target(asked.text("next")))


@action("/distrust/end", title="Trust again", verb="forget")
async def trust_again(asked: ConsoleRequest) -> Response:
    """End a distrust. Like `distrust`, it shows the page `next` then."""
    await asked.caller.store.trust_again(asked.whole("distrust", 0, most=INTEGER_MAX))
    return redirect(local_target(asked.text("next")))


@view("/session", title="Session", template="session.html")
def session(store: MemoryStore, asked: PageRequest) -> SessionView:
    """Show the session `id`: `TURNS_MAX` turns, the last ones first seen, and its working memory.

    `turn` is the position of a turn that has to be among them. Raises `UnknownSession`.
    """
    before, after, at = asked.position("before"), asked.position("after"), asked.at
    if (turn := asked.position("turn")) is not None and not before and not after:
        before = Position(turn + 1 + TURNS_MAX // 2)
    now = store.parts.visible.state(asked.text("id"))
    about: dict[str, Any] = {
        "session": now.session,
        "title": now.started.title,
        "agent": now.started.agent,
        "scope": now.started.scope,
        "started_at": to_datetime(store.parts.log.recorded_at(now.started_position)),
        "started_position": now.started_position,
        "reason": now.started.reason,
        "parent": now.started.parent,
        "branched_at": now.started.branched_at,
        "lineage": now.ancestors,
    }
    if at.position < now.started_position:
        return SessionView(**about, begun=False)
    state = now if at.is_now else store.parts.visible.state_at(now.session, at.position)
    # Values expire while nothing is recorded: at the time that was asked for, they are those that were left then.
    if at.time is not None:
        moment = to_micros("at", at.time)
    else:
        moment = store.parts.clock.now() if at.is_now else store.parts.log.recorded_at(at.position)
    values = [
        KeptValue(
            key=key,
            value=value.value,
            expires_at=None if value.expires_at is None else to_datetime(value.expires_at),
            expired=is_expired(value, moment),
        )
        for key, value in sorted(state.values.items())[:VALUES_MAX]
    ]
    notes = [Note.of(state.notes[number]) for number in range(len(state.notes))]
    return SessionView(
        **about,
        **_conversation(store, state, at, before=before, after=after),
        begun=True,
        ended=state.ended,
        values=tuple(values),
        values_left_out=max(len(state.values) - VALUES_MAX, 0),
        task=None if state.task is None else Task.of(state.task),
        notes=tuple(notes[-NOTES_MAX:]),
        notes_left_out=max(len(notes) - NOTES_MAX, 0),
        checkpoints=tuple(
            sorted((Checkpoint.of(item) for item in state.checkpoints.values()), key=lambda item: item.position)
        ),
    )


def _conversation(
    store: MemoryStore, state: SessionState, at: AsOf, *, before: Position | None, after: Position | None
) -> dict[str, Any]:
    """Return a page of the turns, hidden ones included, in order."""
    end = Position(at.position + 1)
    seen = cut(state.spans, upto=at.position)
    every = cut(store.parts.visible.spans(state.session, at.position, hidden=True), upto=at.position)
    before = None if before is None or before >= end else before
    found = store.parts.projections.turns_in(
        every,
        after=after or ORIGIN,
        before=end if before is None else before,
        limit=TURNS_MAX + 1,
        last=None if after is not None else TURNS_MAX + 1,
    )
    listed, ways = part_of(found, lambda turn: turn.position, before=before, after=after, most=TURNS_MAX)
    marks = _marks_above(store, state, at) if any(not sees(seen, turn) for turn in listed) else ()
    places = [turn.position for turn in listed]
    begin = min([state.started_position, *places[:1]]) if "earlier" not in ways else found[0].position
    shown = _showings(store, places, upto=at.position)
    is_distrusted = any(turn.distrusted for turn in listed)
    distrusts = {item.position: item for item in store.distrusts()} if is_distrusted else {}
    asked, asked_to = _asked(
        store, state, places, after=begin if after is None else after, upto=ways.get("later", at.position)
    )
    turns = (
        SeenTurn(
            turn=turn,
            asked=before_it,
            inherited=turn.session != state.session,
            hidden=not sees(seen, turn),
            hidden_by=None if sees(seen, turn) else hidden_by(marks, turn.position),
            shown=shown.get(turn.position),
            distrust=distrusts.get(turn.distrusted),
        )
        for turn, before_it in zip(listed, asked, strict=False)
    )
    return {
        "asked": asked[-1],
        "asked_to": asked_to,
        "turns": tuple(turns),
        **ways,
    }


def _showings(store: MemoryStore, turns: list[Position], *, upto: Position) -> dict[Position, Showings]:
    if store.parts.boundary.scopes:
        return {}
    with store.parts.projections.current_views().database.reading() as connection:
        return showings(connection, turns, upto=upto)


def _asked(
    store: MemoryStore, state: SessionState, turns: list[Position], *, after: Position, upto: Position
) -> tuple[list[Asked], Position | None]:
    """Return what was asked before each of these turns, and after the last; and up to where nothing was looked for."""
    found = newest_receipts(store, wanted=ReceiptFilter(), after=after, upto=upto, limit=RECEIPTS_MAX)
    with store.parts.projections.current_views().database.reading() as connection:
        own = actors(connection, [state.session, *state.ancestors])
    between: list[list[Receipt]] = [[] for _ in range(len(turns) + 1)]
    of_here = set[Position]()
    for receipt in reversed(found.receipts):
        of = receipt.asked_in or receipt.session
        is_inherited = of in state.ancestors and receipt.position <= (state.started.branched_at or ORIGIN)
        is_above = receipt.session is None and covered(tuple(map(Scope, receipt.scopes)), state.started.scope)
        if of == state.session or is_inherited:
            of_here.add(receipt.position)
        elif not is_above and receipt.session != state.session:
            continue
        between[bisect(turns, receipt.position)].append(receipt)
    asked = []
    for receipts in between:
        near = [item.position for item in receipts if item.asked_in is None and item.actor in own]
        shown = of_here.union([at for at in near if at not in of_here][-NEAR_MAX:])
        others = [item for item in receipts if item.position not in shown]
        kept = tuple(item for item in receipts if item.position in shown)
        asked.append(Asked(receipts=kept, others=tuple(others[-OTHERS_MAX:]), left_out=len(others)))
    return asked, found.before


def _marks_above(store: MemoryStore, state: SessionState, at: AsOf) -> tuple[Mark, ...]:
    """Return what hid turns of a session: in itself, or before it was branched in those it comes from."""
    found: list[Mark] = []
    end = at.position
    for item in (state.session, *reversed(state.ancestors)):
        found += marks_of(store, item, upto=end)
        first = store.parts.visible.states.latest(item)
        if first is None or first.started.branched_at is None:
            break
        end = Position(min(end, first.started.branched_at))
    return tuple(sorted(found, key=lambda mark: mark.position))


ROWS_MAX: Final = 100
"""Rows of a page."""
FOUND_MAX: Final = 1_000
"""Turns that hold a phrase are counted up to this number."""
FOUND_TURNS_MAX: Final = 50
"""Of these, the newest are listed."""
NAMES_MAX: Final = 20
"""Scopes, keys of facts and actors that are listed, of each."""
_AMOUNT: Final = re.compile(r"(an?|\d+) ?[a-z]+")
"""Such as `90 days`, which is also what a user said; with `ago` it is a time."""


class FoundTurn(Result, frozen=True, kw_only=True):
    """A turn that holds a phrase."""

    position: Position
    session: str
    who: str
    before: str
    """What stands before the phrase."""
    phrase: str
    after: str


class Found(Result, frozen=True, kw_only=True):
    """What a phrase is in, besides titles and ids of sessions."""

    turns: int
    """In so many turns, up to `FOUND_MAX`."""
    newest: tuple[FoundTurn, ...]
    scopes: tuple[str, ...]
    keys: tuple[str, ...]
    """Of facts."""
    actors: tuple[str, ...]


class SessionPage(ListPage, frozen=True, kw_only=True):
    """A page of the list."""

    sessions: tuple[SessionSummary, ...]
    """The session that was started last first."""
    found: Found | None
    """Where the phrase of the search is; None without one."""


@view("/sessions", title="Sessions", template="sessions.html")
def sessions(store: MemoryStore, asked: PageRequest) -> SessionPage:
    """Show the sessions that had started at a moment, `ROWS_MAX` at a time, or what a phrase is in."""
    before, after, within = asked.position("before"), asked.position("after"), asked.limited(store)
    phrase, agent = asked.text("q"), asked.text("agent") or None
    wanted: dict[str, Any] = {"agent": agent, "title": phrase or asked.text("title"), "as_of": asked.at.position}

    def place(item: SessionSummary) -> Position:
        return item.started_position

    rows = within.parts.session_list.page(**wanted, before=before, after=after, limit=ROWS_MAX + 1)
    rows.sort(key=place)
    listed, ways = part_of(rows, place, before=before, after=after, most=ROWS_MAX)
    return SessionPage(sessions=listed[::-1], found=_found(within, phrase, asked.at) if phrase else None, **ways)


def _found(store: MemoryStore, phrase: str, at: AsOf) -> Found:
    search, phrase = search_for(phrase), normalized("NFC", phrase)
    turns = [turn for turn in store.find(phrase, hidden=True, limit=FOUND_MAX) if turn.position <= at.position]
    shown = []
    for turn in reversed(turns[-FOUND_TURNS_MAX:]):
        text, start = normalized("NFC", turn.text), search(turn.text) or 0
        end, around = start + len(phrase), EXCERPT_CHARACTERS_MAX // 2
        pieces = {
            "before": ("…" if start > around else "") + text[max(start - around, 0) : start],
            "phrase": text[start:end],
            "after": text[end : end + around] + ("…" if end + around < len(text) else ""),
        }
        who = turn.speaker or turn.role.value
        shown.append(FoundTurn(position=turn.position, session=turn.session, who=who, **pieces))
    scopes, keys, actors = (
        tuple(name for name in names if phrase.casefold() in name.casefold())[:NAMES_MAX] for names in _names(store)
    )
    return Found(turns=len(turns), newest=tuple(shown), scopes=scopes, keys=keys, actors=actors)


def _names(store: MemoryStore) -> tuple[list[str], list[str], list[str]]:
    """Return the scopes, the keys of facts and the actors there are, as far as the store shows them."""
    with store.parts.projections.current_views().database.reading() as connection:
        return known_scopes(store), *names(connection, store.parts.boundary.scopes)


def known_scopes(store: MemoryStore) -> list[str]:
    """Return the scopes that sessions are in, and those above them, as far as the store shows them."""
    paths = [group.name.split("/") for group in store.parts.session_list.groups("scope") if group.name]
    above = {"/".join(path[: length + 1]) for path in paths for length in range(len(path))}
    boundary = store.parts.boundary
    return sorted(scope for scope in above if boundary.over(scope) or not boundary.scopes)


def search(store: MemoryStore, wanted: str, here: str) -> tuple[str, dict[str, str]]:
    """Return the page, and its parameters, that a search means for `wanted` on the page `here`.

    `@42` or a position is an event, and the id of a session, a scope, the key of a fact or an actor is what it names.
    A time as people write it is that moment. All else is a phrase, and so is what stands in quotation marks. Raises
    `InvalidInput`.
    """
    phrase = wanted.strip().strip('"“”').strip()
    number = phrase.removeprefix("@")
    if phrase == wanted.strip():
        if number.isdecimal() and len(number) < 16 and 0 < int(number) <= store.parts.log.head().position:
            return f"/event/{int(number)}", {}
        states = store.parts.visible.states
        with suppress(MnemologError):
            if (state := states.latest(states.id_of(phrase))) is not None:
                return "/session", {"id": state.session}
        pages = ("/sessions", "scope"), ("/facts", "pattern"), ("/audit", "actor")
        for (shown_on, name), known in zip(pages, _names(store), strict=True):
            if phrase in known:
                return shown_on, {name: phrase}
        require_one_reading("Search", phrase.lower())
        with suppress(InvalidInput):
            if phrase and not number.isdecimal() and not _AMOUNT.fullmatch(phrase.lower()):
                return here, {"at": as_of(store, phrase).text}
    return "/sessions", {"q": phrase}
