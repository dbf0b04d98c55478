"""What the memory was asked: recalls and contexts with a receipt, their answers of then and of today, to judge."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from mnemolog.adapters.support.store_access import read
from mnemolog.aio.wrappers import run_in, stopping
from mnemolog.audit.effects import REVIEWED_MAX, ChangedAnswer, Effects, Review, Reviewing
from mnemolog.audit.receipt_audit import NO_ANSWER, AuditedReceipt, Receipt, Verdict
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import (
    RECALLS_STREAM,
    ContextServed,
    RecallJudged,
    RecallServed,
    RecordedEvent,
    TurnRecorded,
)
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position, Version
from mnemolog.projections.context.answer import digest_of
from mnemolog.projections.context.packing import counter_of
from mnemolog.projections.ports import Progress
from mnemolog.projections.sql.shown import receipts_of
from mnemolog.server.console.jobs import job_page, start_job
from mnemolog.server.console.moment import as_of
from mnemolog.server.console.page import (
    ConsoleRequest,
    ListPage,
    PageRequest,
    Refused,
    action,
    local_target,
    page,
    redirect,
    view,
)
from mnemolog.server.console.rendering import excerpt
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100
LOOKED_MAX: Final = 5_000
"""Receipts that one search reads. Where a filter leaves few, the next search continues there."""


class ReceiptFilter(Result, frozen=True, kw_only=True):
    """Which receipts to look for. An empty field leaves nothing out."""

    words: str = ""
    """A part of the question, in any case."""
    session: str = ""
    turn: Position | None = None
    """Only those that were shown this turn."""

    def takes(self, receipt: Receipt) -> bool:
        """Whether a receipt matches, besides the turn that it showed."""
        return self.words.casefold() in receipt.query.casefold() and self.session in ("", receipt.session)


class ReceiptsFound(NamedTuple):
    """What a search found."""

    receipts: tuple[Receipt, ...]
    """Newest first."""
    before: Position | None
    """Where the next search continues; None if there are no more."""


def newest_receipts(
    store: MemoryStore, *, wanted: ReceiptFilter, after: Position = ORIGIN, upto: Position, limit: int
) -> ReceiptsFound:
    """Return the last receipts of `(after, upto]` that match and the caller may see, of at most `LOOKED_MAX`."""
    log = store.parts.log
    found = list[Receipt]()

    def add(recorded: RecordedEvent) -> None:
        event = recorded.event
        if isinstance(event, RecallServed | ContextServed) and store.parts.visible.shows_receipt(event):
            receipt = Receipt.of(recorded, event)
            found.extend([receipt] if wanted.takes(receipt) else [])

    if wanted.turn is not None:
        with store.parts.projections.current_views().database.reading() as connection:
            showing = receipts_of(connection, [wanted.turn])
        places = [position for position, _ in showing if after < position <= upto]
        for recorded in sorted(log.read_at(places), key=lambda item: -item.position):
            add(recorded)
        return ReceiptsFound(tuple(found[:limit]), found[limit - 1].position if len(found) > limit else None)
    last, least = log.version_at(RECALLS_STREAM, upto), log.version_at(RECALLS_STREAM, after)
    reached, end = upto, max(last - LOOKED_MAX, least)
    while last > end and len(found) < limit:
        first = Version(max(last - PER_PAGE, end))
        for recorded in reversed(next(log.read_stream(RECALLS_STREAM, after=first, upto=upto, batch_max=last - first))):
            reached, last = recorded.position, Version(recorded.version - 1)
            add(recorded)
            if len(found) == limit:
                break
    return ReceiptsFound(tuple(found), reached if last > least else None)


class ReceiptsPage(ListPage, frozen=True, kw_only=True):
    """What the memory was asked, newest first."""

    wanted: ReceiptFilter
    receipts: tuple[Receipt, ...]
    about: "AnsweredTurn | None"
    """The turn that was shown, if the page is about one."""
    asked: tuple[Receipt, ...] = ()
    """What was asked for that turn: by its session, since the turn before it."""
    effects: Effects | None = None
    """What that turn had led to; None if it is not there any more."""

    def to_csv(self) -> str:
        """Return the effects as rows for a spreadsheet."""
        return "" if self.effects is None else self.effects.to_csv()


class AnsweredTurn(Result, frozen=True, kw_only=True):
    """A turn of a recorded answer, or of today's."""

    position: Position
    session: str | None
    who: str
    text: str
    """Empty if it was forgotten, or is outside of what the caller may see."""
    forgotten: bool
    went: bool = False
    """Whether today's answer does not have it."""


