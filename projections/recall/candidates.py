"""Candidates for a query from the text index and the vectors, before ranking."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import chain, compress
from typing import TYPE_CHECKING, Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.domain.message import Role
from mnemolog.domain.scope import Scopes
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.context_rows import Rows, in_language, rows_around
from mnemolog.projections.recall.passages import best_passage, sought
from mnemolog.projections.recall.question import TEXT, VECTOR, Question
from mnemolog.projections.recall.request import Kind, Request, request_of
from mnemolog.projections.recall.said_again import askings, later_statement, said_alike
from mnemolog.projections.recall.text_search import NOTHING_FOUND, Counts, Found, counts_of, search
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import languages_at
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import STOP_WORDS, TERMS_MAX, WORD, stems_of_each, terms_of, wholes_of, words_of

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.sql.position_mask import PositionMask
    from mnemolog.projections.vectors.projection import VectorAnswer

LONG: Final = 1_200
"""A question of more characters is read in part."""
WINDOW: Final = 300
"""How many characters its beginning and its end have."""
READ: Final = 200
"""How many characters are read of each of the three, or of each sentence between."""
BETWEEN: Final = 2
"""How many sentences between beginning and end are read, if they ask."""
RARE_MAX: Final = 1_000
"""How many of its words are looked up: those that it says least often."""
SAID_MAX: Final = 5
"""How often it says them at most."""
CANDIDATES_MIN: Final = 50
"""Minimum turns that each leg offers. Twice as many gave no measurably better answers on LoCoMo."""
_SPEAKERS: Final = "SELECT word, speaker FROM speakers WHERE word IN (SELECT value FROM json_each(?)) AND since <= ?"
_ABOUT_NOW: Final = re.compile(
    r"\b(?:right now|now|currently|at the moment|these days|nowadays|still|any ?more)\b", re.IGNORECASE
)
"""Words that say when something holds. They are no topic: "Where do I live now?" is not about "now"."""
_ASKING: Final = re.compile(r"(?<![^.!?\n])[^.!?\n]{1,300}\?(?!\S)")
"""A sentence that asks."""
_NAMED: Final = re.compile(r"(\w+)(?:['\u2019]s\b)?")


class QueryTerms(NamedTuple):
    """A query, split into the speakers that it names and the rest."""

    query: str
    """All of the query, or one window of a long one."""
    about: str
    """The query without the speakers it names, for the model to embed. The whole query if it names only speakers."""
    stems: tuple[str, ...]
    """The stems to search for in the text index."""
    wholes: Mapping[str, str]
    """`words.wholes_of` the query."""
    speakers: frozenset[str]
    """The named speakers."""
    language: str
    """The language of the stems."""
    request: Request


class Offer(NamedTuple):
    """Candidates from the views for a query, as of one position."""

    head: Position
    """Turns after this position are ignored."""
    terms: QueryTerms
    found: Found
    """The text leg's turns; empty in `vector` mode."""
    filters: queries.Filters
    allowed: PositionMask | None
    """The turns that the filters leave; None for all."""
    newest: Position
    """The last turn."""
    now: Micros
    """When it was recorded. Words such as "last week" in a query are relative to it."""
    language: str
    """The language of the store at `head`."""


class Candidates(NamedTuple):
    """The turns that the legs offer, best first, and the data to rank them."""

    legs: dict[str, Sequence[Position]]
    similarity: dict[Position, float] | None
    """Similarities of the offered turns and their neighbours; None if no vectors answered."""
    rows: Rows
    """The offered turns and their neighbours, without `skipped`. Empty in `vector` mode."""
    skipped: frozenset[Position]
    """Turns that ask what the query asks."""
    alike: Mapping[Position, tuple[Position, ...]]
    """`said_alike` of the turns that may be hits."""
    terms: QueryTerms
    counts: Counts
    now: Micros
    later: Callable[..., Turn | None] | None
    """Returns what was said later about the same thing as a turn; None if no vectors answered."""


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


def read_query(
    connection: sa.Connection, question: Question, *, scopes: Scopes, upto: Position, language: str
) -> QueryTerms:
    """Split a query in a language, given the speakers of the turns within `scopes` up to `upto`."""
    request = request_of(question, language)
    query = request.topic
    words = list(dict.fromkeys(words_of(query)))[:TERMS_MAX]
    within, values = queries.below_any(scopes) if scopes else ("true", [])
    found = fetch(connection, f"{_SPEAKERS} AND {within}", listed(words), upto, *values)
    names = {word for word, _ in found}
    about = query
    if language == DEFAULT_LANGUAGE and (timeless := " ".join(_ABOUT_NOW.sub(" ", query).split())) != query:
        about = timeless if terms_of(timeless) and words_of(timeless) else query
    if names:
        rest = " ".join(_NAMED.sub(lambda said: " " if names.issuperset(words_of(said[1])) else said[0], about).split())
        about = rest if words_of(rest) else about
    speakers = frozenset(speaker for _, speaker in found)
    return QueryTerms(
        question.query, about, tuple(terms_of(about, language)), wholes_of(about, language), speakers, language, request
    )


