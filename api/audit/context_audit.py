"""Audit receipts of contexts: build each again as of its head, and as of now."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Unpack

from msgspec.structs import replace

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.receipt_audit import (
    AuditedReceipt,
    Chosen,
    Gone,
    ReceiptAudit,
    Verdict,
    audited_receipts,
    listed,
    repeated,
    with_today,
)
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import ContextServed, RecordedEvent
from mnemolog.domain.position import Position
from mnemolog.projections.context.receipts import digest_of
from mnemolog.projections.context.rendering import FORMAT
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.context.token_counting import Counter
from mnemolog.projections.recall.answer import Recall


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
    visible: VisibleEvents,
    contexts: Contexts,
    counters: dict[str, Counter],
    **which: Unpack[Chosen],
) -> ContextAudit:
    """Build contexts again. `counters` are the available counters of tokens, by name."""
    audited, tally = audited_receipts(visible, ContextServed, partial(_audited, contexts, counters), **which)
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

    def again() -> tuple[Recall, str]:
        built, recall = contexts.again(served, counter)
        if digest_of(built) == served.digest:
            return recall, ""
        if list(built.positions) == served.turns:
            return recall, "the same turns, in another text"
        return recall, f"other turns: {listed(built.positions)} instead of {listed(served.turns)}"

    def today() -> tuple[Recall, Sequence[Position], bool]:
        now, recall = contexts.today(served, counter)
        return recall, now.positions, digest_of(now) != served.digest

    verdict, why = repeated(served.recall, again)
    if verdict is Verdict.DIFFERS and gone.first is not None and gone.first <= served.recall.head:
        verdict, why = Verdict.UNKNOWN, f"content that it was built from was forgotten since: {why}"
    return with_today(replace(found, verdict=verdict, why=why), served.recall, served.turns, today)


def _why_not(served: ContextServed, counters: dict[str, Counter]) -> str | None:
    """Return why a context cannot be built again here; None if it can be."""
    if served.form != FORMAT:
        return f"it was built as {served.form}, this mnemolog builds {FORMAT}"
    if served.counted_by not in counters:
        return f"{served.counted_by} counted its tokens: pass that function to store.audit.contexts(tokenizer=...)"
    return None
