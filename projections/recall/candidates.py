"""Candidates for a query from the text index and the vectors, before ranking: turns, their neighbours, repetitions.

Turns that ask what the query asks answer nothing, and lend nothing to the turns next to them. A chat records the user's
message and then recalls it; and people ask the same again weeks later. Without this the best hit for a question is the
question, and the next one the reply to it ("Let me check."). What the same user said later is a pointer, no verdict
which of the two holds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import cache, partial
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.choices import DEFAULT_LANGUAGE
from mnemolog.domain.message import Role
from mnemolog.domain.scope import Scopes
from mnemolog.domain.session import Span
from mnemolog.domain.values import Micros, Position
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.passages import sought
from mnemolog.projections.recall.question import ASKS, TEXT, VECTOR, Kind, Question, Request, request_of
from mnemolog.projections.recall.text_search import NOTHING_FOUND, Counts, Found, counts_of, search
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import TURNS, languages_at
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.words import (
    STOP_WORDS,
    TERMS_MAX,
    WORD,
    stems_of,
    stems_of_each,
    terms_of,
    wholes_of,
    words_of,
)

if TYPE_CHECKING:  # Imports numpy: load it only for a recall.
    from mnemolog.projections.sql.filtering import PositionMask
    from mnemolog.projections.vectors.projection import VectorAnswer

NEAR_PLACES: Final = 2
"""How far away the turns are that count for the score of a turn."""
HITS_AROUND: Final = 1
"""How far from a turn that a leg offers a hit may be."""
AROUND: Final = HITS_AROUND + NEAR_PLACES
"""How many neighbours of an offered turn are read, before it and after it."""


class Rows(NamedTuple):
    """Turns as the ranking sees them, in columns of one length, ordered by place."""

    places: Sequence[int] = ()
    """The places of the turns. Consecutive turns of a session have consecutive places."""
    positions: Sequence[Position] = ()
    roles: Sequence[str] = ()
    speakers: Sequence[str | None] = ()
    said: Sequence[Micros] = ()
    """When they were said, or else recorded."""
    ask: Sequence[int] = ()
    """1 where a turn ends with a question mark."""
    stems: Sequence[str] = ()
    """Their stems, separated by spaces, with a leading and a trailing space."""
    may_be_hits: Sequence[bool] = ()
    """Whether a turn may be a hit. Else it is only read to score its neighbours."""

    def without(self, positions: Set[Position]) -> Rows:
        """Return the rows without the turns at these positions."""
        kept = [position not in positions for position in self.positions]
        columns: Sequence[Any] = [list(compress(column, kept)) for column in self]
        return Rows(*columns)


def rows_around(
    connection: sa.Connection,
    offered: Sequence[Position],
    *,
    spans: Sequence[Span] | None,
    allowed: PositionMask | None,
    upto: Position,
) -> Rows:
    """Return these turns and their neighbours, without turns after `upto`.

    A neighbour that the filters exclude is no hit, but its words count, unless it lies outside of `spans`: what a
    rewind hides is not read. `allowed` are the turns that the filters leave; None for all.
    """
    of_legs = [row[0] for row in fetch(connection, _SELECT_PLACES, listed(offered))]
    ((near,),) = fetch(connection, _SELECT_NEAR, listed(_runs(of_legs)), upto)
    rows = Rows(*_COLUMNS.decode(near))
    hits = {place + away for place in of_legs for away in range(-HITS_AROUND, HITS_AROUND + 1)}
    rows = rows._replace(may_be_hits=[place in hits for place in rows.places])
    if allowed is not None:
        left = allowed.among(list(compress(rows.positions, rows.may_be_hits)))
        rows = rows._replace(may_be_hits=[position in left for position in rows.positions])
    return rows if spans is None else _in_spans(connection, rows, spans)


def _runs(places: Iterable[int]) -> list[list[int]]:
    """Return the first and the last place of each run of places that turns at `places` or their neighbours have."""
    runs: list[list[int]] = []
    for place in sorted(places):
        if runs and place - AROUND <= runs[-1][1] + 1:
            runs[-1][1] = place + AROUND
        else:
            runs.append([place - AROUND, place + AROUND])
    return runs


def _in_spans(connection: sa.Connection, rows: Rows, spans: Sequence[Span]) -> Rows:
    """Return the rows whose turns are in any of `spans`."""
    query = sa.select(TURNS.c.position).where(
        TURNS.c.position.in_(queries.one_of(sorted(rows.positions))), queries.in_spans(spans)
    )
    left = set(connection.execute(query).scalars())
    return rows.without(set(rows.positions) - left)


def in_language(connection: sa.Connection, rows: Rows, language: str) -> Rows:
    """Return rows with the stems of another language than that of the text index."""
    texts = queries.turns_at(connection, rows.positions)
    return rows._replace(stems=stems_of_each([texts[position].text for position in rows.positions], language))


_SELECT_PLACES: Final = "SELECT place FROM turns WHERE position IN (SELECT value FROM json_each(?))"
_NEAR: Final = ("place", "position", "role", "speaker", "coalesce(said_at, recorded_at)", "asks", "stems")
_SELECT_NEAR: Final = (
    f"SELECT json_array({', '.join(f'json_group_array({column})' for column in _NEAR)}) FROM json_each(?) AS run "
    "CROSS JOIN turns ON place BETWEEN run.value ->> 0 AND run.value ->> 1 WHERE +position <= ?"
)
"""`CROSS JOIN` makes SQLite read the runs in the order written, and `+` keeps it from the index of positions.

