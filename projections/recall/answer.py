"""Answering a query from every leg that can, and saying which could not and why.

Candidates, their order, hits: each is made in a module of its own, and each from what was before an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.role import Role
from mnemolog.domain.spans import Span, cut
from mnemolog.projections.ports import Reranker
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.candidates import VECTOR, Source, gather
from mnemolog.projections.recall.question import Mode
from mnemolog.projections.recall.ranking import CANDIDATES_MIN, Ranked, Ranking, rank
from mnemolog.projections.recall.reranking import RERANKED_MAX, rerank
from mnemolog.projections.recall.weights import DEFAULT, Weights
from mnemolog.projections.sql import queries


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the answer, with its source."""

    text: str
    score: float
    """Higher is better. Compare within one result only: its parts are shares of the best that was found."""
    position: Position
    session: str
    role: Role
    speaker: str | None
    said_at: datetime
    key: str | None
    scope: str
    metadata: dict[str, Any]
    ranks: dict[str, int]
    """Rank of the turn in each leg that found it, from 1."""
    similarity: float | None
    """Cosine similarity to the query, where it has a vector: that of its group, if turns share vectors."""
    parts: dict[str, float] = {}
    """What the score is made of, by the names of `Weights`, and `words`. Empty in `vector` mode: the similarity."""
    before: tuple[Turn, ...] = ()
    """With `neighbours`: the turns before it in its session, or in what the asking session sees; in order."""
    after: tuple[Turn, ...] = ()
    """Likewise those behind it."""


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that says what it is based on."""

    query: str
    hits: tuple[Hit, ...]
    head: Position
    """The offset that this is an answer as of: how far the log went when it was asked, or `as_of`.

    The text leg covers all of it.
    """
    vectors_to: Position | None
    """Up to which position every turn took part in the vector leg; None when that leg did not answer."""
    legs: tuple[str, ...]
    """The legs that answered, of `text` and `vector`."""
    not_answering: dict[str, str]
    """Why a leg that was asked for did not answer."""
    vectors_lag: str | None = None
    """Why the vectors could not be brought further than `vectors_to`, where something went wrong."""
    model: str | None
    """Fingerprint of the model that embedded the query and every vector it was compared with."""
    as_of: Position | None = None
    """The earlier offset that was asked for, None for the present."""
    next: str | None = None
    """What to give as `after` for the next page, None where there is none."""
    reranker: str | None = None
    """The reranker that looked at the best of them, None where there is none or it failed (`not_answering`)."""
    receipt: Position | None = None
    """Where the receipt of this answer stands in the log, if one was asked for."""


RERANKER: Final = "reranker"
"""What a reranker that fails is called in `not_answering`."""


class Page(NamedTuple):
    """A part of an order."""

    k: int
    passed_over: int = 0
    """Hits of the pages before it."""
    candidates: int | None = None
    """How many turns each leg offered to the first page."""

    def offered(self, mode: Mode) -> int:
        """Return how many turns each leg is asked for at first."""
        if self.candidates is not None:
            return self.candidates
        # Vectors alone give the order themselves: one more than is wanted tells whether there is another page.
        return self.k + 1 if mode == VECTOR else max(self.k, CANDIDATES_MIN)


class Answer(NamedTuple):
    """A recall, and the order that it is a page of, up to the page's end."""

    recall: Recall
    ranking: Ranking


def recall(
    source: Source, query: str, *, page: Page, mode: Mode, neighbours: int = 0, weights: Weights = DEFAULT
) -> Answer:
    """Answer from the legs that `mode` names, as of the source's head. Raises as `gather` does."""
    look = None
    if source.reranker is not None and weights.reranker and mode != VECTOR:
        look = _SecondLook(source, source.reranker, query, weights.reranker)
    ranking = rank(
        lambda wanted: gather(source, query, mode=mode, wanted=wanted),
        query=query,
        weights=weights,
        candidates=page.offered(mode),
        count=page.passed_over + page.k,
        second_look=look,
    )
    last = ranking.last
    answer = Recall(
        query=query,
        hits=_hits(source, ranking.turns[page.passed_over :], neighbours),
        head=source.head,
        vectors_to=last.vectors_to,
        legs=tuple(last.legs),
        not_answering=last.not_answering | ({} if look is None or not look.failed else {RERANKER: look.failed}),
        vectors_lag=last.vectors_lag,
        model=last.model,
        reranker=None if look is None or look.failed else look.reranker.name,
    )
    return Answer(answer, ranking)


class _SecondLook:
    """Has a reranker look at turns. Where it fails, their order stays, with its reason."""

    def __init__(self, source: Source, reranker: Reranker, query: str, weight: float) -> None:
        self.source, self.reranker, self.query, self.weight = source, reranker, query, weight
        self.failed = ""

    def __call__(self, turns: list[Ranked]) -> list[Ranked]:
        with self.source.views.database.reading() as connection:
            found = queries.turns_at(connection, [turn.position for turn in turns[:RERANKED_MAX]])
        texts = {position: turn.text for position, turn in found.items()}
        try:
            return rerank(self.reranker, self.query, turns, texts, weight=self.weight)
        except Exception as error:  # Not loaded, out of memory, wrong scores: an answer without it is one all the same.
            self.failed = str(error) or repr(error)
            return turns


def _hits(source: Source, ranked: Sequence[Ranked], neighbours: int) -> tuple[Hit, ...]:
    with source.views.database.reading() as connection:
        turns = queries.turns_at(connection, [turn.position for turn in ranked])
        around = {
            position: _around(connection, source, turn, neighbours) for position, turn in turns.items() if neighbours
        }
    return tuple(
        Hit(
            text=turn.text,
            score=place.score,
            position=place.position,
            session=turn.session,
            role=turn.role,
            speaker=turn.speaker,
            said_at=turn.said_at,
            key=turn.key,
            scope=turn.scope,
            metadata=turn.metadata,
            ranks=place.ranks,
            similarity=place.similarity,
            parts=place.parts,
            before=before,
            after=after,
        )
        for place in ranked
        if (turn := turns.get(place.position)) is not None
        for before, after in [around.get(place.position, ((), ()))]
    )


def _around(
    connection: sa.Connection, source: Source, turn: Turn, count: int
) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    """Return up to `count` turns before and behind one, of what the recall's session sees or else of its own."""
    spans = source.filters.spans
    seen = cut((Span(turn.session, ORIGIN),) if spans is None else spans, upto=source.head)
    before = queries.turns_in(connection, seen, before=turn.position, newest_first=True, limit=count)
    after = queries.turns_in(connection, seen, after=turn.position, limit=count)
    return tuple(reversed(before)), tuple(after)
