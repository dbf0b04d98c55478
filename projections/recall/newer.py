"""Find what a user said later about the same thing: a pointer, and where it tells of a change, a place before.

Neither is a verdict which of the two holds. Changes are read from patterns of English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.domain.role import Role
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.context_rows import Rows
from mnemolog.projections.recall.request import NOT_NOW, pattern
from mnemolog.projections.recall.whose_statement import Whose
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.words import words_of

if TYPE_CHECKING:
    from mnemolog.projections.recall.candidates import Candidates
    from mnemolog.projections.recall.scoring import Scored

Near = Callable[[Position, list[Position]], dict[Position, float]]
"""Returns the similarities of turns (ascending) to another one."""
SIMILAR: Final = 0.4
"""The least cosine similarity of the two. From 0.3 to 0.4 it makes no difference on changed facts."""
CHARACTERS_MAX: Final = 400
"""A longer turn says many things."""
ANSWERS: Final = 0.5
"""The least similarity to the question of a statement that a later one is put before."""
SHORT: Final = 160
"""Both have at most so many characters."""
AHEAD: Final = 1e-4
"""How much log-odds a statement that tells of a change is put ahead."""
BEGINNING: Final = 4
"""How many words of a statement say whom it is about."""


def later_statement(
    rows: Rows, offered: Collection[Position], near: Near, connection: sa.Connection, position: Position
) -> Turn | None:
    """Return the most similar statement that the same user made after a turn, if it is similar enough.

    It is one of the `offered` turns, of the same speaker and scope, and no question.
    """
    n, user = rows.positions.index(position), Role.USER.value
    if rows.roles[n] != user:
        return None
    speaker, said = rows.speakers[n], rows.said[n]
    columns = zip(rows.positions, rows.said, rows.ask, rows.roles, rows.speakers, rows.stems, strict=True)
    later = sorted(
        at
        for at, when, asks, role, who, stems in columns
        if at > position and at in offered and role == user and who == speaker
        if when >= said and not asks and len(stems) <= CHARACTERS_MAX
    )
    similarity = near(position, later)
    for at in sorted((at for at in similarity if similarity[at] >= SIMILAR), key=lambda at: (-similarity[at], at)):
        turns = queries.turns_at(connection, [position, at])
        if len(turns) < 2 or len(turns[at].text) > CHARACTERS_MAX:
            continue
        if turns[at].scope == turns[position].scope and turns[at].text != turns[position].text:
            return turns[at]
    return None


def put_change_first(
    connection: sa.Connection, found: Candidates, query: str, scored: Scored, *, behind_max: float
) -> None:
    """Put the statement that tells of a change of what the best turn says before it, for a question about the present.

    If the question is about others than the user, both have the rarest of its words that the earlier one has.
    """
    rows, counts = found.rows, found.counts
    best = next((n for n in scored.order() if rows.may_be_hits[n]), 0)
    position = rows.positions[best]
    if found.later is None or rows.ask[best] or (found.similarity or {}).get(position, 0.0) < ANSWERS:
        return
    if (later := found.later(connection, position)) is None:
        return
    change = rows.positions.index(later.position)
    if found.terms.request.whose == Whose.OPEN:
        held = [stem for stem in found.terms.stems if stem in counts.holding and f" {stem} " in rows.stems[best]]
        if f" {max(held, key=counts.rarity, default='')} " not in rows.stems[change]:
            return
    earlier = queries.turns_at(connection, [position])[position].text
    behind = scored.total[best] - scored.total[change]
    if behind <= behind_max and tells_of_change(query, earlier, later.text):
        scored.parts["currency"] = 0 * scored.total
        scored.parts["currency"][change] = behind + AHEAD
        scored.total[change] += behind + AHEAD


def tells_of_change(query: str, earlier: str, later: str) -> bool:
    """Whether a later statement tells that what an earlier one says has changed, for a question about the present.

    It has a word of change, it is no wish and not about an earlier time. It has every name and relative of the question
    that the earlier one has, and begins with no other relative. Both are short.
    """
    if max(len(earlier), len(later)) > SHORT or NOT_NOW.search(later) or not _CHANGE.search(later):
        return False
    asked, before, after = (frozenset(words_of(text)) for text in (query, earlier, later))
    names = frozenset(words_of(" ".join(_NAME.findall(f"{query} {earlier}"))))
    others = _RELATIVES.intersection(words_of(later)[:BEGINNING]) - before
    return asked & before & (names | _RELATIVES) <= after and not others


_NAME: Final = re.compile(r"(?<=[^.!?:] )[A-Z]\w+")
"""A word with a capital that begins no sentence."""
_RELATIVES: Final = frozenset(
    """wife husband partner mother mum mom father dad parents son daughter kids child children brother sister cousin
    uncle aunt nephew niece grandma grandpa friend boyfriend girlfriend colleague neighbour neighbor""".split()  # noqa: SIM905
)
_CHANGE: Final = pattern(
    "now|no longer|no more|any ?more|these days|by now|instead|since(?! \\d)|after all|turn(?:s|ed) out|from \\w+ on",
    "mov(?:ed?|ing)|swapped|switched|changed|replac\\w+|(?:took|tak\\w+) over|retir\\w+|left|quit|gave up|stopped",
    "picked up|died|clos(?:ed|ing)|shut|sold|cancel\\w*|start(?:s|ed|ing)?|beg[au]n|back (?:in|on|to)|rais\\w+|put up",
    "extend\\w*|doubled|halved|dropped|shifted|upgraded|postponed|rebooked|rescheduled|push\\w* back",
)
