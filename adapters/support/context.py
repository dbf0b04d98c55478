"""Select earlier turns that are relevant to a message, for a model's context."""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from mnemolog.adapters.support.framework_sessions import has_pending_undo
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain.values import RECALL_K_MAX
from mnemolog.projections.context.answer import day, indented, label
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.recall.hits import sees
from mnemolog.projections.recall.passages import marked
from mnemolog.projections.recall.prefetch import PrefetchReason, Request
from mnemolog.session import Session

WAIT_S: Final = 2.0
"""How long a recall waits for the model, before text alone answers."""
SIMILARITY_MIN: Final = 0.25
"""An estimate, not measured: with a small model, unrelated texts are mostly less similar than this."""
MESSAGE_CHARS_MAX: Final = 4_000
"""A longer message is cut to this before it is used as a query."""


def context_for(
    session: Session,
    message: str,
    *,
    k: int = 5,
    scope: str | Sequence[str] | None = None,
    fresh: bool = False,
    known_after: int | None = None,
    without: Collection[str] = (),
    similarity_min: float = SIMILARITY_MIN,
    wait_s: float = WAIT_S,
) -> list[Hit]:
    """Return up to `k` earlier turns that are relevant to a message, to be put before a model; possibly none.

    First those that answer the message itself, then those that `Session.prefetch` has found meanwhile, if they are
    still valid and unless `fresh`. Searched is the scope of the session, or `scope`, as `Session.recall` does.
    If the model has not answered after `wait_s` seconds, text alone answers; at once, if the model was stuck before.

    Excluded are:

    - turns of this session after position `known_after`: the model has them in its context;
    - turns of the sessions `without`, unless they are this session or its ancestors;
    - everything that this session sees, while an undo is pending (`flag_pending_undo`);
    - turns hidden in this session, or in the session in which they were said;
    - every answer to the message, if none has a word in common with it or a similarity of `similarity_min`.

    Raises as `Session.prefetch` does, and as a recall by text.
    """
    asked = Request(session=session.id, own=session.scope, query=message[:MESSAGE_CHARS_MAX], k=k, scope=scope)
    asked.question()  # Raises for an invalid request.
    # More than are wanted, for some will be left out.
    wide = msgspec.structs.replace(asked, k=min(2 * k, RECALL_K_MAX))
    queued, answer = session.prefetch_result(), None
    if fresh or queued.reason is not PrefetchReason.NOT_READY:
        session.prefetch(wide.query, k=wide.k, scope=wide.scope)
        answer = session.prefetch_result(wait_s=wait_s).recall
    if answer is None:
        answer = session._parts.contexts.recalls.ask(
            msgspec.structs.replace(wide, options={"mode": "text"}).question()
        ).recall
    # Anything in it that has a word or enough of the meaning in common with the query.
    is_answer = any("text" in hit.ranks or (hit.similarity or 0) >= similarity_min for hit in answer.hits)
    answering = answer.hits if is_answer else ()
    earlier = () if fresh or queued.recall is None else queued.recall.hits
    hits = {hit.position: hit for hit in (*answering, *earlier)}.values()
    lineage = set(session.lineage())
    excluded = set(without) - lineage | (lineage if has_pending_undo(session) else set())
    spans = visible_of(session).spans
    seen, with_hidden = spans(session.id), spans(session.id, hidden=True)

    def may_be_shown(turn: Hit | Turn) -> bool:
        in_context = known_after is not None and turn.session == session.id and turn.position > known_after
        if turn.session in excluded or in_context:
            return False
        is_here = sees(seen, turn) or sees(with_hidden, turn)
        # Hidden neither here nor, if this session does not have it, where it was said.
        return sees(seen if is_here else spans(turn.session), turn)

    shown = [hit for hit in hits if may_be_shown(hit)][:k]
    return [
        hit if hit.newer is None or may_be_shown(hit.newer) else msgspec.structs.replace(hit, newer=None)
        for hit in shown
    ]


def line_of(hit: Hit) -> str:
    """Return a turn as a line for a model: when, who and what; of a long turn, the best passage.

    What the same user said later about the same thing follows it.
    """
    later = "" if hit.newer is None else f"\n  see also, {day(hit.newer.said_at)}: {indented(hit.newer.text)}"
    who = hit.role.value if hit.speaker is None else label(hit.speaker)
    return f"- {day(hit.said_at)} {who}: {indented(marked(hit.passage, hit.text))}{later}"
