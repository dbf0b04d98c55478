"""Rank candidates in stages, so that earlier pages stay stable.

A later page needs more candidates, and more candidates could change the ranks on earlier pages. So the order is built
in stages. The ranking of the first candidates is fixed. Each further stage doubles the number of candidates and appends
only the new ones, until the legs have no more.

A statement about a change comes before what it changes, and before what was said again and again. It is an order, no
verdict which of them holds. Changes are read from patterns of English.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import sha256
from heapq import merge, nlargest
from itertools import chain
from math import exp, isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.domain.standing import SENTENCE
from mnemolog.domain.values import Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall.candidates import CANDIDATES_MIN, NOT_TELLING, Candidates, Ranked, Rows
from mnemolog.projections.recall.question import (
    AHEAD,
    DIGEST_BYTES,
    MINE,
    NOT_NOW,
    TEXT,
    VECTOR,
    Floor,
    Mode,
    Question,
    Whose,
    floor,
    pattern,
)
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import terms_of, words_of

if TYPE_CHECKING:
    from mnemolog.projections.recall.scoring import Scored

RERANKED_MAX: Final = 50
"""Number of turns to rerank, from the best one on. Each costs one pass of the model."""


class Page(NamedTuple):
    """A page of the ranking."""

    k: int
    passed_over: int = 0
    """Hits on the pages before it."""
    candidates: int | None = None
    """How many turns each leg offered for the first page."""

    @property
    def end(self) -> int:
        """How many turns must be ranked for this page and those before it."""
        return self.passed_over + self.k

    def offered(self, mode: Mode) -> int:
        """Return how many turns each leg offers in the first stage."""
        if self.candidates is not None:
            return self.candidates
        # The order of the vectors is final: one extra turn shows whether there is another page.
        return self.k + 1 if mode == VECTOR else max(self.k, CANDIDATES_MIN)


class Ranking:
    """The best `count` turns for a query, built from stages of candidates.

    With `to_be_reranked`, all of the first stage is kept, because a reranker reorders it as a whole.
    """

    def __init__(self, question: Question, *, count: int, to_be_reranked: bool = False) -> None:
        self._question = question
        self._count = count
        self._whole = to_be_reranked
        self.turns: list[Ranked] = []
        """The ranked turns so far. Use no more than `count` of them."""
        self._first_stage = 0
        """How many of them come from the first stage."""
        self.more = False
        """Whether there may be turns after the first `count`."""
        self.left_out = 0
        """How many of the first `count` are missing, because the turns in their place have too little relevance."""
        self.floor: Floor | None = None
        """Known from the first turn on."""
        self._seen: set[Position] = set()
        self.repeated: dict[Position, tuple[Position, ...]] = {}
        """Turns that a turn stands for, because they say the same."""

    def add(
        self, connection: sa.Connection, found: Sequence[Candidates], *, wanted: int, dropped: Container[Position] = ()
    ) -> bool:
        """Rank the candidates of the next stage, without those `dropped`. Return whether it was the last one.

        `found` has those of each window of a long question; a turn counts by the best of its scores.
        `wanted` is how many turns were requested from each leg. A leg that offers fewer has no more.
        """
        first = not self.turns
        rest = False
        below = 0
        alike = {at: same for some in found for at, same in some.alike.items() if self._question.weights.distinct}
        ordered = (_ordered(connection, some, self._question, dropped, one_of_several=len(found) > 1) for some in found)
        # Of one window the order is kept as it is.
        for turn in merge(*ordered, key=lambda turn: (-turn.score, turn.position)):
            if turn.position in dropped:
                self._seen.add(turn.position)
                continue
            if self.floor is None:
                self.floor = floor(turn.relevance, self._question.min_relevance, self._question.mode)
            same = [at for at in alike.get(turn.position, (turn.position,)) if at not in dropped]
            if not self._seen.isdisjoint(same):
                continue
            enough = turn.relevance >= self.floor.least and len(self.turns) < self.floor.hits_max
            if not self._whole and len(self.turns) + below >= self._count:
                rest = len(self.turns) == self._count and enough
                break
            if not enough:
                below += 1
                continue
            self._seen.update(same)
            if len(same) > 1:
                self.repeated[turn.position] = tuple(at for at in same if at != turn.position)
            self.turns.append(turn)
        if first:
            self._first_stage = len(self.turns)
        full = any(len(leg) >= wanted and self._may_continue(leg) for some in found for leg in some.legs.values())
        self.left_out = min(below, max(self._count - len(self.turns), 0))
        self.more = rest or full or len(self.turns) > self._count
        return len(self.turns) >= self._count or not full

    def _may_continue(self, leg: Sequence[Position]) -> bool:
        """Whether a leg may have more turns of enough relevance: one of the last fifth that it offered has."""
        if self.floor is None:  # All of them were dropped.
            return True
        if len(self.turns) >= self.floor.hits_max:
            return False
        return not self.floor.least or not self._seen.isdisjoint(leg[-max(len(leg) // 5, 1) :])

    @property
    def to_rerank(self) -> list[Position]:
        """The turns that a reranker orders: the best of the first stage."""
        return [turn.position for turn in self.turns[: min(self._first_stage, RERANKED_MAX)]]

    def rerank(self, reranker: Reranker, texts: Mapping[Position, str]) -> str | None:
        """Order the turns in `texts` by a model that reads the query and a turn together. Ties keep their order.

        Turns of the first stage without a text follow. On failure, keep the order and return the reason.
        """
        first = self.turns[: self._first_stage]
        read = [turn for turn in first if turn.position in texts]
        try:
            scores = _scores(reranker, self._question.query, [texts[turn.position] for turn in read])
        except Exception as error:  # Not loaded, out of memory, invalid scores: the answer is complete without it.
            return str(error) or repr(error)
        scored = [turn._replace(score=score) for turn, score in zip(read, scores, strict=True)]
        scored.sort(key=lambda turn: -turn.score)
        self.turns[: self._first_stage] = scored + [turn for turn in first if turn.position not in texts]
        return None

    def digest(self, count: int) -> bytes:
        """Return a digest of the first `count` turns in order, for a cursor."""
        return sha256(b",".join(b"%d" % turn.position for turn in self.turns[:count])).digest()[:DIGEST_BYTES]


def _scores(reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
    """Return a reranker's score of each text. Raises `EncodingFailed` for invalid scores."""
    scores = [float(score) for score in reranker.score(query, texts)] if texts else []
    if len(scores) != len(texts) or not all(map(isfinite, scores)):
        raise errors.EncodingFailed(
            f"reranker {reranker.name!r} gave {len(scores)} scores for {len(texts)} texts, or none that are numbers"
        )
    return scores


