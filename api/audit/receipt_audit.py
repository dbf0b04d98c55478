"""Receipts: repeat each recall, and build each context again, as of its head and as of now; judge the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import chain, islice
from typing import Annotated, Any, Final, Literal, Self

from msgspec.structs import replace

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.event import TO_EVENT, TO_SESSION
from mnemolog.domain.events import (
    RECALLS_STREAM,
    ContextServed,
    Forgotten,
    RecallJudged,
    RecallServed,
    RecordedEvent,
    TurnRecorded,
)
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.result import Result
from mnemolog.domain.values import (
    Micros,
    Position,
    UtcTime,
    checked_label,
    checked_position,
    checked_whole,
    to_datetime,
)
from mnemolog.forgetting import history as forgetting_record
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.context.answer import FORMAT, digest_of
from mnemolog.projections.context.packing import Tokenizer, counter_of
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.question import VECTOR
from mnemolog.projections.recall.ranking import Page
from mnemolog.projections.recall.service import (
    Basis,
    Recalls,
    basis_of,
    question_of,
    question_today,
    recall_of,
    scopes_of,
)

NO_ANSWER: Final = (
    errors.InvalidInput,
    errors.SessionError,
    errors.ModelError,
    errors.ProjectionError,
    errors.StorageFull,
)
"""Errors that leave a receipt without a verdict."""
LIMIT: Final = 1_000
"""Default number of receipts that one audit repeats."""
SCORES_DIFFER_MAX: Final = 0.002
"""How much a score of a recall with vectors may differ when it is repeated: other code or another processor rounds the
vector of a question otherwise."""


class Verdict(StrEnum):
    """The outcome for a receipt."""

    REPRODUCES = "reproduces"
    DIFFERS = "does-not-reproduce"
    """Repeated as of its head, the answer differs: the log, the model or this program has changed."""
    UNKNOWN = "cannot-be-told"
    """It cannot be repeated here as it was: `why` says what is missing."""


class Receipt(Result, frozen=True, kw_only=True):
    """A question that left a receipt, and what was shown for it."""

    position: Position
    """Position of the receipt in the log."""
    kind: Literal["recall", "context"]
    served_at: UtcTime
    query: str
    scopes: tuple[str, ...]
    """Those that were searched; none for all."""
    session: str | None
    """The session that was searched, or whose working memory a context has; None for none."""
    asked_in: Annotated[str, TO_SESSION] | None
    """The session that asked; None if that is not known."""
    asked_for: Annotated[Position, TO_EVENT] | None
    """The turn that it asked for; None for the next one of that session."""
    actor: str
    """Who asked; empty if none was given."""
    head: Position
    """The position that its answer refers to."""
    turns: tuple[Annotated[Position, TO_EVENT], ...]
    """The turns in the answer, best first; of a context those in the text, in its order."""
    tokens: int | None
    """Of the text of a context."""
    traceparent: str
    """The W3C trace context of the HTTP request that asked; empty if it had none."""

    @classmethod
    def of(cls, recorded: RecordedEvent, served: RecallServed | ContextServed, **more: Any) -> Self:
        """Return the receipt that an event is. `more` are further fields of the class."""
        recall, context = recall_of(served), served if isinstance(served, ContextServed) else None
        return cls(
            position=recorded.position,
            kind="recall" if context is None else "context",
            served_at=to_datetime(recorded.recorded_at),
            query=recall.query,
            scopes=scopes_of(recall),
            session=(context is not None and context.of) or recall.session,
            asked_in=recall.asked_in,
            asked_for=None if recall.asked_for is None else Position(recall.asked_for),
            actor=served.actor,
            head=Position(recall.head),
            turns=tuple(map(Position, recall.hits if context is None else context.turns)),
            tokens=None if context is None else context.tokens,
            traceparent=recall.traceparent,
            **more,
        )


class AuditedReceipt(Receipt, frozen=True, kw_only=True):
    """A receipt and the result of repeating it."""

    model: str | None
    """Fingerprint of the model that answered; None if no vectors did."""
    verdict: Verdict = Verdict.UNKNOWN
    why: str = ""
    """What differs, or why that is unknown."""
    would_differ_today: bool | None = None
    """Whether the same call has another answer now; None if that is unknown."""
    now: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """The turns of today's answer, in its order."""
    came: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """Turns of today's answer that were not in it then, in the order of the answer."""
    went: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """Turns that are not in today's answer."""
    today: str = ""
    """Why today's answer is unknown; empty if it is known."""


