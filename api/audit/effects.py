"""What a turn led to: who was shown it, what rests on it, what came after. And which answers would be others today."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import StringIO
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace

from mnemolog.application.facts import Distrusts
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import AuditedReceipt, Receipt, Repeating, receipts
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.event import TO_EVENT
from mnemolog.domain.events import (
    RECALLS_STREAM,
    ContextServed,
    Forgotten,
    RecallJudged,
    RecallServed,
    RecordedEvent,
)
from mnemolog.domain.head import Known, known_at
from mnemolog.domain.result import Result
from mnemolog.domain.scope import covered
from mnemolog.domain.session import Span, session_of
from mnemolog.domain.values import (
    INTEGER_MAX,
    ORIGIN,
    Clock,
    Micros,
    Position,
    UtcTime,
    When,
    checked_position,
    to_datetime,
)
from mnemolog.forgetting import history as forgetting_history
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.recall.question import RANKING
from mnemolog.projections.recall.service import recall_of
from mnemolog.projections.sql import fact_queries, queries, shown

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
        found_in = dict(reversed(shown.receipts_of(connection, [at, *(fact.position for fact in facts)])))
        branches = queries.branches(connection, turn.session, scopes)
    found = [
        ShownIn.of(item, item.event, fact=None if found_in[item.position] == at else found_in[item.position])
        for item in log.read_at(sorted(place for place in found_in if place <= head))
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
            turns = queries.positions_in(connection, [Span(session, after, head)], limit=INTEGER_MAX)
            if turns:
                yield CameAfter(session=session, after=after, turns=tuple(turns))


REVIEWED_MAX: Final = 2_000
"""The most receipts that one review asks again."""

Cause = Literal[
    "superseded",
    "distrusted",
    "hidden",
    "said since",
    "another model",
    "another ranking",
    "forgotten",
    "something else",
]
"""Why an answer would be different. The first three are about turns that it showed, `said since` is about new ones.

