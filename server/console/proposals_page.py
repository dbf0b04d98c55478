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
from mnemolog.domain.events import Act, AssertFact
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.proposals import Proposal
from mnemolog.domain.result import Result
from mnemolog.server.console import parameters
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import action, limited, page, redirect
from mnemolog.server.console.rendering import url
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

TITLE: Final = "Proposals"
PER_PAGE: Final = 25
"""Proposals on a page: for each that is open, what it would change is looked up."""


class ShownProposal(Result, frozen=True, kw_only=True):
    """A proposal, and how its page shows it."""

    proposal: Proposal
    do: str
    """The kind of its act; empty if that was forgotten."""
    fields: dict[str, str]
    """What may be edited, as it is typed; empty for an act that is no fact."""

    @classmethod
    def of(cls, item: Proposal) -> ShownProposal:
        """Return a proposal as its page shows it."""
        return cls(
            proposal=item,
            do="" if item.act is None else str(item.act.__struct_config__.tag),
            fields=_fields(item.act),
        )

    @property
    def is_superseded(self) -> bool:
        """Whether its key was given another value since, so that it cannot be approved as it is."""
        item = self.proposal
        return bool(self.fields) and (item.now_at or ORIGIN) > item.position and item.now != item.then


class ProposalsPage(Result, frozen=True, kw_only=True):
    """The proposals of a state, the oldest first."""

    proposals: tuple[ShownProposal, ...]
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
            proposals=tuple(map(ShownProposal.of, items)),
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
        shown = _fields(act)
        typed = {name: parameters.text(form, name).replace("\r\n", "\n") for name in shown}
        changed: dict[str, Any] = {name: text for name, text in typed.items() if text != shown[name].strip()}
        if "value" in changed and isinstance(act, AssertFact) and not isinstance(act.value, str):
            try:
                changed["value"] = msgspec.json.decode(changed["value"])
            except (ValueError, RecursionError) as error:
                raise InvalidInput("value", f"not JSON, as what was proposed is: {error}") from error
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


def _fields(act: Act | None) -> dict[str, str]:
    """Return what of a proposed fact may be edited, as it is typed: text as it is, another value as JSON."""
    if not isinstance(act, AssertFact):
        return {}
    value = act.value if isinstance(act.value, str) else to_printable_json(act.value).decode()
    return {"key": act.key, "value": value, "valid_from": act.valid_from or ""}


def _ticked(form: QueryParams) -> list[Position]:
    if positions := parameters.positions(form, "positions"):
        return list(map(Position, positions))
    raise InvalidInput("positions", "none is ticked")


def _decided(request: Request, positions: list[Position]) -> Response:
    scope = parameters.text(request.query_params, "scope")
    return redirect(url("/proposals", {"scope": scope, "decided": ",".join(map(str, positions))}))
