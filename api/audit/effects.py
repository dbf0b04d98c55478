"""What a turn led to: who was shown it, what rests on it, and what came after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.clock import Clock, UtcTime, to_datetime
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import RECALLS_STREAM, ContextServed, RecallServed
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import Position
from mnemolog.domain.references import TO_EVENT
from mnemolog.domain.result import Result
from mnemolog.domain.scope import covered
from mnemolog.domain.spans import Span
from mnemolog.forgetting import history as forgetting_history
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.sql import fact_queries, queries, session_pages, shown
from mnemolog.projections.sql.span_queries import positions_in


class ShownIn(Receipt, frozen=True, kw_only=True):
    """An answer that showed a turn, as its receipt says."""

    fact: Annotated[Position, TO_EVENT] | None = None
    """If the answer did not show the turn itself: a fact in it that rests on the turn."""


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


def effects(visible: VisibleEvents, projections: ProjectionSet, clock: Clock, position: int) -> Effects:
    """Return what the turn at a position led to. Raises `InvalidInput` if there is none that may be seen."""
    at, log, scopes = checked_position("position", position), visible.log, visible.boundary.scopes
    views, head = projections.caught_up()
    with views.database.reading() as connection:
        turn = queries.turns_at(connection, [at]).get(at)
        if turn is None or not covered(scopes, turn.scope) or not visible.shows_session(turn.session):
            raise InvalidInput("position", f"position {position} is no turn, or it was forgotten")
        known = fact_queries.known_now(connection, head, clock)
        facts = fact_queries.resting_on(connection, at, known, scopes)
        # The turn itself comes before what rests on it.
        receipts = dict(reversed(shown.receipts_of(connection, [at, *(fact.position for fact in facts)])))
        branches = session_pages.branches(connection, turn.session, scopes)
    found = [
        ShownIn.of(item, item.event, fact=None if receipts[item.position] == at else receipts[item.position])
        for item in log.read_at(sorted(receipts))
        if isinstance(item.event, RecallServed | ContextServed) and visible.shows_receipt(item.event)
    ]
    began: dict[str, Position] = {turn.session: at}
    for session in filter(visible.shows_session, branches):
        started = visible.state(session).started_position
        if any(span.holds(turn.session, at) for span in visible.state_at(session, started).spans):
            began.setdefault(session, started)
    for item in found:
        if item.session is not None:
            began[item.session] = min(item.position, began.get(item.session, item.position))
    forgotten, first = None, found[0].served_at if found else None
    if not scopes:
        kinds = [item.topic for item in forgetting_history.forgotten(log)]
        forgotten = kinds.count(RecallServed.topic) + kinds.count(ContextServed.topic)
        recorded = log.first_event(RECALLS_STREAM)
        first = None if recorded is None else to_datetime(recorded.recorded_at)
    return Effects(
        turn=turn,
        shown_in=tuple(found),
        rests_on=tuple(facts),
        came_after=tuple(_came_after(projections, began)),
        receipts_since=first,
        forgotten_receipts=forgotten,
    )


def _came_after(projections: ProjectionSet, began: dict[str, Position]) -> Iterator[CameAfter]:
    with projections.views().database.reading() as connection:
        for session, after in sorted(began.items(), key=lambda item: item[1]):
            turns = positions_in(connection, [Span(session, after)], limit=INTEGER_MAX)
            if turns:
                yield CameAfter(session=session, after=after, turns=tuple(turns))
