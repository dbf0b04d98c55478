"""What a message calls to mind, for the context of a model: without what stands there already, or was taken back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import msgspec

from mnemolog.application.session_service import Sessions
from mnemolog.domain.limits import RECALL_K_MAX
from mnemolog.domain.spans import Spans
from mnemolog.projections.recall.answer import Hit, Recall
from mnemolog.projections.recall.prefetch_ticket import PrefetchReason, Request
from mnemolog.projections.recall.service import Recalls

if TYPE_CHECKING:
    from mnemolog.session import Session

WAIT_S: Final = 2.0
"""How long an answer waits for the model, before words alone answer."""
SIMILARITY_MIN: Final = 0.25
"""An estimate, not measured: of a small model's vectors, those of unrelated texts are mostly below it."""
MESSAGE_CHARS_MAX: Final = 4_000
"""What is asked of a longer message is how it begins."""
LINE_CHARS: Final = 800
"""What is shown of a turn."""


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """What no message is to call to mind. See `Session.context_for`."""

    known_after: int | None
    sessions: Collection[str]
    similarity_min: float


def context_for(
    session: Session,
    sessions: Sessions,
    recalls: Recalls,
    asked: Request,
    left_out: LeftOut,
    *,
    fresh: bool,
    wait_s: float,
) -> list[Hit]:
    """Return what a message calls to mind. See `Session.context_for`."""
    asked = msgspec.structs.replace(asked, query=asked.query[:MESSAGE_CHARS_MAX])
    # More than are wanted, for some will be left out.
    wide = msgspec.structs.replace(asked, k=min(2 * asked.k, RECALL_K_MAX))
    asked.question()  # Raises for what cannot be asked.
    queued, answer = session.prefetch_result(), None
    if fresh or queued.reason is not PrefetchReason.NOT_READY:
        session.prefetch(wide.query, k=wide.k, scope=wide.scope)
        answer = session.prefetch_result(wait_s=wait_s).recall
    if answer is None:
        answer = recalls.ask(msgspec.structs.replace(wide, mode="text").question())
    answering = answer.hits if _answers(answer, left_out.similarity_min) else ()
    earlier = () if fresh or queued.recall is None else queued.recall.hits
    hits = {hit.position: hit for hit in (*answering, *earlier)}.values()
    lineage = set(session.lineage())
    without = set(left_out.sessions) - lineage | (lineage if session.undone() else set())
    known, stands = left_out.known_after, _standing(sessions, session.id)
    return [
        hit
        for hit in hits
        if hit.session not in without
        and (known is None or hit.session != session.id or hit.position <= known)
        and stands(hit)
    ][: asked.k]


def line_of(hit: Hit, *, chars_max: int = LINE_CHARS) -> str:
    """Return a turn as a line for a model: when, who and what, cut behind `chars_max` characters."""
    text = hit.text if len(hit.text) <= chars_max else f"{hit.text[:chars_max]}…"
    return f"- {hit.said_at:%Y-%m-%d} {hit.speaker or hit.role}: {text}"


def _answers(recall: Recall, similarity_min: float) -> bool:
    """Whether anything in it has a word or enough of the meaning in common with the query."""
    return any("text" in hit.ranks or (hit.similarity or 0) >= similarity_min for hit in recall.hits)


def _standing(sessions: Sessions, here: str) -> Callable[[Hit], bool]:
    """Return what tells whether a turn was not hidden: by the session `here`, or by its own if this one sees it not."""
    seen, hidden_too = sessions.spans(here), sessions.spans(here, hidden=True)

    def stands(hit: Hit) -> bool:
        if _hold(seen, hit) or _hold(hidden_too, hit):
            return _hold(seen, hit)
        return _hold(sessions.spans(hit.session), hit)

    return stands


def _hold(spans: Spans, hit: Hit) -> bool:
    return any(span.holds(hit.session, hit.position) for span in spans)
