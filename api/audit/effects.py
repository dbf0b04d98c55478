"""What a turn led to: who was shown it, what rests on it, and what came after."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import StringIO
from typing import Annotated, Any, Final

from msgspec.structs import replace

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.event import TO_EVENT
from mnemolog.domain.events import RECALLS_STREAM, ContextServed, RecallServed
from mnemolog.domain.head import known_at
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Clock, Position, UtcTime, When, checked_position, to_datetime
from mnemolog.domain.result import Result
from mnemolog.domain.scope import covered
from mnemolog.domain.session import Span
from mnemolog.forgetting import history as forgetting_history
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.sql import fact_queries, queries, session_pages, shown
from mnemolog.projections.sql.queries import positions_in

ROW: Final = ("what", "position", "at", "session", "who", "text")
"""The head of a CSV of effects."""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Cells that begin so are formulas to a spreadsheet: an apostrophe before them makes them text."""


class ShownIn(Receipt, frozen=True, kw_only=True):
    """An answer that showed a turn, as its receipt says."""

    fact: Annotated[Position, TO_EVENT] | None = None
    """If the answer did not show the turn itself: a fact in it that rests on the turn."""
    answer: Turn | None = None
    """What the assistant said next in the asking session; None if it said nothing, or if that session is unknown."""


class CameAfter(Result, frozen=True, kw_only=True):
    """The turns of a session after it had a turn before it: they may be due to it, or not."""

    session: str
    after: Position
    """The position from which on it was shown the turn, said it, or began with it."""
    turns: tuple[Position, ...]


class Effects(Result, frozen=True, kw_only=True):
    """What a turn led to. `shown_in` and `rests_on` are exact for what left a trace; `came_after` is what is possible.

    A recall or a context leaves a receipt if it was asked to, or if the store was opened with `receipts`.
    """

    turn: Turn
    shown_in: tuple[ShownIn, ...]
    rests_on: tuple[Fact, ...]
    """The facts that were asserted because of it, as they are now."""
    came_after: tuple[CameAfter, ...]
    receipts_since: UtcTime | None
    """When the first receipt was kept, in a store for scopes the first of `shown_in`; None if there is none."""
    forgotten_receipts: int | None
    """How many were forgotten: what they showed is not known any more, and so None in a store for scopes."""

    def to_csv(self) -> str:
        """Return `ROW` and a row for the turn, for each receipt, answer and fact. No cell is a formula."""
        rows = [ROW, ("turn", *_said(self.turn))]
        for item in self.shown_in:
            rows.append(
                (item.kind, item.position, item.served_at, item.asked_in or item.session, item.actor, item.query)
            )
            rows += [] if item.answer is None else [("answer", *_said(item.answer))]
        rows += [
            (
                "fact",
                fact.position,
                fact.recorded_at,
                fact.session,
                fact.actor,
                f"{fact.key}: {fact.value} ({fact.state})",
            )
            for fact in self.rests_on
        ]
        rows += [("came after", at, "", after.session, "", "") for after in self.came_after for at in after.turns]
        made = StringIO(newline="")
        csv.writer(made).writerows([_harmless(cell) for cell in row] for row in rows)
        return made.getvalue()


def effects(
    visible: VisibleEvents, projections: ProjectionSet, clock: Clock, position: int, as_of: When | None = None
) -> Effects:
    """Return what the turn at a position had led to. Raises `InvalidInput` if there is none that may be seen."""
    at = checked_position("position", position)
    log = visible.log
    scopes = visible.boundary.scopes
    views, head = projections.caught_up()
    then = None if as_of is None else known_at("as_of", as_of, log)
    head = head if then is None else then.upto
    with views.database.reading() as connection:
        turn = queries.turns_at(connection, [at]).get(at)
        if turn is None or at > head or not covered(scopes, turn.scope) or not visible.shows_session(turn.session):
            raise InvalidInput("position", f"position {position} is no turn, or it was forgotten")
        known = then or fact_queries.known_now(connection, head, clock)
        facts = fact_queries.resting_on(connection, at, known, scopes)
        # The turn itself comes before what rests on it.
        receipts = dict(reversed(shown.receipts_of(connection, [at, *(fact.position for fact in facts)])))
        branches = session_pages.branches(connection, turn.session, scopes)
    found = [
        ShownIn.of(item, item.event, fact=None if receipts[item.position] == at else receipts[item.position])
        for item in log.read_at(sorted(place for place in receipts if place <= head))
        if isinstance(item.event, RecallServed | ContextServed) and visible.shows_receipt(item.event)
    ]
    began: dict[str, Position] = {turn.session: at}
    for session in filter(visible.shows_session, branches):
        started = visible.state(session).started_position
        if started <= head and any(span.holds(turn.session, at) for span in visible.state_at(session, started).spans):
            began.setdefault(session, started)
    shown_in, came_after = answered(visible, projections, found, began, head)
    forgotten, first = None, found[0].served_at if found else None
    if not scopes:
        kinds = [item.topic for item in forgetting_history.forgotten(log)]
        forgotten = kinds.count(RecallServed.topic) + kinds.count(ContextServed.topic)
        recorded = log.first_event(RECALLS_STREAM)
        first = None if recorded is None else to_datetime(recorded.recorded_at)
    return Effects(
        turn=turn,
        shown_in=shown_in,
        rests_on=tuple(facts),
        came_after=came_after,
        receipts_since=first,
        forgotten_receipts=forgotten,
    )


def answered(
    visible: VisibleEvents,
    projections: ProjectionSet,
    found: Sequence[ShownIn],
    began: dict[str, Position],
    head: Position,
) -> tuple[tuple[ShownIn, ...], tuple[CameAfter, ...]]:
    """Return receipts with the answer that came next, and the turns of the sessions that asked, after that.

    `began` has where other sessions begin that had the turn before them. Those that asked are added.
    """
    for item in found:
        asker = item.asked_in or item.session
        if asker is not None and visible.shows_session(asker):
            began[asker] = min(item.position, began.get(asker, item.position))
    came_after = tuple(_came_after(projections, began, head))
    with projections.views().database.reading() as connection:
        roles = queries.roles_at(connection, [turn for after in came_after for turn in after.turns])
        said = {item.session: [at for at in item.turns if roles.get(at) == "assistant"] for item in came_after}
        asked = [(item, said.get(item.asked_in or item.session or "", [])) for item in found]
        first = [next((at for at in turns if at > item.position), ORIGIN) for item, turns in asked]
        answers = queries.turns_at(connection, first)
    return tuple(replace(item, answer=answers.get(at)) for item, at in zip(found, first, strict=True)), came_after


def _said(turn: Turn) -> tuple[Any, ...]:
    return turn.position, turn.said_at, turn.session, turn.speaker or turn.role.value, turn.text


def _harmless(cell: Any) -> str:
    text = "" if cell is None else cell.isoformat() if isinstance(cell, datetime) else str(cell)
    return f"'{text}" if text.startswith(FORMULA) else text


def _came_after(projections: ProjectionSet, began: dict[str, Position], head: Position) -> Iterator[CameAfter]:
    with projections.views().database.reading() as connection:
        for session, after in sorted(began.items(), key=lambda item: item[1]):
            turns = positions_in(connection, [Span(session, after, head)], limit=INTEGER_MAX)
            if turns:
                yield CameAfter(session=session, after=after, turns=tuple(turns))
