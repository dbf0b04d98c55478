"""Read ranked turns as hits, with the turns around them and the other side of their exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.role import Role
from mnemolog.domain.scope import Scopes, covered
from mnemolog.domain.spans import Span, Spans, cut
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.recall.candidates import Ranked
from mnemolog.projections.recall.passages import SoughtWords, best_passage
from mnemolog.projections.recall.question import Question
from mnemolog.projections.sql import distrust, queries
from mnemolog.projections.sql.span_queries import positions_in

REACH: Final = 40
"""How many turns before or after a hit are looked at: outputs of tools may lie between a question and its reply."""
EXCHANGE_TURNS_MAX: Final = 4
"""An exchange has at most so many turns besides the hit: the last ones of a reply, the last ones before it."""


def hits_of(
    connection: sa.Connection,
    ranked: Sequence[Ranked],
    *,
    words: SoughtWords,
    question: Question,
    spans: Spans | None,
    head: Position,
    seen_by: Callable[[str], Spans],
    repeated: Mapping[Position, tuple[Position, ...]],
    superseded: Mapping[Position, Position],
    newer: Mapping[Position, Turn | None],
) -> tuple[Hit, ...]:
    """Return ranked turns as hits, each with its best passage for `words` and the turns around it that are wanted.

    Neighbours come from `spans` if the turn lies there, or else from its own session; an exchange from `spans`, or else
    from what that session sees, `seen_by`; none of them is after `head`. Forgotten turns are left out.
    """
    turns = queries.turns_at(connection, [turn.position for turn in ranked])
    titles = queries.titles_of(connection, {turn.session for turn in turns.values()})
    hits = []
    for place in ranked:
        if (turn := turns.get(place.position)) is None:
            continue
        count = question.context_turns
        near = spans if question.beside is None or sees(spans or (), turn) else None
        before, after = _neighbours(connection, turn, count, near, head) if count else ((), ())
        exchange: tuple[Turn, ...] = ()
        if question.exchange:
            seen = cut(seen_by(turn.session) if near is None else near, upto=head)
            exchange = exchange_of(connection, turn, seen=seen, scopes=question.scopes, head=head)
        hits.append(
            Hit(
                text=turn.text,
                passage=best_passage(turn.text, words),
                relevance=place.relevance,
                position=place.position,
                session=turn.session,
                session_title=titles.get(turn.session, ""),
                role=turn.role,
                speaker=turn.speaker,
                said_at=turn.said_at,
                key=turn.key,
                scope=turn.scope,
                metadata=turn.metadata,
                ranks=place.ranks,
                similarity=place.similarity,
                score_parts=place.parts,
                before=before,
                after=after,
                newer=newer.get(turn.position),
                exchange=exchange,
                repeated=repeated.get(turn.position, ()),
                superseded_by=superseded.get(turn.position),
            )
        )
    return tuple(hits)


def _neighbours(
    connection: sa.Connection, turn: Turn, count: int, spans: Spans | None, head: Position
) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    seen = cut((Span(turn.session, ORIGIN),) if spans is None else spans, upto=head)
    before = queries.turns_in(connection, seen, before=turn.position, newest_first=True, limit=count)
    after = queries.turns_in(connection, seen, after=turn.position, limit=count)
    gone = distrust.among(connection, [near.position for near in (*before, *after)], head)
    before, after = ([near for near in side if near.position not in gone] for side in (before, after))
    return tuple(reversed(before)), tuple(after)


def sees(spans: Spans, turn: Turn | Hit) -> bool:
    """Whether a turn lies in any of these spans."""
    return any(span.holds(turn.session, turn.position) for span in spans)


def exchange_of(
    connection: sa.Connection, turn: Turn, *, seen: Spans, scopes: Scopes, head: Position
) -> tuple[Turn, ...]:
    """Return the other side of the exchange that a turn belongs to, in order; empty if there is none.

    For a user's turn, the assistant's turns after it, up to the next one of the user; for an assistant's turn, the
    user's turns before it. Turns of tools and of the system are passed over, and those distrusted as of `head`. All of
    them lie in `seen` and at or below any of `scopes`. A turn outside of `seen` has no exchange.
    """
    wanted = {Role.USER: Role.ASSISTANT, Role.ASSISTANT: Role.USER}.get(turn.role)
    if wanted is None or not sees(seen, turn):
        return ()
    if back := wanted is Role.USER:
        near = positions_in(connection, seen, before=turn.position, newest_first=True, limit=REACH)
    else:
        near = positions_in(connection, seen, after=turn.position, limit=REACH)
    roles, found = queries.roles_at(connection, near), list[Position]()
    gone = distrust.among(connection, near, head)
    for position in near:
        role = roles.get(position)
        if role is wanted and position not in gone:
            found.append(position)
        elif role is turn.role and found:
            break
    chosen = found[:EXCHANGE_TURNS_MAX][::-1] if back else found[-EXCHANGE_TURNS_MAX:]
    turns = queries.turns_at(connection, chosen)
    return tuple(turns[at] for at in chosen if at in turns and covered(scopes, turns[at].scope))
