"""What audits of receipts share: which receipts are repeated, the verdict on each, and how often each was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.clock import UtcTime
from mnemolog.domain.events import RECALLS_STREAM, ContextServed, Event, RecallServed, RecordedEvent, TurnRecorded
from mnemolog.domain.limits import checked_whole
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.result import Result
from mnemolog.forgetting import history as forgetting_record
from mnemolog.projections.ports import Progress
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import VECTOR

NO_ANSWER: Final = (
    errors.InvalidInput,
    errors.SessionError,
    errors.ModelError,
    errors.ProjectionError,
    errors.StorageFull,
)
"""Errors that leave a receipt without a verdict."""
LIMIT = 1_000
"""Default number of receipts that one audit repeats."""


class Verdict(StrEnum):
    """The outcome for a receipt."""

    REPRODUCES = "reproduces"
    DIFFERS = "does-not-reproduce"
    """Repeated as of its head, the answer differs: the log, the model or this program has changed."""
    UNKNOWN = "cannot-be-told"
    """It cannot be repeated here as it was: `why` says what is missing."""


class AuditedReceipt(Result, frozen=True, kw_only=True):
    """A receipt and the result of repeating it."""

    position: Position
    """Position of the receipt in the log."""
    served_at: UtcTime
    query: str
    actor: str
    """Who asked; empty if none was given."""
    head: Position
    """The position that its answer refers to."""
    verdict: Verdict
    why: str = ""
    """What differs, or why that is unknown."""
    would_differ_today: bool | None = None
    """Whether the same call has another answer now; None if that is unknown."""
    came: tuple[Position, ...] = ()
    """Turns of today's answer that were not in it then, in the order of the answer."""
    went: tuple[Position, ...] = ()
    """Turns that are not in today's answer."""
    today: str = ""
    """Why today's answer is unknown; empty if it is known."""


class ReceiptAudit(Result, frozen=True, kw_only=True):
    """The results for receipts, in the order they were recorded."""

    reproduced: int
    differing: int
    unknown: int
    changed_today: int
    forgotten: int
    """Receipts whose content is forgotten; they are not repeated."""
    more: bool
    """Whether there are more receipts: continue with the last one's position as `after`."""

    @property
    def sound(self) -> bool:
        """Whether no receipt failed to reproduce."""
        return self.differing == 0


class Gone(NamedTuple):
    """What was forgotten of a log, as far as audits of receipts need it."""

    receipts: int
    """Receipts of the kind that is audited."""
    first: Position | None
    """The first event without its content; None if nothing was forgotten."""
    first_turn: Position | None
    """The first turn without its content; None if no turn was forgotten."""


class Chosen(TypedDict):
    """Which receipts are audited: those after position `after` that were recorded at `since` or later."""

    since: Micros | None
    after: int
    limit: int
    progress: Progress | None


Served = TypeVar("Served", RecallServed, ContextServed)
Audited = TypeVar("Audited", bound=AuditedReceipt)


def audited_receipts(
    visible: VisibleEvents,
    kind: type[Served],
    audited: Callable[[RecordedEvent, Served, Gone], Audited],
    **which: Unpack[Chosen],
) -> tuple[tuple[Audited, ...], dict[str, Any]]:
    """Return up to `limit` audited receipts of a kind, and the fields of their `ReceiptAudit`."""
    limit, progress = which["limit"], which["progress"]
    chosen = _chosen(visible, kind, since=which["since"], after=which["after"], limit=limit)
    gone = _gone(visible, kind)
    found: list[Audited] = []
    for recorded in chosen[:limit]:
        if isinstance(recorded.event, kind):
            found.append(audited(recorded, recorded.event, gone))
        if progress is not None:
            progress(len(found), min(limit, len(chosen)))
    verdicts = [item.verdict for item in found]
    return tuple(found), {
        "reproduced": verdicts.count(Verdict.REPRODUCES),
        "differing": verdicts.count(Verdict.DIFFERS),
        "unknown": verdicts.count(Verdict.UNKNOWN),
        "changed_today": sum(item.would_differ_today is True for item in found),
        "forgotten": gone.receipts,
        "more": len(chosen) > limit,
    }


def repeated(served: RecallServed, again: Callable[[], tuple[Recall, str]]) -> tuple[Verdict, str]:
    """Return the verdict on a receipt, and why. `again` returns its answer now, and in words how it differs."""
    try:
        recall, difference = again()
    except errors.InvalidInput as error:
        return Verdict.UNKNOWN, f"this mnemolog cannot ask its question: {error}"
    except errors.SessionError as error:
        return Verdict.UNKNOWN, f"it asked about a session that the log did not have then: {error}"
    except NO_ANSWER as error:
        return Verdict.UNKNOWN, f"the vectors do not answer: {error}"
    if not difference:
        return Verdict.REPRODUCES, ""
    before, now = served.reranker or "none", recall.reranker or "none"
    if before != now:
        return Verdict.UNKNOWN, f"the reranker was {before}, it is {now} now: {difference}"
    return Verdict.DIFFERS, difference


def with_today(
    found: Audited,
    served: RecallServed,
    turns: Sequence[int],
    today: Callable[[], tuple[Recall, Sequence[Position], bool]],
) -> Audited:
    """Add today's answer: `today` returns it, its turns, and whether it differs. `turns` were in the answer then.

    The answer to a question with `as_of` never changes.
    """
    if served.as_of:
        return replace(found, would_differ_today=False)
    try:
        recall, now, differs = today()
    except NO_ANSWER as error:
        return replace(found, today=str(error))
    if served.model is not None and recall.model is None:
        return replace(found, today=recall.unavailable_legs.get(VECTOR, "the vectors do not answer"))
    return replace(
        found,
        would_differ_today=differs,
        came=tuple(position for position in now if position not in set(turns)),
        went=tuple(Position(position) for position in turns if position not in set(now)),
    )


def listed(positions: Iterable[int]) -> str:
    """Return positions in words."""
    return ", ".join(map(str, positions)) or "none"


def _gone(visible: VisibleEvents, kind: type[Event]) -> Gone:
    receipts, first, first_turn = 0, None, None
    for item in forgetting_record.forgotten(visible.log):
        if not visible.shows_stream(item.stream):
            continue
        receipts += item.topic == kind.topic
        first = min(item.position, first or item.position)
        if item.topic == TurnRecorded.topic:
            first_turn = min(item.position, first_turn or item.position)
    return Gone(receipts, first, first_turn)


def _chosen(
    visible: VisibleEvents, kind: type[Served], *, since: Micros | None, after: int, limit: int
) -> list[RecordedEvent]:
    """Return up to `limit` receipts of a kind, and one more if there is."""
    checked_whole("limit", limit, least=1)
    log, chosen = visible.log, list[RecordedEvent]()
    first = log.version_at(RECALLS_STREAM, Position(after))
    for batch in log.read_stream(RECALLS_STREAM, after=first, upto=log.head().position):
        for recorded in batch:
            late = since is None or recorded.recorded_at >= since
            if isinstance(recorded.event, kind) and late and visible.shows_receipt(recorded.event):
                chosen.append(recorded)
        if len(chosen) > limit:
            break
    return chosen[: limit + 1]
