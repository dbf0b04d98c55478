"""Audit receipts of contexts: build each again as of its head, and as of now."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from mnemolog.audit.recall_audit import NO_ANSWER, Verdict, chosen_receipts, why_no_answer
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import ContextServed, RecordedEvent
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.result import Result
from mnemolog.forgetting import history as forgetting_record
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.context.answer import Context
from mnemolog.projections.context.receipts import digest_of
from mnemolog.projections.context.rendering import FORMAT
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.context.token_counting import Counter
from mnemolog.projections.ports import Progress


class AuditedContext(Result, frozen=True, kw_only=True):
    """A receipt of a context and the result of building it again."""

    position: Position
    """Position of the receipt in the log."""
    served_at: datetime
    query: str
    head: Position
    """The position it was built as of."""
    session: str | None
    """The session whose working memory it has; None for none."""
    turns: tuple[Position, ...]
    """The turns in the text, in its order."""
    values: tuple[str, ...]
    """The keys of the values in the text."""
    tokens: int
    budget: int
    counted_by: str
    verdict: Verdict
    why: str = ""
    """What differs, or why that is unknown."""
    would_differ_today: bool | None = None
    """Whether the same call gives another text now; None if that is unknown."""
    came: tuple[Position, ...] = ()
    """Turns in today's text that were not in it then."""
    went: tuple[Position, ...] = ()
    """Turns that are not in today's text."""
    today: str = ""
    """Why today's text is unknown; empty if it is known."""


class ContextAudit(Result, frozen=True, kw_only=True):
    """The results for receipts of contexts, in the order they were recorded."""

    contexts: tuple[AuditedContext, ...]
    reproduced: int
    differing: int
    unknown: int
    changed_today: int
    forgotten: int
    """Receipts that were forgotten; they are not repeated."""
    more: bool
    """Whether there are more receipts: continue with the last one's position as `after`."""

    @property
    def sound(self) -> bool:
        """Whether no receipt failed to reproduce."""
        return self.differing == 0


def audit_contexts(
    log: EventLog,
    contexts: Contexts,
    counters: dict[str, Counter],
    *,
    since: Micros | None,
    after: int,
    limit: int,
    progress: Progress | None = None,
) -> ContextAudit:
    """Repeat up to `limit` receipts of contexts. `counters` are the counters of tokens there are, by name."""
    chosen = chosen_receipts(log, ContextServed, since=since, after=after, limit=limit)
    gone = {item.position: item.topic for item in forgetting_record.forgotten(log)}
    audited: list[AuditedContext] = []
    for recorded in chosen[:limit]:
        if isinstance(recorded.event, ContextServed):
            forgotten = any(position <= recorded.event.recall.head for position in gone)
            audited.append(_audited(contexts, recorded, recorded.event, counters, forgotten=forgotten))
        if progress is not None:
            progress(len(audited), min(limit, len(chosen)))
    verdicts = [item.verdict for item in audited]
    return ContextAudit(
        contexts=tuple(audited),
        reproduced=verdicts.count(Verdict.REPRODUCES),
        differing=verdicts.count(Verdict.DIFFERS),
        unknown=verdicts.count(Verdict.UNKNOWN),
        changed_today=sum(item.would_differ_today is True for item in audited),
        forgotten=sum(topic == ContextServed.topic for topic in gone.values()),
        more=len(chosen) > limit,
    )


def _audited(
    contexts: Contexts,
    recorded: RecordedEvent,
    served: ContextServed,
    counters: dict[str, Counter],
    *,
    forgotten: bool,
) -> AuditedContext:
    found = AuditedContext(
        position=recorded.position,
        served_at=to_datetime(recorded.recorded_at),
        query=served.recall.query,
        head=Position(served.recall.head),
        session=served.of,
        turns=tuple(map(Position, served.turns)),
        values=tuple(served.values),
        tokens=served.tokens,
        budget=served.budget,
        counted_by=served.counted_by,
        verdict=Verdict.UNKNOWN,
    )
    if (why := _why_not(served, counters)) is not None:
        return replace(found, why=why, today=why)
    counter = counters[served.counted_by]
    try:
        verdict, why = _compared(served, contexts.again(served, counter))
    except NO_ANSWER as error:
        verdict, why = Verdict.UNKNOWN, why_no_answer(error)
    if verdict is Verdict.DIFFERS and forgotten:
        verdict, why = Verdict.UNKNOWN, f"content that it was built from was forgotten since: {why}"
    found = replace(found, verdict=verdict, why=why)
    if served.recall.as_of:  # The answer to a question with `as_of` never changes.
        return replace(found, would_differ_today=False)
    try:
        now = contexts.today(served, counter)
    except NO_ANSWER as error:
        return replace(found, today=why_no_answer(error))
    return replace(
        found,
        would_differ_today=digest_of(now) != served.digest,
        came=tuple(position for position in now.positions if position not in found.turns),
        went=tuple(position for position in found.turns if position not in now.positions),
    )


def _why_not(served: ContextServed, counters: dict[str, Counter]) -> str | None:
    """Return why a context cannot be built again here; None if it can be."""
    if served.form != FORMAT:
        return f"it was built as {served.form}, this mnemolog builds {FORMAT}"
    if served.counted_by not in counters:
        return f"{served.counted_by} counted its tokens: pass that function to store.audit.contexts(tokenizer=...)"
    return None


def _compared(served: ContextServed, again: Context) -> tuple[Verdict, str]:
    if digest_of(again) == served.digest:
        return Verdict.REPRODUCES, ""
    if list(again.positions) != served.turns:
        return Verdict.DIFFERS, f"other turns: {_listed(again.positions)} instead of {_listed(served.turns)}"
    return Verdict.DIFFERS, "the same turns, in another text"


def _listed(positions: tuple[Position, ...] | list[int]) -> str:
    return ", ".join(map(str, positions)) or "none"
