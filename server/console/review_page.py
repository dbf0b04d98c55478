"""Which answers of a period would be different today: asked again in the background, and judged one after the other."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.adapters.support.store_access import clock_of, events_of, read, visible_of, with_pools
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.audit.effects import REVIEWED_MAX, ChangedAnswer, Review, Reviewing
from mnemolog.audit.receipt_audit import Receipt
from mnemolog.domain.events import RECALLS_STREAM, ContextServed, RecallJudged, RecallServed
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.ports import Progress
from mnemolog.server.console import parameters
from mnemolog.server.console.jobs import jobs_of
from mnemolog.server.console.moment import AsOf, as_of
from mnemolog.server.console.page import Refused, action, limited, page
from mnemolog.server.console.receipts_page import ReceiptPage, receipt_page
from mnemolog.server.http.authentication import Caller
from mnemolog.store import MemoryStore

TITLE: Final = "Review"
USUAL: Final = "7 days ago"
"""When the period begins if nothing else is asked for."""
PER_PAGE: Final = 100


class ReviewedAnswer(Result, frozen=True, kw_only=True):
    """An answer of the list."""

    receipt: Receipt | None
    """None if it was forgotten since the review, or is outside of the scope of the page."""
    changed: ChangedAnswer
    judged: bool


class ReviewPage(Result, frozen=True, kw_only=True):
    """The answers of a period that would be different today, and one of them to judge."""

    most: int = REVIEWED_MAX
    """How many receipts one review asks again."""
    usual: str = USUAL
    review: Review | None = None
    """None before a period was asked for."""
    answers: tuple[ReviewedAnswer, ...] = ()
    """Up to `PER_PAGE`, among them the one to judge."""
    first: int = 0
    """How many come before them."""
    open: ReceiptPage | None = None
    """The answer to judge: the one that the URL names, else the first that was not judged."""
    previous: Position | None = None
    """The receipt before it."""
    next: Position | None = None
    """The next receipt that was not judged; None if there is none."""
    earlier: Position | None = None
    """The first receipt of the page of the list before this one."""
    later: Position | None = None


@page("/review", title=TITLE, template="review.html")
async def choose(_request: Request, _caller: Caller, _at: AsOf) -> ReviewPage:
    """Offer to ask the receipts of a period again."""
    return ReviewPage()


@action("/review", title=TITLE, verb="read", needs_write=False)
async def ask(request: Request, caller: Caller, form: QueryParams) -> Response:
    """Ask the receipts of a period again, in the background. Leaves no receipt."""
    store, begin = limited(caller, request), parameters.text(form, "from", USUAL)
    end, after = parameters.text(form, "to") or parameters.text(form, "at"), parameters.position(form, "after")

    def period(store: MemoryStore) -> list[Position]:
        ends = as_of(store, begin, name="from"), as_of(store, end, name="to")
        return sorted(moment.position for moment in ends)

    first, last = await read(caller.store, period)

    def work(blocking: MemoryStore, progress: Progress) -> Review:
        parts = blocking.parts
        asking = Reviewing(parts.visible, parts.contexts, parts.projections, parts.distrusts, clock_of(blocking))
        return asking.review(after=max(first, after or first), upto=last, progress=stopping(progress))

    async def asked(progress: Progress) -> Review:
        return await run_in("background", store, partial(work, progress=progress))

    title = "Asking again what the memory was asked"
    return await jobs_of(request).start(
        request, caller, title, asked, back="/review", shown_at=lambda job, _: f"/review/{job}"
    )


@page("/review/{job}", title=TITLE, template="review.html")
async def review(request: Request, caller: Caller, _at: AsOf) -> ReviewPage:
    """Show the answers that would be different today, those on which most relied first, and one of them to judge."""
    found = jobs_of(request).page(caller, request.path_params["job"]).result
    if not isinstance(found, Review):
        raise Refused(404, "There is no such review", "It has not ended, or it is other work.", "Look at its own page.")
    wanted = parameters.position(request.query_params, "receipt")
    blocking, pools = with_pools(limited(caller, request))
    return await pools.recall(partial(_review_page, blocking, found, wanted))


def _review_page(store: MemoryStore, review: Review, wanted: Position | None) -> ReviewPage:
    log = events_of(store)
    visible = visible_of(store)
    changed = review.changed
    judged, since = set[int](), log.version_at(RECALLS_STREAM, review.head)
    for batch in log.read_stream(RECALLS_STREAM, after=since, upto=log.head().position):
        judged |= {item.event.receipt for item in batch if isinstance(item.event, RecallJudged)}
    judged |= {item.position for item in changed if item.judged}
    order = [item.position for item in changed]
    to_judge = [position for position in order if position not in judged]
    opened = wanted if wanted in order else next(iter(to_judge), None)
    place = 0 if opened is None else order.index(opened)
    first = place - place % PER_PAGE
    shown = changed[first : first + PER_PAGE]
    receipts = {
        item.position: Receipt.of(item, item.event)
        for item in log.read_at(sorted(item.position for item in shown))
        if isinstance(item.event, RecallServed | ContextServed) and visible.shows_receipt(item.event)
    }
    return ReviewPage(
        review=review,
        answers=tuple(
            ReviewedAnswer(receipt=receipts.get(item.position), changed=item, judged=item.position in judged)
            for item in shown
        ),
        first=first,
        open=receipt_page(store, opened) if opened in receipts else None,
        previous=order[place - 1] if place else None,
        next=next((position for position in order[place + 1 :] if position in to_judge), None),
        earlier=order[first - PER_PAGE] if first else None,
        later=next(iter(order[first + PER_PAGE :]), None),
    )
