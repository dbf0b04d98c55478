"""Audit receipts of contexts: build each again as of its head, and as of now."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from mnemolog.audit.receipt_audit import (
    NO_ANSWER,
    AuditedReceipt,
    Gone,
    ReceiptAudit,
    Verdict,
    audited_receipts,
    listed,
    no_vectors_today,
    other_reranker,
    why_no_answer,
)
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import ContextServed, RecordedEvent
from mnemolog.domain.position import Micros, Position
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.context.receipts import digest_of
from mnemolog.projections.context.rendering import FORMAT
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.context.token_counting import Counter
from mnemolog.projections.ports import Progress


class AuditedContext(AuditedReceipt, frozen=True, kw_only=True):
    """A receipt of a context and the result of building it again."""

    session: str | None
    """The session whose working memory it has; None for none."""
    turns: tuple[Position, ...]
    """The turns in the text, in its order."""
    values: tuple[str, ...]
    """The keys of the values in the text."""
    tokens: int
    budget: int
    counted_by: str


class ContextAudit(ReceiptAudit, frozen=True, kw_only=True):
    """The results for receipts of contexts, in the order they were recorded."""

    contexts: tuple[AuditedContext, ...]


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
    """Build up to `limit` contexts again. `counters` are the available counters of tokens, by name."""
    repeat = partial(_audited, contexts, counters)
    audited, tally = audited_receipts(
        log, ContextServed, repeat, since=since, after=after, limit=limit, progress=progress
    )
    return ContextAudit(contexts=audited, **tally)


def _audited(
    contexts: Contexts, counters: dict[str, Counter], recorded: RecordedEvent, served: ContextServed, gone: Gone
) -> AuditedContext:
    found = AuditedContext(
        position=recorded.position,
        served_at=to_datetime(recorded.recorded_at),
        query=served.recall.query,
        actor=served.actor,
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
    verdict, why = _built_again(contexts, served, counter)
    if verdict is Verdict.DIFFERS and gone.first is not None and gone.first <= served.recall.head:
        verdict, why = Verdict.UNKNOWN, f"content that it was built from was forgotten since: {why}"
    return _compared_with_today(contexts, served, counter, replace(found, verdict=verdict, why=why))


def _why_not(served: ContextServed, counters: dict[str, Counter]) -> str | None:
    """Return why a context cannot be built again here; None if it can be."""
    if served.form != FORMAT:
        return f"it was built as {served.form}, this mnemolog builds {FORMAT}"
    if served.counted_by not in counters:
        return f"{served.counted_by} counted its tokens: pass that function to store.audit.contexts(tokenizer=...)"
    return None


def _built_again(contexts: Contexts, served: ContextServed, counter: Counter) -> tuple[Verdict, str]:
    try:
        again, recall = contexts.again(served, counter)
    except NO_ANSWER as error:
        return Verdict.UNKNOWN, why_no_answer(error)
    if digest_of(again) == served.digest:
        return Verdict.REPRODUCES, ""
    difference = "the same turns, in another text"
    if list(again.positions) != served.turns:
        difference = f"other turns: {listed(again.positions)} instead of {listed(served.turns)}"
    if other := other_reranker(served.recall, recall):
        return Verdict.UNKNOWN, f"{other}: {difference}"
    return Verdict.DIFFERS, difference


def _compared_with_today(
    contexts: Contexts, served: ContextServed, counter: Counter, found: AuditedContext
) -> AuditedContext:
    """Add today's text. The answer to a question with `as_of` never changes."""
    if served.recall.as_of:
        return replace(found, would_differ_today=False)
    try:
        now, recall = contexts.today(served, counter)
    except NO_ANSWER as error:
        return replace(found, today=str(error))
    if why := no_vectors_today(served.recall, recall):
        return replace(found, today=why)
    return replace(
        found,
        would_differ_today=digest_of(now) != served.digest,
        came=tuple(position for position in now.positions if position not in found.turns),
        went=tuple(position for position in found.turns if position not in now.positions),
    )