class ReceiptPage(Result, frozen=True, kw_only=True):
    """One receipt: what was answered then, whether that is reproduced, and today's answer."""

    audited: AuditedReceipt
    says: tuple[str, ...]
    """The result in words."""
    text: str | None
    """Of a context, the text that the model was shown; None where it is not reproduced."""
    then: tuple[AnsweredTurn, ...]
    now: tuple[AnsweredTurn, ...]
    """Today's answer, in its order."""


@view("/recall/receipts", title="What was asked", template="receipts.html")
def receipts(store: MemoryStore, asked: PageRequest) -> ReceiptsPage:
    """Show the receipts up to the moment: all, or those that match a question, a session or a turn that was shown."""
    turn, store = asked.position("turn"), asked.limited(store)
    wanted = ReceiptFilter(words=asked.text("q"), session=asked.text("session"), turn=turn)
    found = newest_receipts(store, wanted=wanted, upto=asked.last_before(), limit=PER_PAGE)
    listed: dict[str, Any] = {"receipts": found.receipts, "earlier": found.before}
    if turn is None:
        return ReceiptsPage(wanted=wanted, **listed, about=None)
    about = answered_turn(store, turn)
    if about.forgotten or turn > asked.at.position:
        return ReceiptsPage(wanted=wanted, **listed, about=about)
    effects = store.audit.effects(turn, as_of=asked.at.when)
    spans = store.parts.visible.spans(effects.turn.session, hidden=True)
    earlier = store.parts.projections.turns_in(spans, after=ORIGIN, before=turn, limit=1, newest_first=True)
    last = earlier[0].position if earlier else ORIGIN
    since = newest_receipts(store, wanted=ReceiptFilter(), after=last, upto=turn, limit=PER_PAGE).receipts
    own = tuple(item for item in reversed(since) if effects.turn.session == (item.asked_in or item.session))
    return ReceiptsPage(wanted=wanted, **listed, about=about, asked=own, effects=effects)


@view("/recall/receipts/{position}", title="A receipt", template="receipt.html", pool="recall")
def receipt(store: MemoryStore, asked: PageRequest) -> ReceiptPage:
    """Show what was answered then, whether that is reproduced, and what would be answered today."""
    return receipt_page(store, asked.position_in_path())


@action("/recall/judge", title="A receipt", verb="record", whole=True)
async def judge(asked: ConsoleRequest) -> Response:
    """Judge the hits of a receipt: which answer its question, which do not, and which turns would have.

    With `beside` it is added to what was judged before. The page `next` is shown then, without it that of the receipt.
    """
    receipt = asked.whole("receipt", 0, most=INTEGER_MAX)
    good, better, bad = ({*asked.positions(name)} for name in ("good", "better", "bad"))
    audit, nothing = asked.caller.store.audit, "nothing" in asked.fields
    good |= better
    for before in await audit.judgements() if "beside" in asked.fields else ():
        if before.receipt == receipt:
            good, bad = good | {*before.good} - bad, bad | {*before.bad} - good
            nothing = before.nothing and not good
    await audit.judge(receipt, good=sorted(good), bad=sorted(bad), nothing=nothing, by=asked.caller.actor)
    return redirect(local_target(asked.text("next", f"/recall/receipts/{receipt}?judged=yes")))


def receipt_page(store: MemoryStore, position: Position) -> ReceiptPage:
    """Return the page of a receipt, asked again. Raises `InvalidInput` where there is none that may be seen."""
    recorded = store.parts.log.event_at(position)
    served = None if recorded is None else recorded.event
    if not isinstance(served, RecallServed | ContextServed) or not store.parts.visible.shows_receipt(served):
        raise InvalidInput("position", f"no receipt is recorded at {position}")
    (audited,) = store.audit.receipts(after=position - 1, limit=1).receipts
    return ReceiptPage(
        audited=audited,
        says=tuple(_verdict(audited)),
        text=_text(store, served) if isinstance(served, ContextServed) else None,
        then=tuple(answered_turn(store, item, went=item in audited.went) for item in audited.turns),
        now=tuple(answered_turn(store, item) for item in audited.now),
    )


