"""Judge receipts: record which turns answered the question of a recall, and read the judgements back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mnemolog.domain import errors
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
from mnemolog.domain.limits import checked_label
from mnemolog.domain.position import Position, UtcTime, checked_position, to_datetime
from mnemolog.domain.result import Result
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.recall.receipts import recall_of


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
    for batch in log.read_stream(RECALLS_STREAM, upto=log.head().position):
        for recorded in batch:
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
