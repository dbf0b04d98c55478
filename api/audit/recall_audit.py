"""Audit receipts: repeat each recall as of its head, and as of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import Event, RecallServed, RecordedEvent, TurnRecorded
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.result import Result
from mnemolog.forgetting import history as forgetting_record
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Progress
from mnemolog.projections.recall.answer import Hit, Page
from mnemolog.projections.recall.question import VECTOR
from mnemolog.projections.recall.receipts import RECALLS_STREAM, question_of, question_today
from mnemolog.projections.recall.service import Basis, Recalls, basis_of

NO_ANSWER: Final = (
    errors.InvalidInput,
    errors.SessionError,
    errors.ModelError,
    errors.ProjectionError,
    errors.StorageFull,
)
Gone = Mapping[Position, str]
"""Topics of what was forgotten, by position."""

LIMIT = 1_000
"""Default number of receipts that one audit repeats."""


class Verdict(StrEnum):
    """The outcome for a receipt."""

    REPRODUCES = "reproduces"
    DIFFERS = "does-not-reproduce"
    """Repeated as of its head, the answer differs: the log, the model or this program has changed."""
    UNKNOWN = "cannot-be-told"
    """It cannot be repeated here as it was: `why` says what is missing."""


class AuditedRecall(Result, frozen=True, kw_only=True):
    """A receipt and the result of repeating it."""

    position: Position
    """Position of the receipt in the log."""
    served_at: datetime
    query: str
    head: Position
    """The position it was answered as of."""
    hits: tuple[Position, ...]
    """The turns in the answer, best first."""
    model: str | None
    verdict: Verdict
    why: str = ""
    """What differs, or why that is unknown."""
    would_differ_today: bool | None = None
    """Whether the same question has other hits now; None if that is unknown."""
    came: tuple[Position, ...] = ()
    """Turns in today's answer that were not in the receipt; best first."""
    went: tuple[Position, ...] = ()
    """Turns in the receipt that are not in today's answer."""
    today: str = ""
    """Why today's answer is unknown; empty if it is known."""


class RecallAudit(Result, frozen=True, kw_only=True):
    """The results for receipts, in the order they were recorded."""

    recalls: tuple[AuditedRecall, ...]
    reproduced: int
    differing: int
    unknown: int
    changed_today: int
    forgotten: int
    """Receipts whose query is forgotten; they are not repeated."""
    more: bool
    """Whether there are more receipts: continue with the last one's position as `after`."""

    @property
    def sound(self) -> bool:
        """Whether no receipt failed to reproduce."""
        return self.differing == 0


def audit_recalls(
    log: EventLog,
    recalls: Recalls,
    *,
    since: Micros | None,
    after: int,
    limit: int,
    progress: Progress | None = None,
) -> RecallAudit:
    """Repeat up to `limit` receipts after a position that were made at `since` or later."""
    chosen = chosen_receipts(log, RecallServed, since=since, after=after, limit=limit)
    gone = {item.position: item.topic for item in forgetting_record.forgotten(log)}
    audited: list[AuditedRecall] = []
    for recorded in chosen[:limit]:
        if isinstance(recorded.event, RecallServed):
            audited.append(_audited(recalls, recorded, recorded.event, gone))
        if progress is not None:
            progress(len(audited), min(limit, len(chosen)))
    verdicts = [item.verdict for item in audited]
    return RecallAudit(
        recalls=tuple(audited),
        reproduced=verdicts.count(Verdict.REPRODUCES),
        differing=verdicts.count(Verdict.DIFFERS),
        unknown=verdicts.count(Verdict.UNKNOWN),
        changed_today=sum(item.would_differ_today is True for item in audited),
        forgotten=sum(topic == RecallServed.topic for topic in gone.values()),
        more=len(chosen) > limit,
    )


