"""Convert a context to a receipt event."""

from __future__ import annotations

from hashlib import sha256

from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.projections.context.answer import BlockKind, Context
from mnemolog.projections.context.rendering import FORMAT


def receipt_of(context: Context, recall: RecallServed, min_relevance: float | None, *, of: str | None) -> ContextServed:
    """Return the receipt of a context, with that of its recall. `of` is the session of its working memory."""
    kinds = [block.kind for block in context.blocks]
    passages = [passage for block in context.blocks for passage in block.passages]
    return ContextServed(
        recall=recall,
        form=FORMAT,
        budget=context.budget,
        tokens=context.tokens,
        counted_by=context.counted_by,
        min_relevance=min_relevance,
        of=of,
        moment=recall.moment or 0,
        turns=[passage.position for passage in passages],
        starts=[passage.start for passage in passages],
        ends=[passage.end for passage in passages],
        sessions=sorted({passage.session for passage in passages}),
        facts=[block.fact for block in context.blocks if block.fact is not None],
        has_task=BlockKind.TASK in kinds,
        values=[block.name for block in context.blocks if block.kind is BlockKind.VALUE],
        notes=kinds.count(BlockKind.NOTE),
        digest=digest_of(context),
    )


def digest_of(context: Context) -> str:
    """Return the SHA-256 of a context's text, in hexadecimal digits."""
    return sha256(context.text.encode()).hexdigest()