class ReceiptAudit(Result, frozen=True, kw_only=True):
    """The results for receipts, in the order they were recorded."""

    receipts: tuple[AuditedReceipt, ...]
    reproduced: int
    differing: int
    unknown: int
    changed_today: int
    forgotten: int
    """Receipts whose content is forgotten; they are not repeated."""
    more: bool
    """Whether there are more receipts: continue with the last one's position as `after`."""

    @property
    def sound(self) -> bool:
        """Whether no receipt failed to reproduce."""
        return self.differing == 0


def audit_receipts(
    visible: VisibleEvents,
    contexts: Contexts,
    *,
    since: Micros | None,
    after: int,
    limit: int,
    tokenizer: Tokenizer | None,
    progress: Progress | None,
) -> ReceiptAudit:
    """Repeat up to `limit` receipts after position `after` that were recorded at `since` or later."""
    checked_whole("limit", limit)
    upto = visible.log.head().position
    kept = (item for item in receipts(visible, after, upto) if since is None or item[0].recorded_at >= since)
    chosen = list(islice(kept, limit + 1))
    repeating, found = Repeating(visible, contexts, tokenizer), list[AuditedReceipt]()
    for recorded, served in chosen[:limit]:
        found.append(repeating.audited(recorded, served))
        tell(progress, len(found), min(limit, len(chosen)))
    verdicts = [item.verdict for item in found]
    return ReceiptAudit(
        receipts=tuple(found),
        reproduced=verdicts.count(Verdict.REPRODUCES),
        differing=verdicts.count(Verdict.DIFFERS),
        unknown=verdicts.count(Verdict.UNKNOWN),
        changed_today=sum(item.would_differ_today is True for item in found),
        forgotten=repeating.forgotten[RecallServed.topic] + repeating.forgotten[ContextServed.topic],
        more=len(chosen) > limit,
    )


def recall_today(recalls: Recalls, served: RecallServed, as_of: Position | None = None) -> Recall:
    """Return the answer that the question of a receipt has today, or has as of a position. Raises as a recall does."""
    page = Page(served.k, served.passed_over, served.candidates)
    return recalls.answer(question_today(served), Basis(as_of, page)).recall


class Repeating:
    """Repeats receipts. Leaves no receipt."""

    def __init__(self, visible: VisibleEvents, contexts: Contexts, tokenizer: Tokenizer | None) -> None:
        self._log = visible.log
        self._contexts = contexts
        self.forgotten = Counter[str]()
        """How many events of each topic were forgotten, of those that the caller sees."""
        self._first_gone: dict[str, Position] = {}
        """The first of them."""
        for item in forgetting_record.forgotten(visible.log):
            if visible.shows_stream(item.stream):
                self.forgotten[item.topic] += 1
                self._first_gone[item.topic] = min(item.position, self._first_gone.get(item.topic, item.position))
        self._counters = {counter.name: counter for counter in (counter_of(None), counter_of(tokenizer))}

    def audited(self, recorded: RecordedEvent, served: RecallServed | ContextServed) -> AuditedReceipt:
        """Return a receipt with its verdict, and with today's answer."""
        found = self.today(recorded, served)
        if found.why:
            return found
        verdict, why = self._verdict(served)
        return replace(found, verdict=verdict, why=why)

    def today(self, recorded: RecordedEvent, served: RecallServed | ContextServed) -> AuditedReceipt:
        """Return a receipt with today's answer. `why` says what it cannot be repeated without, if something."""
        found = AuditedReceipt.of(recorded, served, model=recall_of(served).model)
        if isinstance(served, ContextServed) and (why := self._why_not(served)):
            return replace(found, why=why, today=why)
        asked = recall_of(served)
        if asked.as_of:  # Its answer never changes.
            return replace(found, would_differ_today=False)
        try:
            if isinstance(served, RecallServed):
                recall = recall_today(self._contexts.recalls, served)
                now = [hit.position for hit in recall.hits]
                differs = now != served.hits
            else:
                built, recall = self._contexts.today(served, self._counters[served.counted_by])
                now, differs = list(built.positions), digest_of(built) != served.digest
        except NO_ANSWER as error:
            return replace(found, today=str(error))
        if asked.model is not None and recall.model is None:
            return replace(found, today=recall.unavailable_legs.get(VECTOR, "the vectors do not answer"))
        return replace(
            found,
            would_differ_today=differs,
            now=tuple(map(Position, now)),
            came=tuple(position for position in now if position not in set(found.turns)),
            went=tuple(position for position in found.turns if position not in set(now)),
        )

    def _why_not(self, served: ContextServed) -> str:
        """Return why a context cannot be built again here; empty if it can be."""
        if served.form != FORMAT:
            return f"it was built as {served.form}, this mnemolog builds {FORMAT}"
        if served.counted_by not in self._counters:
            return f"{served.counted_by} counted its tokens: pass that function to store.audit.receipts(tokenizer=...)"
        return ""

    def _verdict(self, served: RecallServed | ContextServed) -> tuple[Verdict, str]:
        """Return the verdict on a receipt, and why."""
        try:
            recall, difference = self._again(served)
        except errors.InvalidInput as error:
            return Verdict.UNKNOWN, f"this mnemolog cannot ask its question: {error}"
        except errors.SessionError as error:
            return Verdict.UNKNOWN, f"it asked about a session that the log did not have then: {error}"
        except NO_ANSWER as error:
            return Verdict.UNKNOWN, f"the vectors do not answer: {error}"
        if not difference:
            return Verdict.REPRODUCES, ""
        before, now = recall_of(served).reranker or "none", recall.reranker or "none"
        if before != now:
            return Verdict.UNKNOWN, f"the reranker was {before}, it is {now} now: {difference}"
        if lost := self.lost(served):
            return Verdict.UNKNOWN, f"{lost}: {difference}"
        return Verdict.DIFFERS, difference

    def _again(self, served: RecallServed | ContextServed) -> tuple[Recall, str]:
        """Return the answer as of the receipt, and in words how it differs."""
        if isinstance(served, RecallServed):
            answer = self._contexts.recalls.answer(question_of(served), basis_of(served))
            return answer.recall, _difference(served, answer.recall.hits, answer.scores)
        built, recall = self._contexts.again(served, self._counters[served.counted_by])
        if digest_of(built) == served.digest:
            return recall, ""
        if list(built.positions) == served.turns:
            return recall, "the same turns, in another text"
        return recall, f"other turns: {_listed(built.positions)} instead of {_listed(served.turns)}"

    def lost(self, served: RecallServed | ContextServed) -> str:
        """Return what was forgotten of what is behind a receipt, in words; empty if nothing was."""
        gone, head = self._first_gone, recall_of(served).head
        if isinstance(served, ContextServed):
            is_gone = any(first <= head for first in gone.values())
            return "content that it was built from was forgotten since" if is_gone else ""
        hits = [item.position for item in self._log.read_at(served.hits) if isinstance(item.event, Forgotten)]
        if hits:
            return f"turns in its answer were forgotten since ({_listed(hits)})"
        if gone.get(TurnRecorded.topic, head + 1) <= head:
            return "turns that it was ranked among were forgotten since"
        return ""


