"""The result of a recall: hits with their sources, and what the answer is based on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, overload

import msgspec
import sqlalchemy as sa

from mnemolog.domain.display import counted
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Result, Stale, brief
from mnemolog.domain.role import Role
from mnemolog.domain.spans import Span, Spans, cut
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.candidates import Ranked
from mnemolog.projections.recall.explanation import explain
from mnemolog.projections.recall.hits import exchange_of
from mnemolog.projections.recall.passages import Passage, SoughtWords, best_passage
from mnemolog.projections.recall.question import VECTOR, Mode, Question
from mnemolog.projections.recall.ranking import CANDIDATES_MIN
from mnemolog.projections.sql import queries


class Hit(Result, frozen=True, kw_only=True):
    """One turn of the answer, with its source."""

    _columns: ClassVar[tuple[str, ...]] = (
        *("position", "text", "relevance", "role", "speaker"),
        *("said_at", "session", "session_title", "scope", "similarity"),
    )

    text: str
    passage: Passage
    """The best passage of a long turn for the query; all of a turn of up to 500 characters."""
    relevance: float
    """How likely the turn has to do with the query, from 0 to 1. In `vector` mode its similarity, at least 0."""
    position: Position
    session: str
    session_title: str
    """Empty if the session has none, or if it was forgotten."""
    role: Role
    speaker: str | None
    said_at: datetime
    key: str | None
    scope: str
    metadata: dict[str, Any]
    ranks: dict[str, int]
    """Rank of the turn in each leg that found it, starting at 1."""
    similarity: float | None
    """Cosine similarity to the query, if the turn has a vector."""
    score_parts: dict[str, float] = msgspec.field(default_factory=dict)
    """The parts of the score, by the names of `Weights`, and `words`. Empty in `vector` mode: similarity alone."""
    before: tuple[Turn, ...] = ()
    """With `context_turns`: the turns before it in its session, or as the recalling session sees them; in order."""
    after: tuple[Turn, ...] = ()
    """Likewise the turns after it."""
    exchange: tuple[Turn, ...] = ()
    """With `exchange`: the assistant's reply to a user's turn, or the user's turns that an assistant's turn answers."""

    def _shown(self) -> Iterable[str]:
        return (f"@{self.position}", brief(self.text), f"relevance={self.relevance:.2f}")


class Recall(Result, frozen=True, kw_only=True):
    """The answer of a recall, and the state of log and vectors it is based on.

    A sequence of its hits, best first: iterate over it, take its length, index it. Without hits it is false.
    """

    query: str
    hits: tuple[Hit, ...]
    head: Position
    """The position that the answer refers to: `as_of`, or the head of the log at the time of the call.

    The text leg covers all of it.
    """
    vectors_cover: Position | None
    """The vector leg searched every turn up to this position; None if that leg did not answer."""
    legs: tuple[str, ...]
    """The legs that answered: `text`, `vector` or both."""
    unavailable_legs: dict[str, str]
    """Why a requested leg did not answer, by leg."""
    vectors_lag: str | None = None
    """Why the vectors reach no further than `vectors_cover`, if something went wrong."""
    model: str | None
    """Fingerprint of the model that embedded the query and every vector it was compared with."""
    as_of: Position | None = None
    """The `as_of` of the call; None for the present."""
    next: str | None = None
    """Pass this as `after` for the next page; None if there is none."""
    reranker: str | None = None
    """The reranker that reordered the best hits; None if there is none or it failed (`unavailable_legs`)."""
    filters: dict[str, Any] = msgspec.field(default_factory=dict)
    """The filters that were given, by the names of the arguments."""
    searched_turns: int | None = None
    """How many turns the filters left to search; None where they were not counted."""
    left_out: int = 0
    """How many of the `k` hits are missing because the turns in their place are below `min_relevance`."""
    receipt: Position | None = None
    """Position of this answer's receipt in the log, if one was requested."""

    stale: Stale | None = None
    """Set if the log does not answer: then the hits come from projections alone (docs/postgres.md)."""

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @overload
    def __getitem__(self, index: int) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...

    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[index]

    def explain(self) -> str:
        """Return what was searched, what each hit scored for and why a leg is missing, in words for a terminal."""
        return explain(self)

    def _shown(self) -> Iterable[str]:
        when = f"head={self.head}" if self.as_of is None else f"as_of={self.as_of}"
        shown = (brief(self.query), counted(len(self.hits), "hit"), when)
        return shown if self.stale is None else (*shown, "STALE")

    def _rows(self) -> Sequence[Hit]:
        return self.hits


RERANKER: Final = "reranker"
"""The key of a reranker that failed in `unavailable_legs`."""


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


def hits_of(
    connection: sa.Connection,
    ranked: Sequence[Ranked],
    *,
    words: SoughtWords,
    question: Question,
    spans: Spans | None,
    head: Position,
    seen_by: Callable[[str], Spans],
) -> tuple[Hit, ...]:
    """Return ranked turns as hits, each with its best passage for `words` and the turns around it that are wanted.

    Neighbours come from `spans`, or else from the turn's own session; an exchange from `spans`, or else from what that
    session sees, `seen_by`; none of them is after `head`. A turn that was forgotten since the ranking is left out.
    """
    turns = queries.turns_at(connection, [turn.position for turn in ranked])
    titles = queries.titles_of(connection, {turn.session for turn in turns.values()})
    hits = []
    for place in ranked:
        if (turn := turns.get(place.position)) is None:
            continue
        count = question.context_turns
        before, after = _neighbours(connection, turn, count, spans, head) if count else ((), ())
        exchange: tuple[Turn, ...] = ()
        if question.exchange:
            seen = cut(seen_by(turn.session) if spans is None else spans, upto=head)
            exchange = exchange_of(connection, turn, seen=seen, scope=question.scope)
        hits.append(
            Hit(
                text=turn.text,
                passage=best_passage(turn.text, words),
                relevance=place.relevance,
                position=place.position,
                session=turn.session,
                session_title=titles.get(turn.session, ""),
                role=turn.role,
                speaker=turn.speaker,
                said_at=turn.said_at,
                key=turn.key,
                scope=turn.scope,
                metadata=turn.metadata,
                ranks=place.ranks,
                similarity=place.similarity,
                score_parts=place.parts,
                before=before,
                after=after,
                exchange=exchange,
            )
        )
    return tuple(hits)


def _neighbours(
    connection: sa.Connection, turn: Turn, count: int, spans: Spans | None, head: Position
) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
    seen = cut((Span(turn.session, ORIGIN),) if spans is None else spans, upto=head)
    before = queries.turns_in(connection, seen, before=turn.position, newest_first=True, limit=count)
    after = queries.turns_in(connection, seen, after=turn.position, limit=count)
    return tuple(reversed(before)), tuple(after)
