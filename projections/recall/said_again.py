"""Find what was said again: turns that ask what a recall asks, that have the same words, or speak of the same later.

Askings answer nothing, and lend nothing to the turns next to them. A chat records the user's message and then recalls
it; and people ask the same again weeks later. Without this the best hit for a question is the question, and the next
one the reply to it ("Let me check."). What the same user said later is a pointer, no verdict which of the two holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import Final

import sqlalchemy as sa

from mnemolog.domain.message import Role
from mnemolog.domain.values import Position
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.context_rows import Rows
from mnemolog.projections.recall.request import ASKS
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import STOP_WORDS, stems_of, words_of

SAME_MEANING: Final = 0.8
"""An asking with one more stem than the question must have this cosine similarity to it."""
MESSAGE_WORDS: Final = 4
"""A query of fewer words, unless it was said with a question mark, is a look-up of words rather than a message."""
_LAST: Final = 6
"""How many of the last stems of a turn are compared before all of them."""
_ABOUT_ASKINGS: Final = re.compile(r"\b(?:ask\w*|question\w*)\b", re.IGNORECASE)
"""Such a question wants askings: "What did I ask about the ferry?"."""
NOT_TELLING: Final = frozenset(stems_of(" ".join(sorted(STOP_WORDS))))
"""The stems of words that say nothing of a subject."""


def askings(
    rows: Rows, similarity: Mapping[Position, float], query: str, whole: str, *, language: str, newest: Position
) -> frozenset[Position]:
    """Return which of these turns ask the question themselves.

    - `query`: the question, or a part of it; `whole`: all of it.
    - `newest`: the last turn of the store. If its words are the query, it is what the recall was made for, and earlier
      askings are those of its speaker.
    - `similarity`: of turns to the query, as far as they have vectors.

    If the query is a question, an earlier asking is a user's turn that ends with a question mark and has no stem beyond
    the question's, or one more and almost the same meaning. If it is not known who asks, a turn to which another user
    replies is none: friends ask each other, and such a question is the subject of the reply.
    """
    said = stems_of(whole, language)
    asked = said if query == whole else stems_of(query, language)
    found, speakers = set[Position](), None
    if newest in rows.positions:
        n = rows.positions.index(newest)
        words = rows.stems[n].partition("  ")[0].split()  # Without the spellings of numbers.
        is_message = rows.ask[n] or len(words) >= MESSAGE_WORDS
        if is_message and rows.roles[n] == Role.USER and rows.stems[n].split() == said:
            found, speakers = {newest}, {rows.speakers[n]}
    if _ABOUT_ASKINGS.search(query) or not ASKS.search(query):
        return frozenset(found)
    known = NOT_TELLING.union(asked)
    for n in compress(range(len(rows.ask)), rows.ask):
        others = _user_follows(rows, n) if speakers is None else rows.speakers[n] not in speakers
        if others or rows.roles[n] != Role.USER:
            continue
        if len(set(rows.stems[n].rsplit(None, _LAST)[1:]) - known) > 1:
            continue  # Most turns end in other words: there is no need to split the rest.
        stems = frozenset(rows.stems[n].split())
        more = stems - known
        if len(more) > 1 or (more and similarity.get(rows.positions[n], 0.0) < SAME_MEANING):
            continue
        if not stems <= NOT_TELLING:
            found.add(rows.positions[n])
    return frozenset(found)


def _user_follows(rows: Rows, n: int) -> bool:
    """Whether the turn after a row, if it was read, is a user's."""
    return n + 1 < len(rows.places) and rows.places[n + 1] == rows.places[n] + 1 and rows.roles[n + 1] == Role.USER


COMPARED_CHARACTERS_MAX: Final = 10_000
"""A longer text repeats only one that is equal to the letter."""
_SAID: Final = (
    f"SELECT position, role, speaker, scope, text FROM {queries.WITH_SESSIONS} WHERE {queries.LISTED} "
    "ORDER BY coalesce(said_at, recorded_at), position"
)


def said_alike(connection: sa.Connection, positions: Sequence[Position]) -> dict[Position, tuple[Position, ...]]:
    """Return which of these turns say the same, by each of them, in the order of time: what was said last is the last.

    They have the same words, and one role, speaker and scope: `I live in Porto` means another thing from another user.
    Every number, name and negation counts, in any language.
    """
    found: dict[object, list[Position]] = {}
    for at, role, speaker, scope, text in fetch(connection, _SAID, listed(positions)) if positions else ():
        said = words_of(text) if len(text) <= COMPARED_CHARACTERS_MAX else [text]
        found.setdefault((role, speaker, scope, *said), []).append(at)
    return {at: tuple(group) for group in found.values() if len(group) > 1 for at in group}


SIMILAR: Final = 0.4
"""The least cosine similarity of the two."""
SIMILAR_IN_PART: Final = 0.3
"""The same, where a part of a turn may be about the same thing."""
CHARACTERS_MAX: Final = 400
"""A longer turn says many things."""


def later_statement(
    rows: Rows,
    offered: Collection[Position],
    near: Callable[[Position, list[Position]], dict[Position, float]],
    connection: sa.Connection,
    position: Position,
    *,
    in_part: bool = False,
) -> Turn | None:
    """Return the most similar statement that the same user made after a turn, if it is similar enough.

    It is one of the `offered` turns, of the same speaker and scope, and no question. With `in_part`, a part of it may
    be similar: less similarity is enough, and it may end with a question. `near` returns how similar turns, ascending,
    are to another one.
    """
    n, user = rows.positions.index(position), Role.USER.value
    if rows.roles[n] != user:
        return None
    speaker, said = rows.speakers[n], rows.said[n]
    columns = zip(rows.positions, rows.said, rows.ask, rows.roles, rows.speakers, rows.stems, strict=True)
    later = [
        at
        for at, when, asks, role, who, stems in columns
        if at > position and at in offered and role == user and who == speaker
        if when >= said and (in_part or not asks) and len(stems) <= CHARACTERS_MAX
    ]
    least = SIMILAR_IN_PART if in_part else SIMILAR
    similar = {at: likeness for at, likeness in sorted(near(position, sorted(later)).items()) if likeness >= least}
    for at in sorted(similar, key=similar.__getitem__, reverse=True):
        turns = queries.turns_at(connection, [position, at])
        if len(turns) < 2 or len(turns[at].text) > CHARACTERS_MAX:
            continue
        if turns[at].scope == turns[position].scope and turns[at].text != turns[position].text:
            return turns[at]
    return None