def _difference(served: RecallServed, hits: Sequence[Hit], scores: Sequence[float]) -> str:
    """Return in words how an answer differs from its receipt; empty if it does not."""
    now = [hit.position for hit in hits]
    came = [position for position in now if position not in set(served.hits)]
    went = [position for position in served.hits if position not in set(now)]
    if came or went:
        return f"came: {_listed(came)}; went: {_listed(went)}"
    if now != served.hits:
        return f"another order: {_listed(now)} instead of {_listed(served.hits)}"
    legs = {leg for hit in hits for leg in hit.ranks} | served.ranks.keys()
    for leg in sorted(legs):
        ranks = [hit.ranks.get(leg, 0) for hit in hits]
        if ranks != served.ranks.get(leg, [0] * len(hits)):
            return f"the same turns, at other ranks in the {leg} leg"
    # Words are counted: their scores are equal or wrong. A vector depends a little on the processor and the libraries.
    tolerance = 0.0 if served.vectors_to is None else SCORES_DIFFER_MAX
    same = all(abs(one - other) <= tolerance for one, other in zip(scores, served.scores, strict=False))
    return "" if same and len(scores) == len(served.scores) else "the same turns, with other scores"


def _listed(positions: Iterable[int]) -> str:
    return ", ".join(map(str, positions)) or "none"


def receipts(
    visible: VisibleEvents, after: int, upto: Position, other: Callable[[RecordedEvent], object] = bool
) -> Iterator[tuple[RecordedEvent, RecallServed | ContextServed]]:
    """Yield the receipts of `(after, upto]` that may be seen. `other` gets what else is recorded beside them."""
    first = visible.log.version_at(RECALLS_STREAM, Position(after))
    for recorded in chain.from_iterable(visible.log.read_stream(RECALLS_STREAM, after=first, upto=upto)):
        if not isinstance(served := recorded.event, RecallServed | ContextServed):
            other(recorded)
        elif visible.shows_receipt(served):
            yield recorded, served


