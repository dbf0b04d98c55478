"""The list of sessions in pages, and the search from the top of every page."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any, Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import events_of, read, session_list_of, visible_of
from mnemolog.domain.errors import InvalidInput, MnemologError
from mnemolog.domain.position import Position, require_one_reading
from mnemolog.domain.result import Result
from mnemolog.domain.spelling import normalized
from mnemolog.projections.read_models import SessionSummary
from mnemolog.projections.recall.phrases import search_for
from mnemolog.projections.sql.session_pages import names
from mnemolog.server.console.moment import AsOf, as_of
from mnemolog.server.console.page import ListPage, limited, page, part_of
from mnemolog.server.console.parameters import position, text
from mnemolog.server.console.rendering import EXCERPT_CHARACTERS_MAX
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

ROWS_MAX: Final = 100
"""Rows of a page."""
FOUND_MAX: Final = 1_000
"""Turns that hold a phrase are counted up to this number."""
TURNS_MAX: Final = 50
"""Of these, the newest are listed."""
NAMES_MAX: Final = 20
"""Scopes, keys of facts and actors that are listed, of each."""
_AMOUNT: Final = re.compile(r"(an?|\d+) ?[a-z]+")
"""Such as `90 days`, which is also what a user said; with `ago` it is a time."""


class FoundTurn(Result, frozen=True, kw_only=True):
    """A turn that holds a phrase."""

    position: Position
    session: str
    who: str
    before: str
    """What stands before the phrase."""
    phrase: str
    after: str


class Found(Result, frozen=True, kw_only=True):
    """What a phrase is in, besides titles and ids of sessions."""

    turns: int
    """In so many turns, up to `FOUND_MAX`."""
    newest: tuple[FoundTurn, ...]
    scopes: tuple[str, ...]
    keys: tuple[str, ...]
    """Of facts."""
    actors: tuple[str, ...]


class SessionPage(ListPage, frozen=True, kw_only=True):
    """A page of the list."""

    sessions: tuple[SessionSummary, ...]
    """The session that was started last first."""
    found: Found | None
    """Where the phrase of the search is; None without one."""


@page("/sessions", title="Sessions", template="sessions.html")
async def sessions(request: Request, caller: Caller, at: AsOf) -> SessionPage:
    """Show the sessions that had started at a moment, `ROWS_MAX` at a time, or what a phrase is in."""
    query = request.query_params
    before = position(query, "before")
    after = position(query, "after")
    phrase = text(query, "q")
    title = phrase or text(query, "title")
    wanted: dict[str, Any] = {"agent": text(query, "agent") or None, "title": title, "as_of": at.position}

    def place(item: SessionSummary) -> Position:
        return item.started_position

    def look(store: MemoryStore) -> SessionPage:
        rows = session_list_of(store).page(**wanted, before=before, after=after, limit=ROWS_MAX + 1)
        rows.sort(key=place)
        listed, ways = part_of(rows, place, before=before, after=after, most=ROWS_MAX)
        return SessionPage(sessions=listed[::-1], found=_found(store, phrase, at) if phrase else None, **ways)

    return await read(limited(caller, request), look)


def _found(store: MemoryStore, phrase: str, at: AsOf) -> Found:
    search, phrase = search_for(phrase), normalized("NFC", phrase)
    turns = [turn for turn in store.find(phrase, hidden=True, limit=FOUND_MAX) if turn.position <= at.position]
    shown = []
    for turn in reversed(turns[-TURNS_MAX:]):
        text, start = normalized("NFC", turn.text), search(turn.text) or 0
        end, around = start + len(phrase), EXCERPT_CHARACTERS_MAX // 2
        pieces = {
            "before": ("…" if start > around else "") + text[max(start - around, 0) : start],
            "phrase": text[start:end],
            "after": text[end : end + around] + ("…" if end + around < len(text) else ""),
        }
        who = turn.speaker or turn.role.value
        shown.append(FoundTurn(position=turn.position, session=turn.session, who=who, **pieces))
    scopes, keys, actors = (
        tuple(name for name in names if phrase.casefold() in name.casefold())[:NAMES_MAX] for names in _names(store)
    )
    return Found(turns=len(turns), newest=tuple(shown), scopes=scopes, keys=keys, actors=actors)


def _names(store: MemoryStore) -> tuple[list[str], list[str], list[str]]:
    """Return the scopes, the keys of facts and the actors there are, as far as the store shows them."""
    with store.parts.projections.current_views().database.reading() as connection:
        return known_scopes(store), *names(connection, store.parts.boundary.scopes)


def known_scopes(store: MemoryStore) -> list[str]:
    """Return the scopes that sessions are in, and those above them, as far as the store shows them."""
    paths = [group.name.split("/") for group in session_list_of(store).groups("scope") if group.name]
    above = {"/".join(path[: length + 1]) for path in paths for length in range(len(path))}
    within = store.parts.boundary
    return sorted(scope for scope in above if within.over(scope) or not within.scopes)


def search(store: MemoryStore, wanted: str, here: str) -> tuple[str, dict[str, str]]:
    """Return the page, and its parameters, that a search means for `wanted` on the page `here`.

    `@42` or a position is an event, and the id of a session, a scope, the key of a fact or an actor is what it names.
    A time as people write it is that moment. All else is a phrase, and so is what stands in quotation marks. Raises
    `InvalidInput`.
    """
    phrase = wanted.strip().strip('"“”').strip()
    number = phrase.removeprefix("@")
    if phrase == wanted.strip():
        if number.isdecimal() and len(number) < 16 and 0 < int(number) <= events_of(store).head().position:
            return f"/event/{int(number)}", {}
        states = visible_of(store).states
        with suppress(MnemologError):
            if (state := states.latest(states.id_of(phrase))) is not None:
                return "/session", {"id": state.session}
        pages = ("/sessions", "scope"), ("/facts", "pattern"), ("/audit", "actor")
        for (shown_on, name), known in zip(pages, _names(store), strict=True):
            if phrase in known:
                return shown_on, {name: phrase}
        require_one_reading("Search", phrase.lower())
        with suppress(InvalidInput):
            if phrase and not number.isdecimal() and not _AMOUNT.fullmatch(phrase.lower()):
                return here, {"at": as_of(store, phrase).text}
    return "/sessions", {"q": phrase}
