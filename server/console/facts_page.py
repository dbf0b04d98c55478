"""Facts: what is believed at a moment, since when, how that is known and what it replaced; the history of a key."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import read
from mnemolog.application.facts import FactWhen
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.result import Result
from mnemolog.domain.values import INTEGER_MAX
from mnemolog.projections.read_models import Fact
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import action, limited, local_target, page, redirect
from mnemolog.server.console.parameters import text, whole
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

FACTS_MAX: Final = 200


class ShownFact(Result, frozen=True, kw_only=True):
    """A fact, and what it replaced."""

    fact: Fact
    replaced: Fact | None = None
    """The last assertion of the key with another value that was not retracted; None if there is none."""


class FactsPage(Result, frozen=True, kw_only=True):
    """The facts that hold at a moment, or every assertion of one key."""

    facts: tuple[ShownFact, ...]
    left_out: int = 0
    key: str = ""
    """The key whose history it is; empty for the facts of all keys."""


@action("/facts/correct", title="Correct a fact", verb="record")
async def correct(_request: Request, caller: Caller, form: QueryParams) -> Response:
    """Take back the fact at a position, which was wrong, and say what its key has since then: JSON, or else text.

    An empty value only takes it back. Then the page `next` is shown.
    """
    key, of, reason, given = (text(form, name) for name in ("key", "of", "reason", "value"))
    place, store, scope = whole(form, "fact", 0, most=INTEGER_MAX), caller.store, of or None
    now, said = await store.fact(key, scope=scope), await store.fact_history(key, scope=scope)
    wrong = next((fact for fact in said if fact.position == place), None)
    if now is not None and place in now.assertions:  # With those that have confirmed it.
        wrong = now
    if wrong is None:
        raise InvalidInput("fact", f"is not of {key!r}: open the page of the fact again")
    if given:
        try:
            value = msgspec.json.decode(given)
        except msgspec.DecodeError:
            value = given
        await store.assert_fact(key, value, scope=scope, valid_from=wrong.valid_from, corrects=wrong, reason=reason)
    else:
        await store.retract_fact(wrong, reason=reason)
    return redirect(local_target(text(form, "next")))


@page("/facts", title="Facts", template="facts.html")
async def facts(request: Request, caller: Caller, at: AsOf) -> FactsPage:
    """Show the facts that hold, up to `FACTS_MAX`, or the history of the key `key` of the scope `of`, newest first."""
    key, of, pattern = (text(request.query_params, name) for name in ("key", "of", "pattern"))
    when: FactWhen = {"as_of": at.when, "valid_at": at.time}

    def history(store: MemoryStore) -> FactsPage:
        found = store.fact_history(key, scope=of or None, **when)
        return FactsPage(facts=tuple(ShownFact(fact=fact) for fact in reversed(found)), key=key)

    def held(store: MemoryStore) -> FactsPage:
        found = store.facts(pattern or "*", **when)
        shown = (ShownFact(fact=fact, replaced=_replaced(store, fact, when)) for fact in found[:FACTS_MAX])
        return FactsPage(facts=tuple(shown), left_out=max(len(found) - FACTS_MAX, 0))

    return await read(caller.store, history) if key else await read(limited(caller, request), held)


def _replaced(store: MemoryStore, fact: Fact, when: FactWhen) -> Fact | None:
    earlier = [
        item
        for item in store.fact_history(fact.key, scope=fact.scope or None, **when)
        if item.state == "superseded" and item.value != fact.value and item.valid_from < fact.valid_from
    ]
    return max(earlier, key=lambda item: (item.valid_from, item.position), default=None)
