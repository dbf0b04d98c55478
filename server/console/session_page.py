"""One session: the conversation, and what the agent kept for itself, as of a moment."""

from __future__ import annotations

from bisect import bisect
from datetime import datetime
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import clock_of, events_of, read, visible_of
from mnemolog.application.distrust import Distrust
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Position, to_datetime, to_micros
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scope, covered
from mnemolog.domain.session import SessionState, cut
from mnemolog.domain.working_memory import is_expired
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.hits import sees
from mnemolog.projections.sql.session_pages import actors
from mnemolog.projections.sql.shown import Showings, showings
from mnemolog.results import Checkpoint, Note, Task
from mnemolog.server.console.lineage_page import Mark, hidden_by, marks_of
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import ListPage, action, local_target, page, part_of, redirect
from mnemolog.server.console.parameters import position, positions, text, whole
from mnemolog.server.console.receipts_page import ReceiptFilter, newest_receipts
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

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
async def distrust(_request: Request, caller: Caller, form: QueryParams) -> Response:
    """Show turns in no answer from here on."""
    await caller.store.distrust(positions=positions(form, "positions"), reason=text(form, "reason"))
    return redirect(local_target(text(form, "next")))


@action("/distrust/end", title="Trust again", verb="forget")
async def trust_again(_request: Request, caller: Caller, form: QueryParams) -> Response:
    """End a distrust. Like `distrust`, it shows the page `next` then."""
    await caller.store.trust_again(whole(form, "distrust", 0, most=INTEGER_MAX))
    return redirect(local_target(text(form, "next")))


@page("/session", title="Session", template="session.html")
async def session(request: Request, caller: Caller, at: AsOf) -> SessionView:
    """Show the session `id`: `TURNS_MAX` turns, the last ones first seen, and its working memory.

    `turn` is the position of a turn that has to be among them.
    """
    query = request.query_params
    wanted = text(query, "id")
    before = position(query, "before")
    after = position(query, "after")
    if (turn := position(query, "turn")) is not None and not before and not after:
        before = Position(turn + 1 + TURNS_MAX // 2)
    return await read(caller.store, lambda store: view_of(store, wanted, at, before=before, after=after))


def view_of(
    store: MemoryStore, session_id: str, at: AsOf, *, before: Position | None, after: Position | None
) -> SessionView:
    """Return a session as of a moment. Raises `UnknownSession`."""
    visible = visible_of(store)
    now = visible.state(session_id)
    about: dict[str, Any] = {
        "session": now.session,
        "title": now.started.title,
        "agent": now.started.agent,
        "scope": now.started.scope,
        "started_at": to_datetime(events_of(store).recorded_at(now.started_position)),
        "started_position": now.started_position,
        "reason": now.started.reason,
        "parent": now.started.parent,
        "branched_at": now.started.branched_at,
        "lineage": now.ancestors,
    }
    if at.position < now.started_position:
        return SessionView(**about, begun=False)
    state = now if at.is_now else visible.state_at(session_id, at.position)
    # Values expire while nothing is recorded: at the time that was asked for, they are those that were left then.
    if at.time is not None:
        moment = to_micros("at", at.time)
    else:
        moment = clock_of(store).now() if at.is_now else events_of(store).recorded_at(at.position)
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
    every = cut(visible_of(store).spans(state.session, at.position, hidden=True), upto=at.position)
    before = None if before is None or before >= end else before
    found = store.parts.projections.turns_in(
        every,
        after=after or ORIGIN,
        before=end if before is None else before,
        limit=TURNS_MAX + 1,
        last=None if after is not None else TURNS_MAX + 1,
    )
    listed, ways = part_of(found, lambda turn: turn.position, before=before, after=after, most=TURNS_MAX)
    marks = _marks(store, state, at) if any(not sees(seen, turn) for turn in listed) else ()
    places = [turn.position for turn in listed]
    begin = min([state.started_position, *places[:1]]) if "earlier" not in ways else found[0].position
    shown = _shown(store, places, upto=at.position)
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


def _shown(store: MemoryStore, turns: list[Position], *, upto: Position) -> dict[Position, Showings]:
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


def _marks(store: MemoryStore, state: SessionState, at: AsOf) -> tuple[Mark, ...]:
    """Return what hid turns of a session: in itself, or before it was branched in those it comes from."""
    found: list[Mark] = []
    end = at.position
    for item in (state.session, *reversed(state.ancestors)):
        found += marks_of(store, item, upto=end)
        first = visible_of(store).states.latest(item)
        if first is None or first.started.branched_at is None:
            break
        end = Position(min(end, first.started.branched_at))
    return tuple(sorted(found, key=lambda mark: mark.position))
