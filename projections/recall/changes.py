"""Put a statement about a change before what it changes, and before what was said again and again.

It is an order, no verdict which of them holds. Changes are read from patterns of English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from itertools import chain
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from mnemolog.domain.standing import SENTENCE
from mnemolog.projections.recall.candidates import NOT_TELLING, Candidates, Rows
from mnemolog.projections.recall.question import AHEAD
from mnemolog.projections.recall.request import MINE, NOT_NOW, Whose, pattern
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import terms_of, words_of

if TYPE_CHECKING:
    from mnemolog.projections.recall.scoring import Scored

ANSWERS: Final = 0.4
"""The least similarity to the question of a statement that a later one is put before."""
SHORT: Final = 160
"""Both statements, or sentences, have at most so many characters."""
BEGINNING: Final = 4
"""How many words of a statement say whom it is about."""


def put_change_first(
    connection: sa.Connection, found: Candidates, query: str, scored: Scored, *, behind_max: float
) -> None:
    """Put the statement that changes what the best turn says before it, for a question about the present.

    If the question is about others than the user, both have the rarest of its words that the earlier one has. If it is
    about the user, a sentence of a longer turn may tell of the change.
    """
    rows = found.rows
    counts = found.counts
    about_user = found.terms.request.whose != Whose.OPEN
    best = next((n for n in scored.order() if rows.may_be_hits[n]), 0)
    position = rows.positions[best]
    if found.later is None or (rows.ask[best] and not about_user):
        return
    if (found.similarity or {}).get(position, 0.0) < ANSWERS:
        return
    earlier = queries.turns_at(connection, [position])[position].text
    later = None if rows.ask[best] else found.later(connection, position)
    told = later is not None and tells_of_change(query, earlier, later.text)
    if about_user and not told:
        later = found.later(connection, position, in_part=True)
        told = later is not None and tells_in_part(query, earlier, later.text)
    if later is None or not told:
        return
    change = rows.positions.index(later.position)
    if not about_user:
        held = [stem for stem in found.terms.stems if stem in counts.holding and f" {stem} " in rows.stems[best]]
        if f" {max(held, key=counts.rarity, default='')} " not in rows.stems[change]:
            return
    behind = scored.total[best] - scored.total[change]
    if behind <= behind_max:
        scored.parts["currency"] = 0 * scored.total
        scored.parts["currency"][change] = behind + AHEAD
        scored.total[change] += behind + AHEAD


def repetitions_last(connection: sa.Connection, rows: Rows, order: Sequence[int]) -> list[int]:
    """Return the order of rows with what was said again, nearly in the same words, behind the first ten others.

    Of many turns that say nearly the same the best two come first, then
    those that differ most and the last one: they may say something else. A turn differs by each word that it lacks of
    what most of them share, by each number that they do not share, and twice by a word of change.
    """
    compared = [n for n in order if len(rows.stems[n]) <= REMINDER_CHARACTERS]
    words = {n: frozenset(rows.stems[n].split()) - NOT_TELLING for n in compared}
    counts = Counter(chain.from_iterable(words.values()))
    # So often, on average, is each word of the first of them in the turns compared, where enough say nearly the same.
    least = 1 + 2 * KEPT * SHARED / (2 - SHARED)
    if not any(sum(map(counts.__getitem__, said)) >= least * len(said) > 0 for said in words.values()):
        return list(order)
    runs: list[list[int]] = []
    for n in compared:
        said, role, speaker = words[n], rows.roles[n], rows.speakers[n]
        for run in runs[:FIRST]:
            first = words[run[0]]
            alike = 2 * len(said & first) >= SHARED * (len(said) + len(first)) > 0
            if alike and role == rows.roles[run[0]] and speaker == rows.speakers[run[0]]:
                run.append(n)
                break
        else:
            runs.append([n])
    ordered, again = list(order), set[int]()
    for run in [run for run in runs if len(run) > KEPT * 2]:
        said_by = Counter(chain.from_iterable(words[n] for n in run))
        shared = {word for word, count in said_by.items() if count * 2 > len(run)}
        texts = dict(fetch(connection, _TEXTS, listed([rows.positions[n] for n in run])))
        differs = dict.fromkeys(run, 0)
        for n in run:
            numbers = [word for word in words[n] - shared if not word.isalpha()]
            tells = _CHANGE.search(texts[rows.positions[n]]) is not None
            differs[n] = len(shared - words[n]) + len(numbers) + 2 * tells
        newest = words[max(run, key=rows.positions.__getitem__)]
        last = next(n for n in run if words[n] == newest)  # The best of those with its words: one of them is a hit.
        kept = dict.fromkeys([*run[:2], *nlargest(KEPT, run, key=differs.__getitem__), last])
        rest = [n for n in run if n not in kept]
        again.update(rest)
        for n, place in zip([*kept, *rest], sorted(map(order.index, run)), strict=True):
            ordered[place] = n
    before = [n for n in ordered if n not in again][:FIRST]
    return [*before, *(n for n in ordered if n not in before)] if again else ordered


_TEXTS: Final = f"SELECT position, text FROM turns WHERE {queries.LISTED}"
FIRST: Final = 10
"""Before what was said again there are at most so many other turns."""
COMPARED_MAX: Final = 50
"""The best turns, which are compared."""
REMINDER_CHARACTERS: Final = 400
"""Longer turns, in characters of stems, say many things."""
SHARED: Final = 0.5
"""Two turns say nearly the same if they share so much of their words, stop words aside (Dice)."""
KEPT: Final = 3
"""So many of those that lack most keep their places, where more than twice as many say nearly the same."""


def tells_in_part(query: str, earlier: str, later: str) -> bool:
    """Whether a sentence in which users speak of themselves reports a change of the one that answers the question.

    It shares a word with that sentence or with the question.
    """
    asked = frozenset(terms_of(query))
    said, new = ([found[0] for found in SENTENCE.finditer(text) if found[0][-1] != "?"] for text in (earlier, later))
    answer = max(said, key=lambda sentence: len(asked.intersection(terms_of(sentence))), default="")
    about = asked.union(terms_of(answer))
    return any(
        MINE.search(sentence) and about.intersection(terms_of(sentence)) and tells_of_change(query, answer, sentence)
        for sentence in new
    )


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