`superseded`: facts rest on the turn, and none of them holds any more. `hidden`: a session does not see the turn any
more, since a rewind or a restore. `forgotten`: something that the answer was ranked among or built from. An answer that
showed what is forgotten is forgotten as well.
"""


class Reason(Result, frozen=True, kw_only=True):
    """A reason why an answer would be different today."""

    cause: Cause
    turns: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """The turns that it is about."""


class ChangedAnswer(Result, frozen=True, kw_only=True):
    """An answer that would be different today, or of which that is unknown. Holds no content."""

    position: Position
    """Position of its receipt in the log."""
    reasons: tuple[Reason, ...]
    unknown: str
    """Why it is unknown whether the answer would be different; empty if it is known."""
    answer: Annotated[Position, TO_EVENT] | None
    """The turn in which the assistant said next what it made of it; None if there is none, or if it is unknown."""
    relied: int = 0
    """How many later recalls and contexts showed that turn, and how many facts rest on it."""
    judged: bool
    """Whether the receipt was judged before."""


class Review(Result, frozen=True, kw_only=True):
    """Which answers of a period would be different today."""

    after: Position
    """The period: receipts after this position, up to `upto`."""
    upto: Position
    head: Position
    """The last event when the review was made."""
    asked: int
    """How many receipts were asked again."""
    changed: tuple[ChangedAnswer, ...]
    """Those on which most relied come first."""
    forgotten: int | None
    """Receipts of the period that were forgotten: whether their answers would be different is unknown. None in a store
    for scopes, where their scopes are not known any more."""
    more: Position | None
    """If the period has more receipts than were asked again: continue after this position."""


class Reviewing:
    """Reviews receipts. Leaves none."""

    def __init__(
        self,
        visible: VisibleEvents,
        contexts: Contexts,
        projections: ProjectionSet,
        distrusts: Distrusts,
        clock: Clock,
    ) -> None:
        self._visible = visible
        self._contexts = contexts
        self._projections = projections
        self._distrusts, self._clock = distrusts, clock
        self._head = visible.log.head().position
        self._model = projections.active_fingerprint() if projections.has_model else None

    def review(
        self, *, after: Position, upto: Position, limit: int = REVIEWED_MAX, progress: Progress | None = None
    ) -> Review:
        """Ask the receipts of `(after, upto]` again, the first `limit` of them."""
        visible = self._visible
        judged, gone = set[int](), Counter[str]()

        def note(other: RecordedEvent) -> None:
            if isinstance(other.event, RecallJudged):
                judged.add(other.event.receipt)
            elif isinstance(other.event, Forgotten) and other.position <= upto:
                gone[other.event.was] += 1

        chosen = list[tuple[RecordedEvent, RecallServed | ContextServed]]()
        for receipt in receipts(visible, after, self._head, note):
            if receipt[0].position <= upto and len(chosen) <= limit:
                chosen.append(receipt)
        again, asked = Repeating(visible, self._contexts, None), chosen[:limit]
        found, differing = list[tuple[AuditedReceipt, tuple[Reason, ...]]](), list[ShownIn]()
        for done, (recorded, served) in enumerate(asked, 1):
            audited = again.today(recorded, served)
            if (reasons := tuple(self._reasons(again, audited, served))) or audited.today:
                found.append((audited, reasons))
                differing.append(ShownIn.of(recorded, served))
            tell(progress, done, len(asked))
        answers, _ = answered(visible, self._projections, differing, {}, self._head)
        said = [None if item.answer is None else item.answer.position for item in answers]
        relied = {turn: self._relied(turn) for turn in said if turn is not None}
        changed = [
            ChangedAnswer(
                position=item.position,
                reasons=reasons,
                unknown=item.today,
                answer=turn,
                relied=0 if turn is None else relied[turn],
                judged=item.position in judged,
            )
            for (item, reasons), turn in zip(found, said, strict=True)
        ]
        return Review(
            after=after,
            upto=upto,
            head=self._head,
            asked=len(asked),
            changed=tuple(sorted(changed, key=lambda item: (-item.relied, item.answer is None))),
            forgotten=None if visible.boundary.scopes else gone.total() - gone[RecallJudged.topic],
            more=asked[-1][0].position if len(chosen) > limit else None,
        )

    def _relied(self, answer: Position) -> int:
        reach = effects(self._visible, self._projections, self._clock, answer)
        return len(reach.shown_in) + len(reach.rests_on)

    def _reasons(
        self, again: Repeating, audited: AuditedReceipt, served: RecallServed | ContextServed
    ) -> Iterator[Reason]:
        """Yield why an answer would be different today; nothing if it would not, or if that is unknown."""
        recall, log = recall_of(served), self._visible.log
        if recall.as_of:
            return
        turns = log.read_at(audited.turns)
        distrusted = self._distrusts.among(turns)
        hidden = [
            item.position
            for item in turns
            if item.position in audited.went
            and any(self._hides(session, item, audited.head) for session in {audited.session, session_of(item.stream)})
        ]
        about: dict[Cause, list[Position]] = {
            "superseded": self._superseded(audited, recall),
            "distrusted": sorted(distrusted),
            "hidden": hidden,
            "said since": [turn for turn in audited.came if turn > audited.head],
        }
        found = [Reason(cause=cause, turns=tuple(turns)) for cause, turns in about.items() if turns]
        yield from found
        if audited.would_differ_today:
            is_other_model = audited.model != self._model and recall.mode != "text"
            if is_other_model:
                yield Reason(cause="another model")
            if recall.ranking != RANKING:
                yield Reason(cause="another ranking")
            elif not (found or is_other_model):
                yield Reason(cause="forgotten" if again.lost(served) else "something else")

    def _hides(self, session: str | None, turn: RecordedEvent, then: Position) -> bool:
        """Whether a session does not see a turn any more that it saw then."""
        states, of = self._visible.states, session_of(turn.stream) or ""
        known = () if session is None else (states.at(session, then), states.latest(session))
        seen = [any(span.holds(of, turn.position) for span in state.spans) for state in known if state is not None]
        return seen == [True, False]

    def _superseded(self, audited: AuditedReceipt, recall: RecallServed) -> list[Position]:
        """Return the turns of an answer that are superseded now and were not then."""
        with self._projections.current_views().database.reading() as connection:
            now = fact_queries.known_now(connection, self._head, self._clock)
            then = fact_queries.known_now(connection, Position(recall.head), None)
            if recall.moment is not None:
                then = Known(then.upto, Micros(recall.moment))
            superseded = self._contexts.recalls.superseded
            return sorted(
                superseded(connection, audited.turns, now).keys() - superseded(connection, audited.turns, then).keys()
            )
