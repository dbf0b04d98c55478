"""The first page: the last questions and their answers now, what changed, and what needs attention."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from mnemolog.audit.receipt_audit import NO_ANSWER, Receipt, recall_today
from mnemolog.domain.errors import OutsideScope, sentence
from mnemolog.domain.events import ContextServed, RecallServed, TurnRecorded
from mnemolog.domain.result import Result
from mnemolog.domain.values import Position
from mnemolog.projections.recall.service import recall_of
from mnemolog.projections.sql.queries import Group
from mnemolog.server.console.history_page import EventFilter, EventLine, newest_events
from mnemolog.server.console.moment import AsOf, Visit
from mnemolog.server.console.page import PageRequest, view, wants_json
from mnemolog.server.console.receipts_page import AnsweredTurn, ReceiptFilter, answered_turn, newest_receipts
from mnemolog.server.console.upkeep_page import Part, parts_of, to_attend
from mnemolog.store import MemoryStore

GROUPS_MAX: Final = 12
"""Scopes, and agents, that are listed: those with the most turns."""
LATEST_MAX: Final = 10
QUESTIONS_MAX: Final = 5
"""The last different questions that are asked again."""
RECEIPTS_MAX: Final = 50
"""Receipts among which they are."""
CHANGED_MAX: Final = 20_000
"""Events since the last visit of which turns and sessions are counted."""


class LastQuestion(Result, frozen=True, kw_only=True):
    """A question that the memory was asked, with the best turn of its answer then, and of that as of the page."""

    receipt: Receipt
    then: AnsweredTurn | None
    """None if nothing was found."""
    now: AnsweredTurn | None
    differs: bool | None
    """Whether the answer has other turns, or another order; None if that was not asked, or cannot be told: `why`."""
    why: str = ""


class Changed(Result, frozen=True, kw_only=True):
    """What was recorded since the last visit of this browser."""

    since: Position
    at: datetime
    """When that visit was."""
    events: int
    turns: int | None
    """None for more than `CHANGED_MAX` events."""
    sessions: int | None


class Overview(Result, frozen=True, kw_only=True):
    """What the store held at a moment."""

    position: Position
    head: Position
    sessions: int
    turns: int
    scopes: tuple[Group, ...]
    scopes_left_out: int
    agents: tuple[Group, ...]
    agents_left_out: int
    latest: tuple[EventLine, ...]
    """Newest first."""
    questions: tuple[LastQuestion, ...]
    """Those with another answer now come first."""
    changed: Changed | None
    """None at the first visit, and as of an earlier moment."""
    warnings: tuple[str, ...] | None
    """What needs attention now; None for a caller who sees only a part of the store."""
    stale: tuple[Part, ...]
    """What cannot be used as it is, with what mends it."""


@view("/", title="Overview", template="overview.html", pool="recall")
def overview(store: MemoryStore, asked: PageRequest) -> Overview:
    """Show the last questions and their answers, what changed, what needs attention, and what the store held.

    With `ask` the questions are asked again, which the page has its script do once it is shown.
    """
    needs, within, at = _needs(store, asked), asked.limited(store), asked.at
    visit, ask = Visit.of(asked.request.cookies), bool(asked.fields.get("ask")) or wants_json(asked.request)
    questions = _questions(within, at, ask=ask)
    scopes = within.parts.session_list.groups("scope", as_of=at.position)
    agents = within.parts.session_list.groups("agent", as_of=at.position)
    return Overview(
        position=at.position,
        head=at.head,
        sessions=sum(item.sessions for item in scopes),
        turns=sum(item.turns for item in scopes),
        scopes=_largest(scopes),
        scopes_left_out=max(len(scopes) - GROUPS_MAX, 0),
        agents=_largest(agents),
        agents_left_out=max(len(agents) - GROUPS_MAX, 0),
        latest=newest_events(within, EventFilter(), upto=at.position, limit=LATEST_MAX).lines,
        questions=tuple(sorted(questions, key=lambda item: not item.differs)),
        changed=_changed(within, visit, at) if visit and at.is_now and visit.since <= at.head else None,
        warnings=None if needs is None else needs[0],
        stale=() if needs is None else needs[1],
    )


def _largest(groups: Sequence[Group]) -> tuple[Group, ...]:
    return tuple(sorted(groups, key=lambda item: (-item.turns, item.name))[:GROUPS_MAX])


def _questions(store: MemoryStore, at: AsOf, *, ask: bool) -> list[LastQuestion]:
    different: dict[Any, Receipt] = {}
    for item in newest_receipts(store, wanted=ReceiptFilter(), upto=at.position, limit=RECEIPTS_MAX).receipts:
        state = store.parts.visible.states.latest(item.session) if item.session else None
        of = item.scopes if state is None else (state.started.scope,)
        different.setdefault((item.query, of), item)
    last = list(different.values())[:QUESTIONS_MAX]
    return [_again(store, item, at, ask=ask) for item in last]


def _again(store: MemoryStore, receipt: Receipt, at: AsOf, *, ask: bool) -> LastQuestion:
    recorded = store.parts.log.event_at(receipt.position)
    served = None if recorded is None else recorded.event
    found: list[Position] = []
    differs, why = None, ""
    if ask and isinstance(served, RecallServed | ContextServed):
        recall = recall_of(served)
        try:
            found = [hit.position for hit in recall_today(store.parts.contexts.recalls, recall, at.when).hits]
            differs = found != recall.hits
        except NO_ANSWER as error:
            why = str(error)
    then, now = (answered_turn(store, turns[0]) if turns else None for turns in (receipt.turns, found))
    return LastQuestion(receipt=receipt, then=then, now=now, differs=differs, why=why)


def _changed(store: MemoryStore, visit: Visit, at: AsOf) -> Changed:
    events, said = max(at.position - visit.since, 0), None
    if events <= CHANGED_MAX:
        streams = store.parts.log.streams_with(TurnRecorded.topic, after=visit.since, upto=at.position)
        said = Counter(stream for stream in streams if store.parts.visible.shows_stream(stream))
    return Changed(
        since=visit.since,
        at=visit.at,
        events=events,
        turns=None if said is None else said.total(),
        sessions=None if said is None else len(said),
    )


def _needs(store: MemoryStore, asked: PageRequest) -> tuple[tuple[str, ...], tuple[Part, ...]] | None:
    """Return what needs attention, in sentences, and what is stale; None for who sees a part of the store only."""
    try:
        status = store.status()
    except OutsideScope:
        return None
    ending = to_attend(store) if asked.caller.may("admin") else ()
    return (*map(sentence, status.warnings), *ending), tuple(part for part in parts_of(status) if not part.good)
