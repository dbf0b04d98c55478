"""The context preview: what a prompt would get within a budget of tokens, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import known_async_session, read
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.display import counted
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.context.answer import BlockKind, Context, LeftOut, WhyLeftOut
from mnemolog.projections.context.service import TOKENS
from mnemolog.server.console.moment import AsOf, recorded_at
from mnemolog.server.console.page import action, page, redirect
from mnemolog.server.console.parameters import decimal, text, whole
from mnemolog.server.console.receipts_page import answered_turn
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

TOKENS_MAX: Final = 1_000_000
LEFT_OUT_MAX: Final = 100
"""How many of the things that were left out are listed."""


class ShownLeftOut(Result, frozen=True, kw_only=True):
    """Something that the prompt would not get."""

    item: LeftOut
    who: str = ""
    text: str = ""
    """The beginning of the turn, or the key of the value."""
    session: str = ""


class ContextPage(Result, frozen=True, kw_only=True):
    """The context preview."""

    kinds: ClassVar[Mapping[BlockKind, str]] = {
        BlockKind.FACT: "a fact",
        BlockKind.STANDING: "what should hold for every answer",
        BlockKind.TASK: "the task",
        BlockKind.VALUE: "a value",
        BlockKind.NOTE: "a note",
        BlockKind.PASSAGE: "what was said",
    }
    reasons: ClassVar[Mapping[WhyLeftOut, str]] = {
        WhyLeftOut.NO_ROOM: "It did not fit into the budget.",
        WhyLeftOut.BELOW_MIN_RELEVANCE: "It has too little to do with the question.",
        WhyLeftOut.REPETITION: "A later turn says the same.",
        WhyLeftOut.ENDED: "Somebody ended it: it holds for no answer any more.",
    }
    default_tokens: ClassVar[int] = TOKENS

    context: Context | None = None
    """None without a question."""
    at: datetime | None = None
    """When the event at the position of the context was recorded."""
    left_out: tuple[ShownLeftOut, ...] = ()
    left_out_more: int = 0
    """What else was left out, and is not listed."""
    says: tuple[str, ...] = ()


@action("/context/end", title="End a standing statement", verb="record")
async def end_standing(_request: Request, caller: Caller, form: QueryParams) -> Response:
    """End what a turn says of all answers to come."""
    await caller.store.end_standing(whole(form, "turn", 0, most=INTEGER_MAX), reason=text(form, "reason"))
    return redirect(f"/context?{urlencode({name: text(form, name) for name in ('q', 'scope') if text(form, name)})}")


@page("/context", title="Context", template="context.html")
async def context(request: Request, caller: Caller, at: AsOf) -> ContextPage:
    """Show what a prompt would get. Leaves no receipt."""
    store, query = caller.store, request.query_params
    if not text(query, "q"):
        return ContextPage()
    found = await _context(store, query, as_of=at.when)
    shown = found.left_out[:LEFT_OUT_MAX]
    time, left_out = await read(
        store, lambda of: (recorded_at(of, found.head), tuple(_shown(of, item) for item in shown))
    )
    return ContextPage(
        context=found,
        at=time,
        left_out=left_out,
        left_out_more=len(found.left_out) - len(shown),
        says=tuple(_summary(found)),
    )


async def _context(store: AsyncMemoryStore, query: QueryParams, *, as_of: Position | None) -> Context:
    question, budget = text(query, "q"), whole(query, "tokens", TOKENS, most=TOKENS_MAX)
    session, scope = text(query, "session"), text(query, "scope")
    how: dict[str, Any] = {
        "as_of": as_of,
        "min_relevance": decimal(query, "min_relevance"),
        "receipt": False,
    }
    if not session:
        return await store.context(question, budget, scope=scope, **how)
    return await (await known_async_session(store, session)).context(question, budget, scope=scope or None, **how)


def _shown(store: MemoryStore, item: LeftOut) -> ShownLeftOut:
    turn = None if item.position is None else answered_turn(store, item.position)
    if turn is None or turn.forgotten:
        return ShownLeftOut(item=item, text=item.name)
    return ShownLeftOut(item=item, who=turn.who, text=turn.text, session=turn.session or "")


def _summary(found: Context) -> Iterator[str]:
    if not found.blocks:
        yield "The prompt would get nothing: the memory has nothing on this, or nothing fits into the budget."
    else:
        shown = counted(len(found.blocks), "block")
        yield f"The prompt would get {shown} of {found.tokens:,} tokens together; the budget is {found.budget:,}."
    if not found.fits:
        yield "Nothing that was recorded fits the question well."
    for leg, reason in found.unavailable_legs.items():
        yield f"The search by {'meaning' if leg == 'vector' else leg} did not answer: {reason}."
