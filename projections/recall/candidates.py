"""What each leg offers for a query, before it is ranked, and why a leg offers nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.domain.position import Micros, Position
from mnemolog.projections.ports import Reranker
from mnemolog.projections.recall import text_search
from mnemolog.projections.recall.context_rows import Row, rows_around
from mnemolog.projections.recall.query_terms import Asked, take_apart
from mnemolog.projections.recall.question import Mode
from mnemolog.projections.recall.text_search import Counts, Found
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import Views
from mnemolog.projections.sql.queries import Filters

TEXT: Final = "text"
VECTOR: Final = "vector"


class VectorAnswer(NamedTuple):
    """What the vectors say to a query, from one state of them."""

    found: list[tuple[Position, float]]
    """Positions of turns with cosine similarity, best first."""
    covers: Position
    """Up to which position every turn took part."""
    lag: str | None = None
    """Why they go no further, where something went wrong."""
    look_up: Callable[[list[Position]], dict[Position, float]] = lambda _: {}
    """Gives the similarity of these turns (rising), of the same state, of those that have a vector."""


class VectorLeg(Protocol):
    """What recall needs of vectors."""

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""
        ...

    def search(self, query: str, *, k: int, allowed: list[Position] | None, upto: Position) -> VectorAnswer:
        """Cover what can quickly be covered of the log up to `upto`, and return up to `k` turns.

        No turn behind `upto` plays any part. With `allowed`, only these are returned. Raises what keeps the
        vectors from answering at all.
        """
        ...


class Fixed(NamedTuple):
    """What the vectors of an earlier answer were, where this one is to be the same or to go on from it."""

    vectors_to: Position | None
    """None where they did not answer, so that they shall not now."""
    model: str | None
    why: str = "it did not answer when this was first asked"
    """Where `vectors_to` is None."""


class Source(NamedTuple):
    """What a recall is answered from: the same one gives the same candidates."""

    views: Views
    """They must have read up to `head`; what they have read beyond plays no part."""
    vectors: Callable[[], VectorLeg]
    filters: Filters
    head: Position
    fixed: Fixed | None = None
    reranker: Reranker | None = None
    timed: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Put around the work of each leg, given its name."""
    settled: bool = True
    """Whether it is this very offset that is asked about. Else a later head would do as well, and `MovedOn` says so."""


class MovedOn(Exception):
    """The views have read on since the head was looked up: counting words as of it takes longer than a newer head."""


class Candidates(NamedTuple):
    """The turns that the legs offer, best first, and what the ranking needs to choose from them."""

    legs: dict[str, list[Position]]
    similarity: dict[Position, float] | None
    """Of the turns offered and of those around them. None where no vectors answered."""
    not_answering: dict[str, str]
    rows: list[Row]
    """The turns offered and those around them, by place. None of them where only the vectors were asked."""
    asked: Asked
    counts: Counts
    now: Micros
    """When the last turn was recorded: what the words of a query such as "last week" are in relation to."""
    vectors_to: Position | None = None
    vectors_lag: str | None = None
    model: str | None = None


class _Text(NamedTuple):
    """What the views say to a query."""

    asked: Asked
    found: Found
    filters: Filters
    allowed: list[Position] | None
    """What the vectors may find; None for everything."""
    now: Micros


def gather(source: Source, query: str, *, mode: Mode, wanted: int) -> Candidates:
    """Ask the legs that `mode` names for `wanted` turns each.

    In `hybrid` a vector leg that fails leaves the text and its reason; in `vector`, or where the source fixes
    what it must say, it raises. Raises `MovedOn` where the source is not settled.
    """
    with source.timed(TEXT):
        text = _ask_views(source, query, mode=mode, wanted=wanted)
    legs: dict[str, list[Position]] = {} if mode == VECTOR else {TEXT: text.found.positions}
    if mode == TEXT:
        return _joined(source, text, legs, None, {}, mode)
    if source.fixed is not None and source.fixed.vectors_to is None:
        return _joined(source, text, legs, None, {VECTOR: source.fixed.why}, mode)
    try:
        with source.timed(VECTOR):
            leg, answer = _ask_vectors(source, text.asked.about, text.allowed, wanted)
    except errors.MnemologError as error:
        if mode == VECTOR or source.fixed is not None or not isinstance(error, _LEAVES_TEXT):
            raise
        return _joined(source, text, legs, None, {VECTOR: str(error)}, mode)
    legs[VECTOR] = [position for position, _ in answer.found]
    joined = _joined(source, text, legs, answer, {}, mode)
    return joined._replace(vectors_to=answer.covers, vectors_lag=answer.lag, model=leg.fingerprint)


def _ask_views(source: Source, query: str, *, mode: Mode, wanted: int) -> _Text:
    filters, allowed = source.filters, None
    with source.views.database.reading() as connection:
        ahead = queries.any_turn_behind(connection, source.head)
        if ahead and not source.settled:
            raise MovedOn
        then = replace(filters, upto=source.head) if ahead else filters
        asked = take_apart(connection, query, scope=filters.scope, upto=source.head)
        found = Found([], Counts(0, {}))
        if mode != VECTOR:
            found = text_search.search(connection, asked.terms, k=wanted, filters=then)
        if mode != TEXT and not filters.leave_everything:
            allowed = queries.positions_left(connection, then)
        return _Text(asked, found, then, allowed, queries.said_last(connection, source.head))


def _joined(
    source: Source,
    text: _Text,
    legs: dict[str, list[Position]],
    answer: VectorAnswer | None,
    not_answering: dict[str, str],
    mode: Mode,
) -> Candidates:
    rows: list[Row] = []
    similarity = None if answer is None else dict(answer.found)
    if mode != VECTOR:
        with source.views.database.reading() as connection:
            offered = [position for leg in legs.values() for position in leg]
            rows = rows_around(connection, offered, filters=text.filters, upto=source.head)
    if answer is not None and similarity is not None and rows:
        unknown = sorted(row.position for row in rows if row.position not in similarity)
        similarity |= answer.look_up(unknown)
    return Candidates(legs, similarity, not_answering, rows, text.asked, text.found.counts, text.now)


_LEAVES_TEXT: Final = (errors.ModelError, errors.ProjectionError, errors.StorageFull)


def _ask_vectors(
    source: Source, query: str, allowed: list[Position] | None, wanted: int
) -> tuple[VectorLeg, VectorAnswer]:
    fixed = source.fixed
    upto = source.head if fixed is None or fixed.vectors_to is None else fixed.vectors_to
    try:
        leg = source.vectors()
        if fixed is not None and leg.fingerprint != fixed.model:
            raise errors.ModelMismatch(built_with=f"of the first answer ({fixed.model})", asked_with=leg.fingerprint)
        answer = leg.search(query, k=wanted, allowed=allowed, upto=upto)
    except errors.MnemologError:
        raise
    except Exception as error:  # Out of memory, a library that fails: the log and the text have no part in it.
        raise errors.ProjectionError(f"the vectors could not be searched: {error!r}") from error
    if fixed is not None and answer.covers < upto:
        why = answer.lag or "they were lost since"
        raise errors.ProjectionBehind("vectors", behind_events=upto - answer.covers, why=why)
    return leg, answer
