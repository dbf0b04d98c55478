"""Put a statement that tells of a change before what it changes.

It is an order, no verdict which of the two holds. Changes are read from patterns of English.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from mnemolog.projections.recall.candidates import Candidates
from mnemolog.projections.recall.request import NOT_NOW, pattern
from mnemolog.projections.recall.whose_statement import Whose
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.words import words_of

if TYPE_CHECKING:
    from mnemolog.projections.recall.scoring import Scored

ANSWERS: Final = 0.5
"""The least similarity to the question of a statement that a later one is put before."""
SHORT: Final = 160
"""Both have at most so many characters."""
AHEAD: Final = 1e-4
"""How much log-odds a statement that tells of a change is put ahead."""
BEGINNING: Final = 4
"""How many words of a statement say whom it is about."""


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
