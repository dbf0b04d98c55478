"""Review the answers of a period: which would be different today, why, and how much relies on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal

from mnemolog.application.distrust import Distrusts
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.effects import ShownIn, answered, effects
from mnemolog.audit.receipt_audit import AuditedReceipt, Repeating, receipts
from mnemolog.domain.event import TO_EVENT
from mnemolog.domain.events import (
    ContextServed,
    Forgotten,
    RecallJudged,
    RecallServed,
    RecordedEvent,
)
from mnemolog.domain.head import Known
from mnemolog.domain.position import Clock, Micros, Position
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.recall.receipts import recall_of
from mnemolog.projections.recall.weights import RANKING
from mnemolog.projections.sql import fact_queries

LIMIT: Final = 2_000
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
        self, *, after: Position, upto: Position, limit: int = LIMIT, progress: Progress | None = None
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