def _ordered(
    connection: sa.Connection,
    found: Candidates,
    question: Question,
    dropped: Container[Position],
    *,
    one_of_several: bool,
) -> Iterator[Ranked]:
    """Yield ranked turns, best first, ties by position."""
    from mnemolog.projections.recall import scoring  # Imports numpy: load it only for a recall.

    ranks = {leg: {position: rank for rank, position in enumerate(turns, 1)} for leg, turns in found.legs.items()}
    similarity = found.similarity or {}
    if TEXT not in found.legs:
        for position, rank in ranks.get(VECTOR, {}).items():
            near = similarity[position]
            total = scoring.score_by_vectors(near)
            yield Ranked(position, total, _relevance(total), {VECTOR: rank}, near, {})
        return
    rows = found.rows
    if not rows.positions:
        return
    query, weights = found.offer.terms.query, question.weights
    scored = scoring.score(found, query=query, weights=weights, one_of_several=one_of_several)
    if found.offer.terms.request.present and weights.currency:
        put_change_first(connection, found, query, scored, behind_max=weights.currency)
    # Text only: a neighbour that contains no word of the query is no hit.
    order = [n for n in scored.order() if rows.may_be_hits[n] and (VECTOR in found.legs or scored.direct[n])]
    # What was said again is put behind only where one order is kept: that of several windows is by score.
    if weights.distinct and not one_of_several and order:
        best = next((n for n in order if rows.positions[n] not in dropped), order[0])
        least = floor(_relevance(scored.total[best]), question.min_relevance, question.mode).least
        enough = bisect(order[:COMPARED_MAX], False, key=lambda n: _relevance(float(scored.total[n])) < least)
        placed, relevant = repetitions_last(connection, rows, order[:COMPARED_MAX]), {*order[:enough]}
        order[:COMPARED_MAX] = [n for n in placed if n in relevant] + [n for n in placed if n not in relevant]
    for n in order:
        position = rows.positions[n]
        ranked = {leg: places[position] for leg, places in ranks.items() if position in places}
        parts = {name: round(float(part[n]), 6) + 0.0 for name, part in scored.parts.items()}
        total = float(scored.total[n])
        yield Ranked(position, total, _relevance(total), ranked, similarity.get(position), parts)


def _relevance(log_odds: float) -> float:
    return round(1.0 / (1.0 + exp(-max(-50.0, min(50.0, log_odds)))), 6)


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

    If the question is about others than the user, or only numbers tell of the change, both have the rarest of its words
    that the earlier one has. If it is about the user, a sentence of a longer turn may tell of the change.
    """
    rows = found.rows
    counts = found.offer.found.counts
    about_user = found.offer.terms.request.whose != Whose.OPEN
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
    if not (about_user and (_CHANGE.search(later.text) or _NOTICE.search(later.text))):
        held = [stem for stem in found.offer.terms.stems if stem in counts.holding and f" {stem} " in rows.stems[best]]
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

    It has a word of change or, for a question about a value, only other numbers; it is no wish and not about an earlier
    time. It has every name and relative of the question that the earlier one has, and begins with no other relative.
    Both are short.
    """
    told = _CHANGE.search(later) or (_VALUE.search(query) and _other_numbers(earlier, later))
    if max(len(earlier), len(later)) > SHORT or NOT_NOW.search(later) or not told:
        return False
    asked, before, after = (frozenset(words_of(text)) for text in (query, earlier, later))
    names = frozenset(words_of(" ".join(_NAME.findall(f"{query} {earlier}"))))
    others = _RELATIVES.intersection(words_of(later)[:BEGINNING]) - before
    return asked & before & (names | _RELATIVES) <= after and not others


def _other_numbers(earlier: str, later: str) -> bool:
    """Whether both statements have numbers and share none, the earlier is no wish, and the later no total."""
    said, new = map(frozenset, map(_NUMBER.findall, (earlier, later)))
    return bool(said and new) and said.isdisjoint(new) and not (NOT_NOW.search(earlier) or _TOTAL.search(later))


_NOTICE: Final = pattern("called|wrote|let (?:me|us) know")
_VALUE: Final = pattern(
    "how (?:much|many|long|far|big|old|often|fast|large|high|tall)|when|what (?:time|day|date)",
    "budget|price|costs?|pay|rent|weight",
)
_NUMBER: Final = re.compile(r"\d[\d.,:]*")
_TOTAL: Final = pattern("whole|total|altogether|overall|together|in all|both|each")
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
    "first (?:day|week|month)|so (?:i|we)",
)
