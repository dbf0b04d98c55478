"""Find the standing statements that hold for a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple, cast

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.encoding import to_json
from mnemolog.domain.position import Position
from mnemolog.domain.standing import StandingKind
from mnemolog.projections.read_models import Fact, StandingStatement
from mnemolog.projections.recall.newer import Near
from mnemolog.projections.recall.question import Question
from mnemolog.projections.recall.service import Answer
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import listed
from mnemolog.projections.sql.queries import Filters, below_any
from mnemolog.projections.sql.words import stems_among, terms_of

FOLDER: Final = "standing/"
"""Facts whose keys begin so are standing statements."""
CONSIDERED_MAX: Final = 500
"""Statements of a scope that are looked at, the newest ones."""
RELEVANT: Final = 0.1
"""The least cosine similarity of a turn and a question. Chosen on `benchmarks/conversations/standing.jsonl`."""
SHOWN_MAX: Final = 8
"""How many instructions without a condition, and how many others, hold for a question."""
SAME: Final = 0.85
"""Of turns that are so similar, the newest one says what holds."""


class _Row(NamedTuple):
    position: Position
    start: int
    stop: int
    kind: str
    text: str


def standing_statements(question: Question, answer: Answer) -> list[StandingStatement]:
    """Return what users said that should hold for the answer to a question, as of the position of that answer.

    First instructions without a condition, newest first; then the others, most relevant first. They are looked for in
    all turns that may answer, whoever said them and whenever. What the question says itself is left out; one without
    words has all of them.
    """
    recall, connection = answer.recall, answer.connection
    filters = replace(
        answer.filters,
        scopes=question.scopes,
        roles=(),
        speakers=(),
        since=None,
        until=None,
        after=None,
        last=None,
        metadata={},
        upto=recall.head,
    )
    rows = [row for row in islice(_said(connection, filters), CONSIDERED_MAX) if row.text not in question.query]
    if not rows:
        return []
    relevance, near = _relevance(question, answer, rows)
    always = [row for row in rows if row.kind == StandingKind.INSTRUCTION]
    others = [row for row in rows if row.kind != StandingKind.INSTRUCTION]
    if question.query:
        best = sorted((row for row in others if row in relevance), key=lambda row: -relevance[row])[:SHOWN_MAX]
        newest = _newest_of_same(sorted(best, reverse=True), near)
        always, others = _newest_of_same(always, near), [row for row in best if row in newest]
    chosen = [*always, *others]
    turns = queries.turns_at(connection, [row.position for row in chosen])
    return [
        StandingStatement(
            kind=StandingKind(row.kind),
            text=row.text,
            start=row.start,
            end=row.stop,
            of=len(turn.text),
            position=row.position,
            session=turn.session,
            scope=turn.scope,
            speaker=turn.speaker,
            said_at=turn.said_at,
            relevance=relevance.get(row),
        )
        for row in chosen
        if (turn := turns.get(row.position)) is not None
    ]


def standing_fact(fact: Fact) -> StandingStatement:
    """Return a fact below `standing/` as a standing statement."""
    value = fact.value if isinstance(fact.value, str) else to_json(fact.value).decode()
    return StandingStatement(
        kind=StandingKind.FACT,
        text=value,
        key=fact.key,
        position=fact.position,
        session=fact.session,
        scope=fact.scope,
        said_at=fact.valid_from,
    )


def _said(connection: sa.Connection, filters: Filters) -> Iterator[_Row]:
    """Yield the statements in the turns that filters leave, newest first."""
    conditions: list[tuple[str, Sequence[Any]]] = [("position <= ?", [filters.upto])]
    if filters.scopes:
        conditions.append(below_any(filters.scopes))
    if filters.session is not None and filters.beside != ():
        sessions = [filters.session, *(span.session for span in filters.spans or ())]
        own = "scope IN (SELECT scope FROM sessions WHERE session IN (SELECT value FROM json_each(?)))"
        beside, values = below_any(filters.beside) if filters.beside else ("0", [])
        conditions.append((f"({own} OR {beside})", [listed(sessions), *values]))
    driver: Any = connection.connection.driver_connection
    found = driver.execute(
        "SELECT position, start, stop, kind, substr(text, start + 1, stop - start) "
        f"FROM standing JOIN turns USING (position) WHERE {' AND '.join(condition for condition, _ in conditions)} "
        "ORDER BY position DESC, start",
        [value for _, values in conditions for value in values],
    )
    if (first := found.fetchone()) is None:
        return
    from mnemolog.projections.sql.filtering import turns_left  # Imports numpy.

    left = turns_left(connection, filters).bits
    yield from (row for row in map(_Row._make, chain([first], found)) if left[row.position])


def _relevance(question: Question, answer: Answer, rows: Sequence[_Row]) -> tuple[dict[_Row, float], Near]:
    """Return how much the relevant ones have to do with a question, and what compares turns by meaning."""
    similarity, near = dict[Position, float](), cast(Near, _no_vectors)
    if (searched := answer.searched) is not None:
        similarity, near = searched.look_up(sorted({row.position for row in rows})), searched.near
    wanted = set(terms_of(question.query, answer.words.language))
    shared = stems_among([row.text for row in rows], wanted, answer.words.language)
    relevance = dict[_Row, float]()
    for row, stems in zip(rows, shared, strict=True):
        by_meaning = similarity.get(row.position)
        value = len({*stems}) / max(len(wanted), 1) if by_meaning is None else by_meaning
        if value >= RELEVANT:
            relevance[row] = value
    return relevance, near


def _newest_of_same(rows: Sequence[_Row], near: Near) -> list[_Row]:
    """Return the first statements, newest first, without those that a later one of the same kind replaces."""
    kept = list[_Row]()
    for row in rows:
        others = sorted({other.position for other in kept if other.kind == row.kind} - {row.position})
        if len(kept) < SHOWN_MAX and max(near(row.position, others).values(), default=0.0) < SAME:
            kept.append(row)
    return kept


def _no_vectors(of: Position, others: list[Position]) -> dict[Position, float]:
    return {}
