"""Split a query into the speakers that it names and its search words."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.domain.scope import ROOT, Scope
from mnemolog.projections.sql.database import fetch, listed
from mnemolog.projections.sql.queries import NEXT_TO_SLASH
from mnemolog.projections.sql.words import TERMS_MAX, terms_of, words_of

_SELECT: Final = "SELECT word, speaker FROM speakers WHERE word IN (SELECT value FROM json_each(?)) AND since <= ?"
_NAMED: Final = re.compile(r"(\w+)(?:['\u2019]s\b)?")


class QueryTerms(NamedTuple):
    """A query, split into the speakers that it names and the rest."""

    about: str
    """The query without the speakers it names, for the model to embed. The whole query if it names only speakers."""
    stems: tuple[str, ...]
    """The stems to search for in the text index."""
    speakers: frozenset[str]
    """The named speakers."""
    language: str
    """The language of the stems."""


def read_query(connection: sa.Connection, query: str, *, scope: Scope, upto: Position, language: str) -> QueryTerms:
    """Split a query in a language, given the speakers of the turns at or below `scope` up to `upto`."""
    words = list(dict.fromkeys(words_of(query)))[:TERMS_MAX]
    select = _SELECT if scope == ROOT else f"{_SELECT} AND (scope = ? OR (scope >= ? AND scope < ?))"
    below = () if scope == ROOT else (scope, f"{scope}/", f"{scope}{NEXT_TO_SLASH}")
    found = fetch(connection, select, listed(words), upto, *below)
    names = {word for word, _ in found}
    about = query
    if names:
        rest = " ".join(_NAMED.sub(lambda said: " " if names.issuperset(words_of(said[1])) else said[0], query).split())
        about = rest if words_of(rest) else query
    return QueryTerms(about, tuple(terms_of(about, language)), frozenset(speaker for _, speaker in found), language)
