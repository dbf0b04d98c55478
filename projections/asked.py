"""What a query says besides its words: who is named in it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
import sqlalchemy as sa

from mnemolog.domain.position import Position
from mnemolog.domain.scope import ROOT, Scope
from mnemolog.projections.queries import below
from mnemolog.projections.views import SPEAKERS
from mnemolog.projections.words import TERMS_MAX, terms_of, words_of

_NAMED: Final = re.compile(r"(\w+)(?:['\u2019]s\b)?")


class Asked(NamedTuple):
    """A query taken apart."""

    about: str
    """The query without the speakers it names: what the model embeds. The whole query where nothing else is in it."""
    terms: tuple[str, ...]
    """The stems that turns are looked up by."""
    speakers: frozenset[str]
    """The speakers that are named."""


def take_apart(connection: sa.Connection, query: str, *, scope: Scope, upto: Position) -> Asked:
    """Take a query apart by the speakers of the turns at or below `scope` up to `upto`."""
    words = list(dict.fromkeys(words_of(query)))[:TERMS_MAX]
    listed = msgspec.json.encode(words).decode()
    statement = sa.select(SPEAKERS.c.word, SPEAKERS.c.speaker).where(
        SPEAKERS.c.word.in_(sa.text("SELECT value FROM json_each(:words)").bindparams(words=listed)),
        SPEAKERS.c.since <= upto,
        *([] if scope == ROOT else [below(SPEAKERS.c.scope, scope)]),
    )
    found = connection.execute(statement).all()
    names = {row.word for row in found}
    about = query
    if names:
        rest = " ".join(_NAMED.sub(lambda said: " " if names.issuperset(words_of(said[1])) else said[0], query).split())
        about = rest if words_of(rest) else query
    return Asked(about, tuple(terms_of(about)), frozenset(row.speaker for row in found))
