"""Facts: what is believed at a moment, the history of a key; and proposals: what waits for a yes or a no."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from mnemolog.adapters.support.store_access import read
from mnemolog.application.facts import FactWhen
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import AssertFact
from mnemolog.domain.proposals import Proposal
from mnemolog.domain.result import Result
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position
from mnemolog.projections.read_models import Fact
from mnemolog.server.console.page import ConsoleRequest, PageRequest, action, local_target, redirect, view
from mnemolog.server.console.rendering import url
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
async def correct(asked: ConsoleRequest) -> Response:
    """Take back the fact at a position, which was wrong, and say what its key has since then: JSON, or else text.

    An empty value only takes it back. Then the page `next` is shown.
    """
    key, of, reason, given = (asked.text(name) for name in ("key", "of", "reason", "value"))
    place, store, scope = asked.whole("fact", 0, most=INTEGER_MAX), asked.caller.store, of or None
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
    return redirect(local_target(asked.text("next")))


@view("/facts", title="Facts", template="facts.html")
def facts(store: MemoryStore, asked: PageRequest) -> FactsPage:
    """Show the facts that hold, up to `FACTS_MAX`, or the history of the key `key` of the scope `of`, newest first."""
    key, of, pattern = (asked.text(name) for name in ("key", "of", "pattern"))
    when: FactWhen = {"as_of": asked.at.when, "valid_at": asked.at.time}
    if key:
        said = store.fact_history(key, scope=of or None, **when)
        return FactsPage(facts=tuple(ShownFact(fact=fact) for fact in reversed(said)), key=key)
    within = asked.limited(store)
    found = within.facts(pattern or "*", **when)
    shown = (ShownFact(fact=fact, replaced=_replaced(within, fact, when)) for fact in found[:FACTS_MAX])
    return FactsPage(facts=tuple(shown), left_out=max(len(found) - FACTS_MAX, 0))


def _replaced(store: MemoryStore, fact: Fact, when: FactWhen) -> Fact | None:
    earlier = [
        item
        for item in store.fact_history(fact.key, scope=fact.scope or None, **when)
        if item.state == "superseded" and item.value != fact.value and item.valid_from < fact.valid_from
    ]
    return max(earlier, key=lambda item: (item.valid_from, item.position), default=None)


TITLE: Final = "Proposals"
PER_PAGE: Final = 25
"""Proposals on a page: for each that is open, what it would change is looked up."""


class ProposalsPage(Result, frozen=True, kw_only=True):
    """The proposals of a state, the oldest first."""

    proposals: tuple[Proposal, ...]
    later: Position | None
    """Pass it as `after` for those that follow; None if there are none."""
    four_eyes: bool
    """Whether people cannot approve what they proposed."""
    decided: tuple[int, ...]
    """Those that the form just decided."""


@view("/proposals", title=TITLE, template="proposals.html")
def proposals(store: MemoryStore, asked: PageRequest) -> ProposalsPage:
    """Show the proposals of the state `state`, open ones if none is named; `all` for each of them."""
    state: Any = asked.text("state", "open")
    wanted, after = None if state == "all" else state, asked.position("after") or ORIGIN
    items = asked.limited(store).proposals(state=wanted, as_of=asked.at.when, after=after, limit=PER_PAGE)
    return ProposalsPage(
        proposals=tuple(items),
        later=items.next,
        four_eyes=store.parts.proposals.four_eyes,
        decided=asked.positions("decided"),
    )


@action("/proposals/approve", title=TITLE, verb="approve")
async def approve(asked: ConsoleRequest) -> Response:
    """Approve what a form names: all or nothing. A fact that it names alone may be changed before."""
    positions = _ticked(asked)

    def edits(store: MemoryStore) -> dict[int, dict[str, Any]]:
        act = store.parts.proposals.made(positions[0]).act
        if not isinstance(act, AssertFact):
            return {}
        is_text = isinstance(act.value, str)
        value = act.value if is_text else to_printable_json(act.value).decode()
        shown = {"key": act.key, "value": value, "valid_from": act.valid_from or ""}
        typed = {name: asked.text(name).replace("\r\n", "\n") for name in shown}
        changed: dict[str, Any] = {name: text for name, text in typed.items() if text != shown[name].strip()}
        if "value" in changed and not is_text:
            changed["value"] = _decoded(changed["value"])
        return {positions[0]: changed}

    edited = await read(asked.caller.store, edits) if "value" in asked.fields else None
    await asked.caller.store.approve(positions, edits=edited)
    return _decided(asked, positions)


@action("/proposals/decline", title=TITLE, verb="approve")
async def decline(asked: ConsoleRequest) -> Response:
    """Decline what a form names: all or nothing."""
    positions = _ticked(asked)
    await asked.caller.store.decline(positions, reason=asked.text("reason"))
    return _decided(asked, positions)


def _decoded(typed: str) -> Any:
    try:
        return msgspec.json.decode(typed)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("value", f"not JSON, as what was proposed is: {error}") from error


def _ticked(asked: ConsoleRequest) -> list[Position]:
    if positions := asked.positions("positions"):
        return list(map(Position, positions))
    raise InvalidInput("positions", "none is ticked")


def _decided(asked: ConsoleRequest, positions: list[Position]) -> Response:
    return redirect(url("/proposals", {"scope": asked.scope, "decided": ",".join(map(str, positions))}))
