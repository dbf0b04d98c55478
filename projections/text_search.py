"""The text leg: BM25 over FTS5, for any query a person or an agent may type."""

from __future__ import annotations

import re
from typing import Final

import sqlalchemy as sa
from msgspec.structs import replace

from mnemolog.domain.position import Position
from mnemolog.projections import text_then
from mnemolog.projections.queries import Filters, conditions, positions_left
from mnemolog.projections.views import TEXT_INDEX, TURNS

TERMS_MAX: Final = 64
"""Terms of a query that take part; a pasted page is searched by its first distinct words."""

_WORD: Final = re.compile(r"\w+")

# Words that name no subject. Dropped from queries only, so that the index still holds every word.
STOP_WORDS: Final = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do
    does doing for from had has have having he her here hers him his how i if in into is it its just me more
    most my no not of on or our out over own she so some such than that the their them then there these they
    this those to too under until up very was we were what when where which while who whom why will with
    would you your""".split()  # noqa: SIM905
)

_MATCHES: Final = sa.table(TEXT_INDEX, sa.column("rowid"))


def words_of(query: str) -> list[str]:
    """Return the words of a query that are searched for, in order; none where it holds no word."""
    words = list(dict.fromkeys(word.lower() for word in _WORD.findall(query)))
    telling = [word for word in words if word not in STOP_WORDS] or words
    return telling[:TERMS_MAX]


def match_expression(query: str) -> str | None:
    """Return `query` as an FTS5 expression: any of its words. None when it holds no word.

    Every term is quoted, so nothing in a query is syntax.
    """
    return " OR ".join(f'"{word}"' for word in words_of(query)) or None


def search(connection: sa.Connection, query: str, *, k: int, filters: Filters) -> list[Position]:
    """Return up to `k` positions, best first by BM25 (FTS5: k1 = 1.2, b = 0.75); ties by position.

    With `filters.upto` as it was when the log ended there: with the statistics of the turns up to it.
    """
    if filters.upto is not None:
        return _search_then(connection, query, k=k, filters=filters, upto=filters.upto)
    expression = match_expression(query)
    if expression is None:
        return []
    statement = sa.select(_MATCHES.c.rowid).where(
        sa.text(f"{TEXT_INDEX} MATCH :expression").bindparams(expression=expression)
    )
    if not filters.leave_everything:
        # Not a join: SQLite may turn that round and ask the text index once for every turn of a session.
        left = sa.exists().where(TURNS.c.position == _MATCHES.c.rowid, *conditions(filters))
        statement = statement.where(left)
    score: sa.ColumnElement[float] = sa.literal_column(f"bm25({TEXT_INDEX})")
    statement = statement.order_by(score, _MATCHES.c.rowid).limit(k)
    return [Position(row[0]) for row in connection.execute(statement)]


def _search_then(connection: sa.Connection, query: str, *, k: int, filters: Filters, upto: Position) -> list[Position]:
    words = words_of(query)
    if not words:
        return []
    scored = text_then.scores(connection, words, upto=upto)
    if scored and replace(filters, upto=None) != Filters():
        left = set(positions_left(connection, filters))
        scored = {position: score for position, score in scored.items() if position in left}
    return sorted(scored, key=lambda position: (-scored[position], position))[:k]
