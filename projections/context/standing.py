"""Find the standing statements that hold for a question."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.encoding import to_json
from mnemolog.domain.message import Role
from mnemolog.domain.standing import StandingKind
from mnemolog.domain.values import Position
from mnemolog.projections.read_models import Fact, StandingStatement, Turn
from mnemolog.projections.recall.candidates import CHARACTERS_MAX
from mnemolog.projections.recall.question import Question
from mnemolog.projections.recall.service import Answer
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import ASKING
from mnemolog.projections.sql.database import listed
from mnemolog.projections.sql.words import stems_among, terms_of

FOLDER: Final = "standing/"
"""Facts whose keys begin so are standing statements."""
CONSIDERED_MAX: Final = 500
"""Statements of a scope that are looked at, the newest ones."""
RELEVANT: Final = 0.1
"""The least cosine similarity of a turn and a question. Chosen on `benchmarks/conversations/standing.jsonl`."""
SHOWN_MAX: Final = 8
"""How many instructions without a condition, and how many others, hold for a question."""
LIFTS: Final = 0.45
"""The least cosine similarity of a statement and what may lift it (`benchmarks/standing.py` has the figures)."""
LIKE_MAX: Final = 20
"""Later turns that are looked at for each statement, the most similar ones."""


_WORD: Final = re.compile(r"\w+")


class _Row(NamedTuple):
    position: Position
    start: int
    stop: int
    kind: str
    text: str
    ended: Position | None


def standing_statements(question: Question, answer: Answer) -> list[StandingStatement]:
    """Return what users said that should hold for the answer to a question, as of the position of that answer.

    First instructions without a condition, newest first; then the others, most relevant first. They are looked for in
    all turns that may answer, from any speaker and any time. What the question says itself is left out; one without
    words has all of them. What the same user said later and may lift one comes before it, and it points there: likeness
    leaves nothing out. Those that were ended come last.
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
    relevance = _relevance(question, answer, rows)
    wanted = [row for row in rows if row.kind == StandingKind.INSTRUCTION or row in relevance or not question.query]
    ended = [row for row in wanted if row.ended is not None]
    always = [row for row in wanted if row.ended is None and row.kind == StandingKind.INSTRUCTION]
    others = [row for row in wanted if row.ended is None and row.kind != StandingKind.INSTRUCTION]
    if question.query:
        others.sort(key=lambda row: -relevance[row])
        always, others = _each_once(always)[:SHOWN_MAX], _each_once(others)[:SHOWN_MAX]
    later = _later(answer, filters, [*always, *others])
    turns = queries.turns_at(connection, [row.position for row in (*always, *others, *ended)])
    said = dict[tuple[Position, int], StandingStatement]()

    def add(row: _Row) -> None:
        if (newer := later.get(row)) is not None:
            whole = _Row(newer.position, 0, len(newer.text), row.kind, newer.text, None)
            shown = [other for other in (*always, *others) if other.position == newer.position]
            for other in shown or [whole]:
                said.setdefault((other.position, other.start), _statement(other, newer, later, relevance))
        if (turn := turns.get(row.position)) is not None:
            said.setdefault((row.position, row.start), _statement(row, turn, later, relevance))

    for row in (*always, *others, *ended):
        add(row)
    return list(said.values())


def _statement(row: _Row, turn: Turn, later: Mapping[_Row, Turn], relevance: Mapping[_Row, float]) -> StandingStatement:
    return StandingStatement(
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
        newer=later[row].position if row in later else None,
        ended=row.ended,
    )


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


def _said(connection: sa.Connection, filters: queries.Filters) -> Iterator[_Row]:
    """Yield the statements in the turns that filters leave, newest first."""
    conditions: list[tuple[str, Sequence[Any]]] = [("position <= ?", [filters.upto])]
    if filters.scopes:
        conditions.append(queries.below_any(filters.scopes))
    if filters.session is not None and filters.beside != ():
        sessions = [filters.session, *(span.session for span in filters.spans or ())]
        own = "scope IN (SELECT scope FROM sessions WHERE session IN (SELECT value FROM json_each(?)))"
        beside, values = queries.below_any(filters.beside) if filters.beside else ("0", [])
        conditions.append((f"({own} OR {beside})", [listed(sessions), *values]))
    driver: Any = connection.connection.driver_connection
    found = driver.execute(
        "SELECT position, start, stop, kind, substr(text, start + 1, stop - start), iif(ended <= ?, ended, NULL) "
        f"FROM standing JOIN turns USING (position) WHERE {' AND '.join(condition for condition, _ in conditions)} "
        "ORDER BY position DESC, start",
        [filters.upto, *(value for _, values in conditions for value in values)],
    )
    if (first := found.fetchone()) is None:
        return
    from mnemolog.projections.sql.filtering import turns_left  # Imports numpy.

    left = turns_left(connection, filters).bits
    yield from (row for row in map(_Row._make, chain([first], found)) if left[row.position])


def _relevance(question: Question, answer: Answer, rows: Sequence[_Row]) -> dict[_Row, float]:
    """Return how much the relevant ones have to do with a question."""
    searched = answer.searched
    similarity = {} if searched is None else searched.look_up(sorted({row.position for row in rows}))
    wanted = set(terms_of(question.query, answer.words.language))
    shared = stems_among([row.text for row in rows], wanted, answer.words.language)
    relevance = dict[_Row, float]()
    for row, stems in zip(rows, shared, strict=True):
        by_meaning = similarity.get(row.position)
        value = len({*stems}) / max(len(wanted), 1) if by_meaning is None else by_meaning
        if value >= RELEVANT:
            relevance[row] = value
    return relevance


def _each_once(rows: Sequence[_Row]) -> list[_Row]:
    """Return the rows without repetitions in the same words, of which the first one stays."""
    first = dict[tuple[str, ...], _Row]()
    for row in rows:
        first.setdefault((row.kind, *_words(row.text)), row)
    return list(first.values())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _later(answer: Answer, filters: queries.Filters, rows: Sequence[_Row]) -> dict[_Row, Turn]:
    """Return what the same user said later about the same thing, and may lift a statement: the most similar turn."""
    from mnemolog.projections.sql.filtering import (
        PositionMask,
        turns_left,  # Imports numpy.
    )

    found, searched = dict[_Row, Turn](), answer.searched
    if searched is None or not rows:
        return found
    by_users = turns_left(answer.connection, replace(filters, roles=(Role.USER,))).bits
    for row in rows:
        behind = by_users.copy()
        behind[: row.position + 1] = False
        like = searched.like(row.position, LIKE_MAX, PositionMask(behind))
        near = [at for at, likeness in like if likeness >= LIFTS]
        turns = queries.turns_at(answer.connection, [row.position, *near]) if near else {}
        for at in near:
            if (turn := turns.get(at)) is not None and _may_lift(turn, turns[row.position]):
                found[row] = turn
                break
    return found


def _may_lift(turn: Turn, of: Turn) -> bool:
    return (
        (turn.speaker, turn.scope) == (of.speaker, of.scope)
        and turn.said_at >= of.said_at
        and len(turn.text) <= CHARACTERS_MAX
        and not turn.text.rstrip().endswith(ASKING)
        and _words(turn.text) != _words(of.text)
    )
