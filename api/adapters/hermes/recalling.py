"""What a message calls to mind, without what the model has before it already, or was taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import structs

from mnemolog.adapters.hermes.told import IN_DOUBT
from mnemolog.domain.position import Position
from mnemolog.projections.recall import Hit
from mnemolog.session import Session
from mnemolog.store import MemoryStore
from mnemolog.tickets import PrefetchReason

PATIENCE_S: Final = 2.0
"""How long an answer waits for the model, before words alone answer. Hermes gives up after 8 seconds."""
SIMILARITY_MIN: Final = 0.25
"""An answer without a word in common and without a turn as similar as this is none: unrelated texts have 0 to 0.2."""
QUERY_CHARS: Final = 4_000
TEXT_CHARS: Final = 800
"""What is shown of a turn."""


def recalled(store: MemoryStore, session: Session, query: str, *, k: int, scope: str, afresh: bool) -> list[Hit]:
    """Return turns of all sessions in `scope`: those that answer, then those that the last turn has called to mind.

    The latter only if nothing was switched since, and not `afresh`. A model that is stuck holds nobody up. What was
    taken back is left out: a turn that this session has hidden, or its own one has and this one does not see.
    """
    before, answer = session.take_prefetch(), None
    if afresh or before.reason is not PrefetchReason.NOT_READY:
        session.prefetch(query[:QUERY_CHARS], k=k, scope=scope)
        answer = session.take_prefetch(wait_s=PATIENCE_S).recall
    if answer is None:
        answer = store.recall(query[:QUERY_CHARS], k=k, scope=scope, mode="text")
    if not any("text" in hit.ranks or (hit.similarity or 0) >= SIMILARITY_MIN for hit in answer.hits):
        answer = structs.replace(answer, hits=())
    queued = () if afresh or before.recall is None else before.recall.hits
    hits = {hit.position: hit for hit in (*answer.hits, *queued)}.values()
    return [hit for hit in hits if _stands(store, session, hit)]


def _stands(store: MemoryStore, session: Session, hit: Hit) -> bool:
    if _seen(session, hit):
        return True
    return not _seen(session, hit, hidden=True) and _seen(store.session(hit.session), hit)


def _seen(session: Session, hit: Hit, *, hidden: bool = False) -> bool:
    return bool(session.turns(after=Position(hit.position - 1), before=Position(hit.position + 1), hidden=hidden))


def new_to(session: Session, hits: Iterable[Hit], *, since: int, left: str) -> Iterator[Hit]:
    """Yield the turns that are not in the context of the model: there is what this session said behind `since`.

    Nor those of the session `left` a moment ago, and after an undo none of this one's, until it is known which.
    """
    lineage = set(session.lineage())
    doubted = ({left} - lineage) | (lineage if session.exists(IN_DOUBT) else set())
    return (hit for hit in hits if hit.session not in doubted and (hit.session != session.id or hit.position <= since))


def shown(hit: Hit) -> str:
    """Return a turn as a line for the model."""
    text = hit.text if len(hit.text) <= TEXT_CHARS else f"{hit.text[:TEXT_CHARS]}…"
    return f"- {hit.said_at:%Y-%m-%d} {hit.speaker or hit.role}: {text}"