JSON is read in a third of the time of as many rows."""
_COLUMNS: Final = msgspec.json.Decoder(list[list[Any]])


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
    asked = stems_of(query, language)
    found, speakers = set[Position](), None
    if newest in rows.positions:
        n = rows.positions.index(newest)
        words = rows.stems[n].partition("  ")[0].split()  # Without the spellings of numbers.
        is_message = rows.ask[n] or len(words) >= MESSAGE_WORDS
        if is_message and rows.roles[n] == Role.USER:
            said = asked if query == whole else stems_of(whole, language)
            if rows.stems[n].split() == said:
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


LONG: Final = 1_200
"""A question of more characters is read in part."""
WINDOW: Final = 300
"""How many characters its beginning and its end have."""
WINDOWS: Final = 3
"""How many sentences that ask are read: one of its beginning, one of its end, the others between."""
PIECES: Final = 2
"""How many pieces of each of the three are read, where nothing asks."""
RARE_MAX: Final = 500
"""How many of its words are looked up: those that it says least often."""
CANDIDATES_MIN: Final = 50
"""Minimum turns that each leg offers. Twice as many gave no measurably better answers on LoCoMo."""
_SPEAKERS: Final = "SELECT word, speaker FROM speakers WHERE word IN (SELECT value FROM json_each(?)) AND since <= ?"
_ABOUT_NOW: Final = re.compile(
    r"\b(?:right now|now|currently|at the moment|these days|nowadays|still|any ?more)\b", re.IGNORECASE
)
"""Words that say when something holds. They are no topic: "Where do I live now?" is not about "now"."""
_ASKING: Final = re.compile(r"(?<![^.!?\n])[^.!?\n]{1,300}\?(?!\S)")
"""A sentence that asks."""
_PIECE: Final = re.compile(r"[^.!?\n]{1,90}[^\s.!?\n]{0,10}")
"""A sentence, or a piece of one."""
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
    offer: Offer
    """What the views offered."""
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
    """Return a question as it is; of a long one what is rarest in its beginning, between, and in its end.

    Sentences that ask are questions of their own: one of the beginning, one of the end, and between as many as are left
    of three. Where nothing asks, pieces of all three are one question together. Those are read whose words are rarest,
    among the turns as of `head` and in the question.
    """
    query = question.query
    if len(query) <= LONG or not query.strip():
        return [question]
    newest, _ = queries.last_turn(connection)
    language, indexed = languages_at(connection, head)
    parts = (query[:WINDOW], query[WINDOW:-WINDOW], query[-WINDOW:])
    asking = [list(dict.fromkeys(_ASKING.findall(part))) for part in parts]
    asks = any(asking)
    sentences = asking if asks else [_PIECE.findall(part) for part in parts]
    telling = {some: set(WORD.findall(some.lower())) - STOP_WORDS for some in chain.from_iterable(sentences)}
    said = Counter(WORD.findall(query.lower()) if asks else chain.from_iterable(telling.values()))
    rare = sorted(sorted(set[str]().union(*telling.values())), key=said.__getitem__)[:RARE_MAX]
    stems = {word: row.split() for word, row in zip(rare, stems_of_each(rare, language), strict=True)}
    unindexed = None if language == indexed else language
    upto = head if newest > head or unindexed else None
    sought_for = list(dict.fromkeys(chain.from_iterable(stems.values())))
    # With `alone`, what other turns hold must not show, not even in what is searched for.
    counts = Counts(0, {}) if question.alone else counts_of(connection, sought_for, upto=upto, unindexed=unindexed)
    words = sought(sought_for, counts, language=language)
    # A word that is cut at the edge of a part is said nowhere.
    worth = {
        word: max((words.worth.get(stem, 0.0) for stem in some), default=0.0) / max(said[word], 1) ** 2
        for word, some in stems.items()
    }
    rarity = {
        some: sum(worth.get(word, 0.0) for word in held) / math.sqrt(len(held) or 1) for some, held in telling.items()
    }
    read = (1, WINDOWS - bool(asking[0]) - bool(asking[2]), 1) if asks else (PIECES, PIECES, PIECES)
    rarest = (
        sorted(some, key=rarity.__getitem__, reverse=True)[:count] for some, count in zip(sentences, read, strict=True)
    )
    windows = list(map(str.strip, chain.from_iterable(rarest)))
    windows = windows if asks else ["\n".join(windows)]
    return [msgspec.structs.replace(question, query=window) for window in dict.fromkeys(windows) if window.strip()]


def from_views(
    connection: sa.Connection, question: Question, filters: queries.Filters, *, head: Position, wanted: int
) -> Offer:
    """Return the best `wanted` turns by text as of `head`, and the limits for the vector leg.

    `filters` are those of the question. The views must have read up to `head`.
    """
    newest, now = queries.last_turn(connection)
    language, indexed = languages_at(connection, head)
    if newest > head or language != indexed:  # The words, speakers and times of later turns must not count.
        filters, (newest, now) = msgspec.structs.replace(filters, upto=head), queries.last_turn(connection, upto=head)
    unindexed = None if language == indexed else language
    terms = read_query(connection, question, scopes=filters.scopes, upto=head, language=language)
    found, allowed = NOTHING_FOUND, None
    if terms.request.kind == Kind.ORDER and not filters.roles:
        filters = msgspec.structs.replace(filters, roles=(Role.USER,))
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
    return Candidates(legs, similarity, rows, skipped, alike, offer, later)
