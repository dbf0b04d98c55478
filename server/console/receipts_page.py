"""Recorded recalls: what was answered then, whether that is reproduced, and what would be answered today."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import partial
from typing import Any, Final

from starlette.requests import Request

from mnemolog.adapters.support.store_access import log_of, read, with_pools
from mnemolog.audit.recall_audit import AuditedRecall
from mnemolog.audit.receipt_audit import Verdict
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import RecallServed, RecordedEvent, TurnRecorded
from mnemolog.domain.position import Position, Version
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.recall.receipts import RECALLS_STREAM
from mnemolog.server.console import parameters
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import page
from mnemolog.server.console.rendering import excerpt
from mnemolog.server.http.access import Caller
from mnemolog.store import MemoryStore

PER_PAGE: Final = 100


class Receipt(Result, frozen=True, kw_only=True):
    """A recall that left a receipt."""

    position: Position
    served_at: datetime
    query: str
    """Empty if it was forgotten."""
    head: Position
    """The position that its answer refers to."""
    hits: int
    scope: str
    session: str | None
    actor: str


class ReceiptsPage(Result, frozen=True, kw_only=True):
    """The recorded recalls, newest first."""

    receipts: tuple[Receipt, ...]
    older: int | None
    """Give this as `before` for the next page; None if there is none."""


class AnsweredTurn(Result, frozen=True, kw_only=True):
    """A turn of a recorded answer, or of today's."""

    position: Position
    session: str | None
    who: str
    text: str
    """Empty if it was forgotten."""
    forgotten: bool
    went: bool = False
    """Whether today's answer does not have it."""


class ReceiptPage(Result, frozen=True, kw_only=True):
    """One recorded recall: what was answered then, whether that is reproduced, and today's answer."""

    audited: AuditedRecall
    says: tuple[str, ...]
    """The result in words."""
    then: tuple[AnsweredTurn, ...]
    came: tuple[AnsweredTurn, ...]
    """Turns of today's answer that were not in it then."""
    again: dict[str, Any]
    """The parameters that ask the same in the recall debugger."""


@page("/recall/receipts", title="Recorded recalls", template="receipts.html", whole=True)
async def receipts(request: Request, caller: Caller, at: AsOf) -> ReceiptsPage:
    """Show the recorded recalls up to the moment."""
    before = parameters.whole(request.query_params, "before", 0, most=10**15)
    return await read(caller.store, partial(_receipts, before=before or None, upto=at.position))


def _receipts(store: MemoryStore, *, before: int | None, upto: Position) -> ReceiptsPage:
    log = log_of(store)
    last = log.version(RECALLS_STREAM) if before is None else max(before - 1, 0)
    first = max(last - PER_PAGE, 0)
    found: list[Receipt] = []
    for batch in log.read_stream(RECALLS_STREAM, after=Version(first), upto=upto):
        found += [
            _receipt(item, item.event)
            for item in batch
            if item.version <= last and isinstance(item.event, RecallServed)
        ]
        if batch[-1].version >= last:
            break
    return ReceiptsPage(receipts=tuple(reversed(found)), older=first + 1 if first else None)


def _receipt(recorded: RecordedEvent, served: RecallServed) -> Receipt:
    return Receipt(
        position=recorded.position,
        served_at=to_datetime(recorded.recorded_at),
        query=served.query,
        head=Position(served.head),
        hits=len(served.hits),
        scope=served.scope,
        session=served.session,
        actor=served.actor,
    )


@page("/recall/receipts/{position}", title="A recorded recall", template="receipt.html", whole=True)
async def receipt(request: Request, caller: Caller, _at: AsOf) -> ReceiptPage:
    """Show what was answered then, whether that is reproduced, and what would be answered today."""
    position = parameters.position_in_path(request)
    blocking, pools = with_pools(caller.store)
    audit = await pools.recall(partial(blocking.audit.recalls, after=max(position - 1, 0), limit=1))
    found = [item for item in audit.recalls if item.position == position]
    if not found:
        raise InvalidInput("position", f"no recall that could be repeated is recorded at {position}")
    return await read(caller.store, partial(_receipt_page, audited=found[0]))


def _receipt_page(store: MemoryStore, audited: AuditedRecall) -> ReceiptPage:
    log = log_of(store)
    recorded = log.event_at(audited.position)
    if recorded is None or not isinstance(recorded.event, RecallServed):
        raise InvalidInput("position", f"no recall is recorded at {audited.position}")
    served = recorded.event
    again = {
        "q": served.query,
        "k": served.k,
        "mode": served.mode,
        "scope": served.scope,
        "session": served.session or "",
        "lineage": "yes" if served.lineage else "",
        "role": ", ".join(served.roles),
        "speaker": ", ".join(served.speakers),
        "at": served.head,
    }
    return ReceiptPage(
        audited=audited,
        says=tuple(_verdict(audited)),
        then=tuple(_turn(log, position, went=position in audited.went) for position in audited.hits),
        came=tuple(_turn(log, position) for position in audited.came),
        again={name: value for name, value in again.items() if value != ""},
    )


def _turn(log: EventLog, position: Position, *, went: bool = False) -> AnsweredTurn:
    recorded = log.event_at(position)
    event = None if recorded is None else recorded.event
    turn = event if isinstance(event, TurnRecorded) else None
    return AnsweredTurn(
        position=position,
        session=None if recorded is None else session_of(recorded.stream),
        who="" if turn is None else turn.speaker or turn.role,
        text="" if turn is None else excerpt(turn.text),
        forgotten=turn is None,
        went=went,
    )


def _verdict(audited: AuditedRecall) -> Iterator[str]:
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
