"""Find the turns that hold a phrase, in the order of the log: a scan of the views, a few turns in memory at a time."""

from collections.abc import Callable, Iterator
from typing import Final

from mnemolog.domain.result import Results
from mnemolog.domain.session import Spans
from mnemolog.domain.spelling import in_one_case, normalized
from mnemolog.domain.values import QUERY_BYTES_MAX, Position, checked_text, checked_whole
from mnemolog.infra.runtime import cancellation
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall.hits import sees
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import Views

Search = Callable[[str], int | None]
"""Returns where a text holds a phrase, counted in its composed form (NFC); None if it does not."""

POSITIONS_PER_READ: Final = 500
"""Turns that are read in one transaction."""


def search_for(text: str) -> Search:
    """Return the search for a phrase, in upper and lower case, with letters composed (NFC) in both.

    Raises `InvalidInput` for an empty text.
    """
    phrase = in_one_case(normalized("NFC", checked_text("text", text, bytes_max=QUERY_BYTES_MAX)))

    def search(within: str) -> int | None:
        # Not a regular expression: one that ignores case takes time for the length of the phrase at every character.
        at = in_one_case(normalized("NFC", within)).find(phrase)
        return None if at < 0 else at

    return search


def find_turns(
    views: Views,
    search: Search,
    *,
    filters: queries.Filters,
    after: Position,
    limit: int,
    seen_by: Callable[[str], Spans] | None,
) -> Results[Turn]:
    """Return the first `limit` turns after position `after` that match, in order.

    `seen_by` returns what a session sees: a turn that its own session no longer sees is left out. None leaves out none.
    """
    checked_whole("limit", limit)
    found, matches = list[Turn](), _matches(views, search, filters, after, seen_by)
    while len(found) <= limit and (page := next(matches, None)) is not None:
        found += page
    results = Results(found[:limit])
    results.next = results[-1].position if len(found) > limit else None
    return results


def _matches(
    views: Views,
    search: Search,
    filters: queries.Filters,
    after: Position,
    seen_by: Callable[[str], Spans] | None,
) -> Iterator[list[Turn]]:
    from mnemolog.projections.sql.filtering import turns_left  # Imports numpy.

    with views.database.reading() as connection:
        positions = turns_left(connection, filters).positions(after=after)
    for first in range(0, len(positions), POSITIONS_PER_READ):
        cancellation.check()
        with views.database.reading() as connection:
            page = positions[first : first + POSITIONS_PER_READ].tolist()
            holding = [at for at, text in queries.texts_at(connection, page) if search(text) is not None]
            turns = queries.turns_at(connection, holding) if holding else {}
        found = [turns[at] for at in holding if at in turns]
        if seen_by is not None:
            spans = {session: seen_by(session) for session in {turn.session for turn in found}}
            found = [turn for turn in found if sees(spans[turn.session], turn)]
        yield found