def chosen_receipts(
    log: EventLog, kind: type[Event], *, since: Micros | None, after: int, limit: int
) -> list[RecordedEvent]:
    """Return up to `limit` receipts of a kind after a position, made at `since` or later, and one more if there is."""
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise errors.InvalidInput("limit", f"a whole number from 1 on, got {limit!r}")
    chosen: list[RecordedEvent] = []
    for batch in log.read_stream(RECALLS_STREAM, upto=log.head().position):
        for recorded in batch:
            early = recorded.position <= after or (since is not None and recorded.recorded_at < since)
            if isinstance(recorded.event, kind) and not early:
                chosen.append(recorded)
        if len(chosen) > limit:
            break
    return chosen[: limit + 1]


def _audited(recalls: Recalls, recorded: RecordedEvent, served: RecallServed, gone: Gone) -> AuditedRecall:
    verdict, why = _asked_again(recalls, served)
    if verdict is Verdict.DIFFERS and (lost := _lost(served, gone)):
        verdict, why = Verdict.UNKNOWN, f"{lost}: {why}"
    found = AuditedRecall(
        position=recorded.position,
        served_at=to_datetime(recorded.recorded_at),
        query=served.query,
        head=Position(served.head),
        hits=tuple(Position(position) for position in served.hits),
        model=served.model,
        verdict=verdict,
        why=why,
    )
    return _compared_with_today(recalls, served, found)


def _lost(served: RecallServed, gone: Gone) -> str:
    """Return what was forgotten of the turns behind a receipt, in words; empty if nothing was."""
    if hits := [position for position in served.hits if Position(position) in gone]:
        return f"turns in its answer were forgotten since ({_listed(hits)})"
    if any(position <= served.head and topic == TurnRecorded.topic for position, topic in gone.items()):
        return "turns that it was ranked among were forgotten since"
    return ""


def _asked_again(recalls: Recalls, served: RecallServed) -> tuple[Verdict, str]:
    try:
        answer = recalls.answer(question_of(served), basis_of(served))
    except NO_ANSWER as error:
        return Verdict.UNKNOWN, why_no_answer(error)
    difference = _difference(served, answer.recall.hits, answer.scores)
    if not difference:
        return Verdict.REPRODUCES, ""
    if served.reranker != (answer.recall.reranker or ""):
        names = served.reranker or "none", answer.recall.reranker or "none"
        return Verdict.UNKNOWN, f"the reranker was {names[0]}, it is {names[1]} now: {difference}"
    return Verdict.DIFFERS, difference


def why_no_answer(error: errors.MnemologError) -> str:
    """Return in words why a receipt could not be repeated."""
    match error:
        case errors.InvalidInput():
            return f"this mnemolog cannot ask its question: {error}"
        case errors.SessionError():
            return f"it asked about a session that the log did not have then: {error}"
        case _:
            return f"the vectors do not answer: {error}"


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
    return "" if scores == served.scores else "the same turns, with other scores"


def _compared_with_today(recalls: Recalls, served: RecallServed, found: AuditedRecall) -> AuditedRecall:
    """Add today's answer. The answer to a question with `as_of` never changes."""
    if served.as_of:
        return msgspec.structs.replace(found, would_differ_today=False)
    page = Page(served.k, served.passed_over, served.candidates)
    try:
        answer = recalls.answer(question_today(served), Basis(None, page)).recall
    except NO_ANSWER as error:
        return msgspec.structs.replace(found, today=str(error))
    if served.model is not None and answer.model is None:
        return msgspec.structs.replace(found, today=answer.unavailable_legs.get(VECTOR, "the vectors do not answer"))
    now = [hit.position for hit in answer.hits]
    return msgspec.structs.replace(
        found,
        would_differ_today=now != served.hits,
        came=tuple(position for position in now if position not in set(served.hits)),
        went=tuple(position for position in found.hits if position not in set(now)),
    )


def _listed(positions: Sequence[int]) -> str:
    return ", ".join(map(str, positions)) or "none"
