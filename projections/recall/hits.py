"""Read ranked turns as hits, with the turns around them and the other side of their exchange."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from mnemolog.domain.message import Role
from mnemolog.domain.scope import Scopes, covered
from mnemolog.domain.session import Span, Spans, cut
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.recall.candidates import Ranked
from mnemolog.projections.recall.passages import SoughtWords, best_passage
from mnemolog.projections.recall.question import Question
from mnemolog.projections.sql import distrust, queries

REACH: Final = 40
"""How many turns before or after a hit are looked at: outputs of tools may lie between a question and its reply."""
EXCHANGE_TURNS_MAX: Final = 4
"""An exchange has at most so many turns besides the hit: the last ones of a reply, the last ones before it."""


_OTHER_SIDE: Final = {Role.USER: Role.ASSISTANT, Role.ASSISTANT: Role.USER}


def hits_of(
    connection: sa.Connection,
    ranked: Sequence[Ranked],
    *,
    words: SoughtWords,
    question: Question,
    spans: Spans | None,
    head: Position,
    seen_by: Callable[[Collection[str]], Mapping[str, Spans]],
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
    exchanges: Mapping[Position, tuple[Turn, ...]] = {}
    if question.exchange:
        seen = cut(spans or (), upto=head)
        exchanges = exchanges_of(
            connection, turns.values(), own=seen, seen_by=seen_by, scopes=question.scopes, head=head
        )
    hits, count = [], question.context_turns
    for place in ranked:
        if (turn := turns.get(place.position)) is None:
            continue
        near = spans if question.beside is None or sees(spans or (), turn) else None
        before, after = _neighbours(connection, turn, count, near, head) if count else ((), ())
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
                exchange=exchanges.get(turn.position, ()),
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


def sees(spans: Spans, turn: Any) -> bool:
    """Whether a turn, or a passage of one, lies in any of these spans."""
    return any(span.holds(turn.session, turn.position) for span in spans)


def exchanges_of(
    connection: sa.Connection,
    turns: Collection[Any],
    *,
    own: Spans,
    seen_by: Callable[[Collection[str]], Mapping[str, Spans]],
    scopes: Scopes,
    head: Position,
) -> dict[Position, tuple[Turn, ...]]:
    """Return the other side of the exchange that each turn, or passage, belongs to, in order, by its position.

    For a user's turn, the assistant's turns after it, up to the next one of the user; for an assistant's turn, the
    user's turns before it. Turns of tools and of the system are passed over, and those distrusted as of `head`. All of
    them lie at or below any of `scopes`, and in the spans `own` if the turn lies there, or else in what its session
    sees. A turn outside of both has no exchange.
    """
    spans_of = {turn.position: own for turn in turns if own and sees(own, turn)}
    outside = [turn for turn in turns if turn.position not in spans_of]
    seen = seen_by({turn.session for turn in outside})
    spans_of |= {
        turn.position: spans
        for turn in outside
        if (spans := seen[turn.session])
        if spans[0].after < turn.position and (len(spans) == 1 or sees(spans, turn))
    }
    role_of = queries.roles_at(connection, list(spans_of))
    near = dict[Position, list[Position]]()
    for of, is_back in ((Role.USER, False), (Role.ASSISTANT, True)):
        of_role = [position for position in spans_of if role_of.get(position) is of]
        alone = [position for position in of_role if len(spans_of[position]) == 1]
        near |= queries.turns_beside(connection, alone, newest_first=is_back, limit=REACH)
        for position in {*of_role} - {*alone}:
            ends = {"before" if is_back else "after": position}
            near[position] = queries.positions_in(
                connection, spans_of[position], newest_first=is_back, limit=REACH, **ends
            )
    every = sorted({position for some in near.values() for position in some})
    role_of |= queries.roles_at(connection, every)
    gone, chosen = distrust.among(connection, every, head), dict[Position, list[Position]]()
    for position in near:
        of = role_of[position]
        spans = spans_of[position]
        found = list[Position]()
        for other in near[position]:
            if len(spans) == 1 and not spans[0].after < other <= (spans[0].upto or head):
                break
            role = role_of[other]
            if role is of and found:
                break
            if role is _OTHER_SIDE[of] and other not in gone:
                found.append(other)
        chosen[position] = found[-EXCHANGE_TURNS_MAX:] if of is Role.USER else found[:EXCHANGE_TURNS_MAX][::-1]
    others = queries.turns_at(connection, sorted({position for some in chosen.values() for position in some}))
    return {
        turn.position: tuple([others[at] for at in some if not scopes or covered(scopes, others[at].scope)])
        for turn in turns
        if (some := chosen.get(turn.position))
    }
