"""Candidates for a query from the text index and the vectors, before ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.position import Micros, Position
from mnemolog.projections.recall import text_search
from mnemolog.projections.recall.context_rows import Rows, in_language, rows_around
from mnemolog.projections.recall.query_terms import QueryTerms, read_query
from mnemolog.projections.recall.question import TEXT, VECTOR, Question
from mnemolog.projections.recall.text_search import NOTHING_FOUND, Counts, Found
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.languages import languages_at
from mnemolog.projections.sql.queries import Filters

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.sql.position_mask import PositionMask
    from mnemolog.projections.vectors.projection import VectorAnswer


class Offer(NamedTuple):
    """Candidates from the views for a query, as of one position."""

    head: Position
    """Turns after this position are ignored."""
    terms: QueryTerms
    found: Found
    """The text leg's turns; empty in `vector` mode."""
    filters: Filters
    allowed: PositionMask | None
    """The turns that the filters leave; None for all."""
    now: Micros
    """When the last turn was recorded. Words such as "last week" in a query are relative to it."""
    language: str
    """The language of the store at `head`."""


class Candidates(NamedTuple):
    """The turns that the legs offer, best first, and the data to rank them."""

    legs: dict[str, Sequence[Position]]
    similarity: dict[Position, float] | None
    """Similarities of the offered turns and their neighbours; None if no vectors answered."""
    rows: Rows
    """The offered turns and their neighbours. Empty in `vector` mode."""
    terms: QueryTerms
    counts: Counts
    now: Micros


class Ranked(NamedTuple):
    """A ranked turn."""

    position: Position
    score: float
    """The number that orders turns: higher is better."""
    relevance: float
    """See `Hit.relevance`."""
    ranks: dict[str, int]
    similarity: float | None
    parts: dict[str, float]
    """The parts of its score; empty if the score is the similarity."""


def from_views(
    connection: sa.Connection, question: Question, filters: Filters, *, head: Position, wanted: int
) -> Offer:
    """Return the best `wanted` turns by text as of `head`, and the limits for the vector leg.

    `filters` are those of the question. The views must have read up to `head`.
    """
    newest, now = queries.last_turn(connection)
    language, indexed = languages_at(connection, head)
    if newest > head or language != indexed:  # The words, speakers and times of later turns must not count.
        filters, now = replace(filters, upto=head), queries.last_turn(connection, upto=head).recorded_at
    terms = read_query(connection, question.query, scope=filters.scope, upto=head, language=language)
    unindexed = None if language == indexed else language
    found, allowed = NOTHING_FOUND, None
    if not filters.leave_everything:
        from mnemolog.projections.sql.filtering import turns_left

        allowed = turns_left(connection, filters)
    if question.mode != VECTOR:
        found = text_search.search(
            connection,
            terms.stems,
            k=wanted,
            upto=filters.upto,
            allowed=allowed,
            alone=question.alone,
            unindexed=unindexed,
        )
    return Offer(head, terms, found, filters, allowed, now, language)


def with_neighbours(
    connection: sa.Connection, question: Question, offer: Offer, vectors: VectorAnswer | None
) -> Candidates:
    """Return the candidates of both legs, with their neighbours and similarities to the query."""
    legs: dict[str, Sequence[Position]] = {} if question.mode == VECTOR else {TEXT: offer.found.positions}
    similarity: dict[Position, float] | None = None
    if vectors is not None:
        similarity = dict(vectors.found)
        legs[VECTOR] = list(similarity)
    rows = Rows()
    if question.mode != VECTOR:
        offered = [position for leg in legs.values() for position in leg]
        rows = rows_around(connection, offered, spans=offer.filters.spans, allowed=offer.allowed, upto=offer.head)
        # Read again: the text index may have changed its language since the offer was made.
        if languages_at(connection, offer.head).indexed != offer.language:
            rows = in_language(connection, rows, offer.language)
    if vectors is not None and similarity is not None and rows.positions:
        similarity |= vectors.look_up(sorted(set(rows.positions) - similarity.keys()))
    return Candidates(legs, similarity, rows, offer.terms, offer.found.counts, offer.now)
