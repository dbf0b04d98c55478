"""Proposals: what waits for a yes or a no with what it would change, and what became of the others."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import read
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import AssertFact
from mnemolog.domain.proposals import Proposal
from mnemolog.domain.result import Result
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.server.console import parameters
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import action, limited, page, redirect
from mnemolog.server.console.rendering import url
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

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


@page("/proposals", title=TITLE, template="proposals.html")
async def proposals(request: Request, caller: Caller, at: AsOf) -> ProposalsPage:
    """Show the proposals of the state `state`, open ones if none is named; `all` for each of them."""
    query = request.query_params
    state: Any = parameters.text(query, "state", "open")
    after = parameters.position(query, "after") or ORIGIN

    def found(store: MemoryStore) -> ProposalsPage:
        items = store.proposals(state=None if state == "all" else state, as_of=at.when, after=after, limit=PER_PAGE)
        return ProposalsPage(
            proposals=tuple(items),
            later=items.next,
            four_eyes=store.parts.proposals.four_eyes,
            decided=parameters.positions(query, "decided"),
        )

    return await read(limited(caller, request), found)


@action("/proposals/approve", title=TITLE, verb="approve")
async def approve(request: Request, caller: Caller, form: QueryParams) -> Response:
    """Approve what a form names: all or nothing. A fact that it names alone may be changed before."""
    positions = _ticked(form)

    def edits(store: MemoryStore) -> dict[int, dict[str, Any]]:
        act = store.parts.proposals.made(positions[0]).act
        if not isinstance(act, AssertFact):
            return {}
        is_text = isinstance(act.value, str)
        value = act.value if is_text else to_printable_json(act.value).decode()
        shown = {"key": act.key, "value": value, "valid_from": act.valid_from or ""}
        typed = {name: parameters.text(form, name).replace("\r\n", "\n") for name in shown}
        changed: dict[str, Any] = {name: text for name, text in typed.items() if text != shown[name].strip()}
        if "value" in changed and not is_text:
            changed["value"] = _decoded(changed["value"])
        return {positions[0]: changed}

    edited = await read(caller.store, edits) if "value" in form else None
    await caller.store.approve(positions, edits=edited)
    return _decided(request, positions)


@action("/proposals/decline", title=TITLE, verb="approve")
async def decline(request: Request, caller: Caller, form: QueryParams) -> Response:
    """Decline what a form names: all or nothing."""
    positions = _ticked(form)
    await caller.store.decline(positions, reason=parameters.text(form, "reason"))
    return _decided(request, positions)


def _decoded(typed: str) -> Any:
    try:
        return msgspec.json.decode(typed)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("value", f"not JSON, as what was proposed is: {error}") from error


def _ticked(form: QueryParams) -> list[Position]:
    if positions := parameters.positions(form, "positions"):
        return list(map(Position, positions))
    raise InvalidInput("positions", "none is ticked")


def _decided(request: Request, positions: list[Position]) -> Response:
    scope = parameters.text(request.query_params, "scope")
    return redirect(url("/proposals", {"scope": scope, "decided": ",".join(map(str, positions))}))
