"""Answering a query from every leg that can, and saying which could not and why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.limits import QUERY_BYTES_MAX, RECALL_K_MAX, checked_text
from mnemolog.domain.position import Position
from mnemolog.domain.role import Role
from mnemolog.projections import queries, text_search
from mnemolog.projections.fusion import fuse
from mnemolog.projections.queries import Filters
from mnemolog.projections.views import Views

Mode = Literal["hybrid", "vector", "text"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

CANDIDATES_MIN: Final = 100
"""Each leg offers at least this many turns to the fusion, so that one found by both can rise."""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the answer, with its source."""

    text: str
    score: float
    """Higher is better. Compare within one result only: it is the sum of 1 / (5 + rank) over the legs."""
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
    """Cosine similarity to the query, where the vector leg found it: that of its group, if turns share vectors."""


class Recall(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that says what it is based on."""

    query: str
    hits: tuple[Hit, ...]
    head: Position
    """How far the log went when this was asked. The text leg covers all of it."""
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


class VectorAnswer(NamedTuple):
    """What the vectors say to a query, from one state of them."""

    found: list[tuple[Position, float]]
    """Positions of turns with cosine similarity, best first."""
    covers: Position
    """Up to which position every turn took part."""
    lag: str | None = None
    """Why they go no further, where something went wrong."""


class VectorLeg(Protocol):
    """What recall needs of vectors."""

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""
        ...

    def search(self, query: str, *, k: int, allowed: list[Position] | None, upto: Position) -> VectorAnswer:
        """Cover what can quickly be covered of the log up to `upto`, and return up to `k` turns.

        With `allowed`, only these are returned. Raises what keeps the vectors from answering at all.
        """
        ...


def checked_question(query: str, *, k: int, mode: str) -> None:
    """Raise `InvalidInput` for what no recall can answer."""
    checked_text("query", query, bytes_max=QUERY_BYTES_MAX)
    if not 1 <= k <= RECALL_K_MAX:
        raise errors.InvalidInput("k", f"{k} is not between 1 and {RECALL_K_MAX}")
    if mode not in MODES:
        raise errors.InvalidInput("mode", f"{mode!r} is none of {', '.join(MODES)}")


def recall(
    views: Views,
    vectors: Callable[[], VectorLeg],
    *,
    query: str,
    k: int,
    mode: Mode,
    filters: Filters,
    head: Position,
) -> Recall:
    """Answer from the legs that `mode` names. The views must have read up to `head`.

    In `hybrid` a vector leg that fails leaves the text answer and its reason; in `vector` it raises.
    """
    wanted = max(k, CANDIDATES_MIN)
    legs: dict[str, list[Position]] = {}
    similarity: dict[Position, float] = {}
    not_answering: dict[str, str] = {}
    vectors_to: Position | None = None
    vectors_lag: str | None = None
    model: str | None = None
    if mode != "vector":
        with views.database.reading() as connection:
            legs["text"] = text_search.search(connection, query, k=wanted, filters=filters)
    if mode != "text":
        try:
            leg = vectors()
            answer = leg.search(query, k=wanted, allowed=_allowed(views, filters), upto=head)
            similarity = dict(answer.found)
            legs["vector"] = list(similarity)
            vectors_to, vectors_lag, model = answer.covers, answer.lag, leg.fingerprint
        except (errors.ModelError, errors.ProjectionError, errors.StorageFull) as error:
            if mode == "vector":
                raise
            not_answering["vector"] = str(error)
    hits = _hits(views, legs, similarity, fuse(legs, k=k))
    return Recall(
        query=query,
        hits=hits,
        head=head,
        vectors_to=vectors_to,
        legs=tuple(legs),
        not_answering=not_answering,
        vectors_lag=vectors_lag,
        model=model,
    )


def _allowed(views: Views, filters: Filters) -> list[Position] | None:
    if filters.leave_everything:
        return None
    with views.database.reading() as connection:
        return queries.positions_left(connection, filters)


def _hits(
    views: Views,
    legs: dict[str, list[Position]],
    similarity: dict[Position, float],
    ranked: list[tuple[Position, float]],
) -> tuple[Hit, ...]:
    ranks = {leg: {position: rank for rank, position in enumerate(found, 1)} for leg, found in legs.items()}
    positions = [position for position, _ in ranked]
    with views.database.reading() as connection:
        turns = queries.turns_at(connection, positions)
    return tuple(
        Hit(
            text=turn.text,
            score=score,
            position=position,
            session=turn.session,
            role=turn.role,
            speaker=turn.speaker,
            said_at=turn.said_at,
            key=turn.key,
            scope=turn.scope,
            metadata=turn.metadata,
            ranks={leg: found[position] for leg, found in ranks.items() if position in found},
            similarity=similarity.get(position),
        )
        for position, score in ranked
        if (turn := turns.get(position)) is not None
    )