def in_windows(connection: sa.Connection, question: Question, *, head: Position) -> list[Question]:
    """Return a question as it is; of a long one its beginning, its end, and what is rarest between, as of `head`.

    Where sentences in them ask, each of the three is a question of what it asks: of those between, the two whose words
    are rarest, among the turns and in the question. Else they are one question together.
    """
    query = question.query
    if len(query) <= LONG or not query.strip():
        return [question]
    newest, _ = queries.last_turn(connection)
    language, indexed = languages_at(connection, head)
    parts = (query[:WINDOW], query[WINDOW:-WINDOW], query[-WINDOW:])
    asking = [list(map(str.strip, _ASKING.findall(part))) for part in parts]
    said = Counter(WORD.findall(query.lower()))
    seldom = {word for word in WORD.findall(" ".join(asking[1]).lower()) or said if said[word] <= SAID_MAX}
    rare = sorted(seldom - STOP_WORDS, key=lambda word: (said[word], word))[:RARE_MAX]
    stems = {word: row.split() for word, row in zip(rare, stems_of_each(rare, language), strict=True)}
    unindexed = None if language == indexed else language
    upto = head if newest > head or unindexed else None
    sought_for = list(dict.fromkeys(chain.from_iterable(stems.values())))
    # With `alone`, what other turns hold must not show, not even in what is searched for.
    counts = Counts(0, {}) if question.alone else counts_of(connection, sought_for, upto=upto, unindexed=unindexed)
    words = sought(sought_for, counts, language=language)
    # A word that is cut at the edge of a part is said nowhere.
    worth = {
        word: max((words.worth.get(stem, 0.0) for stem in some), default=0.0) / max(said[word], 1)
        for word, some in stems.items()
    }

    def rarity(sentence: str) -> float:
        telling = set(WORD.findall(sentence.lower())) - STOP_WORDS
        return sum(worth.get(word, 0.0) for word in telling) / math.sqrt(len(telling) or 1)

    asking[1] = [sentence[-READ:] for sentence in sorted(asking[1], key=rarity, reverse=True)[:BETWEEN]]
    if not any(asking):
        together = "\n".join(best_passage(part, words, limit=READ).text for part in parts)
        return [replace(question, query=together)]
    limits = (READ, BETWEEN * (READ + 1), READ)
    each = ("\n".join(some) for some in asking)
    windows = (best_passage(some, words, limit=limit).text for some, limit in zip(each, limits, strict=True))
    return [replace(question, query=window) for window in dict.fromkeys(windows) if window.strip()]


def from_views(
    connection: sa.Connection, question: Question, filters: queries.Filters, *, head: Position, wanted: int
) -> Offer:
    """Return the best `wanted` turns by text as of `head`, and the limits for the vector leg.

    `filters` are those of the question. The views must have read up to `head`.
    """
    newest, now = queries.last_turn(connection)
    language, indexed = languages_at(connection, head)
    if newest > head or language != indexed:  # The words, speakers and times of later turns must not count.
        filters, (newest, now) = replace(filters, upto=head), queries.last_turn(connection, upto=head)
    unindexed = None if language == indexed else language
    terms = read_query(connection, question, scopes=filters.scopes, upto=head, language=language)
    found, allowed = NOTHING_FOUND, None
    if terms.request.kind == Kind.ORDER and not filters.roles:
        filters = replace(filters, roles=(Role.USER,))
    if not filters.leave_everything:
        from mnemolog.projections.sql.filtering import turns_left

        allowed = turns_left(connection, filters)
    if question.mode != VECTOR and (allowed is None or len(allowed)):
        found = search(
            connection,
            terms.stems,
            k=wanted,
            upto=filters.upto,
            allowed=allowed,
            alone=question.alone,
            unindexed=unindexed,
        )
    return Offer(head, terms, found, filters, allowed, newest, now, language)


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
    spans = None if offer.filters.beside is not None else offer.filters.spans
    if question.mode != VECTOR:
        offered = [position for leg in legs.values() for position in leg]
        rows = rows_around(connection, offered, spans=spans, allowed=offer.allowed, upto=offer.head)
        if offer.filters.distrusted:
            rows = rows.without(offer.filters.distrusted)
        # Read again: the text index may have changed its language since the offer was made.
        if languages_at(connection, offer.head).indexed != offer.language:
            rows = in_language(connection, rows, offer.language)
    if vectors is not None and similarity is not None and rows.positions:
        left = rows.positions if offer.allowed is None else offer.allowed.among(rows.positions)
        similarity |= vectors.look_up(sorted({*left} - similarity.keys()))
    skipped = frozenset[Position]()
    if question.asked == "skip" and rows.positions:
        skipped = askings(
            rows, similarity or {}, offer.terms.query, question.query, language=offer.language, newest=offer.newest
        )
        rows = rows.without(skipped) if skipped else rows
    later = None
    if vectors is not None and rows.positions:
        first = {at for leg in legs.values() for at in leg[:CANDIDATES_MIN]}
        later = cache(partial(later_statement, rows, first, vectors.near))
    offered, stems = list(similarity or ()), Counter(compress(rows.stems, rows.may_be_hits))
    if question.mode != VECTOR:  # Equal stems are not enough: "I lived there" is not "I live there".
        columns = zip(rows.positions, rows.stems, rows.may_be_hits, strict=True)
        offered = [at for at, said, may_be_hit in columns if may_be_hit and stems[said] > 1]
    alike = said_alike(connection, offered)
    return Candidates(legs, similarity, rows, skipped, alike, offer.terms, offer.found.counts, offer.now, later)