def _text(store: MemoryStore, served: ContextServed) -> str | None:
    counter = counter_of(None)
    if served.counted_by != counter.name:
        return None
    try:
        built = store.parts.contexts.again(served, counter).context
    except NO_ANSWER:
        return None
    return built.text if digest_of(built) == served.digest else None


def answered_turn(store: MemoryStore, position: Position, *, went: bool = False) -> AnsweredTurn:
    """Return a turn as an answer shows it: without its text if it was forgotten, or others said it."""
    recorded = store.parts.log.event_at(position)
    is_shown = recorded is not None and store.parts.visible.shows(recorded)
    turn = recorded.event if recorded is not None and is_shown and isinstance(recorded.event, TurnRecorded) else None
    return AnsweredTurn(
        position=position,
        session=session_of(recorded.stream) if recorded is not None and is_shown else None,
        who="" if turn is None else turn.speaker or turn.role,
        text="" if turn is None else excerpt(turn.text),
        forgotten=turn is None,
        went=went,
    )


def _verdict(audited: AuditedReceipt) -> Iterator[str]:
    yield f"{_VERDICTS[audited.verdict]}{f' {audited.why}.' if audited.why else ''}"
    if audited.would_differ_today is None:
        yield f"What it would answer today is not known: {audited.today}."
    elif audited.would_differ_today:
        yield "Asked today, the memory answers otherwise."
    else:
        yield "Asked today, the memory gives the same answer."


_VERDICTS: Final = {
    Verdict.REPRODUCES: "Asked again as of then, the memory gives the same answer.",
    Verdict.DIFFERS: "Asked again as of then, the memory answers otherwise: the log, the model or the program changed.",
    Verdict.UNKNOWN: "Whether it would answer the same as of then cannot be told.",
}


TITLE: Final = "Review"
USUAL: Final = "7 days ago"
"""When the period begins if nothing else is asked for."""


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
async def choose(_: PageRequest) -> ReviewPage:
    """Offer to ask the receipts of a period again."""
    return ReviewPage()


@action("/review", title=TITLE, verb="read", needs_write=False)
async def ask(asked: ConsoleRequest) -> Response:
    """Ask the receipts of a period again, in the background. Leaves no receipt."""
    begin, end = asked.text("from", USUAL), asked.text("to") or asked.text("at")
    store, after = asked.limited(asked.caller.store), asked.position("after")

    def period(store: MemoryStore) -> list[Position]:
        ends = as_of(store, begin, name="from"), as_of(store, end, name="to")
        return sorted(moment.position for moment in ends)

    first, last = await read(asked.caller.store, period)

    def work(blocking: MemoryStore, progress: Progress) -> Review:
        parts = blocking.parts
        asking = Reviewing(parts.visible, parts.contexts, parts.projections, parts.distrusts, blocking.parts.clock)
        return asking.review(after=max(first, after or first), upto=last, progress=stopping(progress))

    async def ask_again(progress: Progress) -> Review:
        return await run_in("background", store, partial(work, progress=progress))

    title = "Asking again what the memory was asked"
    return await start_job(asked, title, ask_again, back="/review", shown_at=lambda job, _: f"/review/{job}")


@page("/review/{job}", title=TITLE, template="review.html")
async def review(asked: PageRequest) -> ReviewPage:
    """Show the answers that would be different today, those on which most relied first, and one of them to judge."""
    found = job_page(asked).result
    if not isinstance(found, Review):
        raise Refused(404, "There is no such review", "It has not ended, or it is other work.", "Look at its own page.")
    within, wanted = asked.limited(asked.caller.store), asked.position("receipt")
    return await run_in("recall", within, partial(_reviewed, review=found, wanted=wanted))


def _reviewed(store: MemoryStore, *, review: Review, wanted: Position | None) -> ReviewPage:
    log = store.parts.log
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
        if isinstance(item.event, RecallServed | ContextServed) and store.parts.visible.shows_receipt(item.event)
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