class Judgement(Result, frozen=True, kw_only=True):
    """A verdict on an answer, by a judge who knows the right one."""

    receipt: Position
    """Position of the receipt in the log."""
    query: str
    """What was asked; empty if it was forgotten."""
    good: tuple[Position, ...]
    """Turns that answer the question."""
    bad: tuple[Position, ...]
    """Turns in the answer that do not."""
    nothing: bool
    """Whether no turn answers the question."""
    by: str
    """Who judged; empty if unknown."""
    judged_at: UtcTime
    position: Position
    """Position of the judgement in the log."""
    unusable: str = ""
    """Why recall cannot be measured with it any more: what was forgotten since. Empty if it can."""


def receipt_at(log: EventLog, receipt: int) -> RecallServed | ContextServed:
    """Return the receipt at a position. Raises `InvalidInput` if there is none, or if it was forgotten."""
    found = log.event_at(checked_position("receipt", receipt, head=log.head().position))
    match None if found is None else found.event:
        case RecallServed() | ContextServed() as served:
            return served
        case Forgotten(was=RecallServed.topic | ContextServed.topic):
            raise errors.InvalidInput("receipt", f"the question of the receipt at {receipt} was forgotten")
        case _:
            why = f"no receipt is at position {receipt}; a recall or a context with a receipt returns its position"
            raise errors.InvalidInput("receipt", why)


def judge(log: EventLog, receipt: int, *, good: Sequence[int], bad: Sequence[int], nothing: bool, by: str) -> Judgement:
    """Append a judgement of a receipt. See `AuditService.judge`."""
    served = recall_of(receipt_at(log, receipt))
    right, wrong = _positions("good", good), _positions("bad", bad)
    if strangers := [turn for turn in wrong if turn not in served.hits]:
        raise errors.InvalidInput("bad", f"position {strangers[0]} is not in the answer of receipt {receipt}")
    for turn in right:
        if why := _why_no_answer(log, turn, served.head):
            raise errors.InvalidInput("good", f"position {turn} {why}")
    if both := set(right) & set(wrong):
        raise errors.InvalidInput("good", f"position {min(both)} is judged both good and bad")
    if nothing and right:
        raise errors.InvalidInput("nothing", "says that no turn answers the question, but good ones are given")
    if not (right or wrong or nothing):
        raise errors.InvalidInput("good", "give turns that are good or bad, or say that nothing answers the question")
    if by:
        checked_label("by", by)
    event = RecallJudged(receipt=receipt, good=[*right], bad=[*wrong], nothing=nothing, by=by)
    recorded = log.appends.transact(lambda tx: tx.append(RECALLS_STREAM, event))
    return _judgement(log, recorded, event, served.query)


def judgements(log: EventLog) -> Iterator[Judgement]:
    """Yield the last judgement of every judged receipt, in the order of the receipts."""
    last: dict[int, tuple[RecordedEvent, RecallJudged]] = {}
    for recorded in chain.from_iterable(log.read_stream(RECALLS_STREAM, upto=log.head().position)):
        if isinstance(recorded.event, RecallJudged):
            last[recorded.event.receipt] = recorded, recorded.event
    for receipt in sorted(last):
        asked = log.event_at(Position(receipt))
        if asked is not None and asked.stream == RECALLS_STREAM:
            match asked.event:
                case RecallServed() | ContextServed() as served:
                    yield _judgement(log, *last[receipt], recall_of(served).query)
                case Forgotten(was=RecallServed.topic | ContextServed.topic):
                    yield _judgement(log, *last[receipt], None)


def _judgement(log: EventLog, recorded: RecordedEvent, judged: RecallJudged, query: str | None) -> Judgement:
    return Judgement(
        receipt=Position(judged.receipt),
        query=query or "",
        good=tuple(map(Position, judged.good)),
        bad=tuple(map(Position, judged.bad)),
        nothing=judged.nothing,
        by=judged.by,
        judged_at=to_datetime(recorded.recorded_at),
        position=recorded.position,
        unusable="its question was forgotten" if query is None else _forgotten(log, judged.good),
    )


def _forgotten(log: EventLog, good: Iterable[int]) -> str:
    """Return which of the right answers were forgotten, in words; empty if none was."""
    gone = [turn for turn in good if (found := log.event_at(Position(turn))) is None or was_turn(found.event)]
    return f"right answers were forgotten: {', '.join(map(str, gone))}" if gone else ""


def _positions(field: str, turns: Sequence[int]) -> tuple[Position, ...]:
    return tuple(sorted({checked_position(field, turn) for turn in turns}))


def _why_no_answer(log: EventLog, turn: Position, head: int) -> str:
    found = log.event_at(turn)
    if found is None or not isinstance(found.event, TurnRecorded):
        forgotten = found is not None and was_turn(found.event)
        return "is a turn that was forgotten" if forgotten else "is not a turn"
    return "was recorded after the recall, so the recall could not find it" if turn > head else ""
