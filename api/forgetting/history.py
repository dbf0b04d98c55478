"""Read forget requests from the log: their progress, the content they concern, and their certificates."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.display import counted
from mnemolog.domain.events import (
    CONTENT_TOPICS,
    IMPORTED_KEY,
    REQUEST_DIGEST,
    ContentErased,
    ForgetCompleted,
    ForgetRequested,
    ForgetTarget,
    RecordedEvent,
    SessionStarted,
    TurnRecorded,
)
from mnemolog.domain.forgetting import FORGETTING_STREAM, NOTHING_OUTSIDE, Positions
from mnemolog.domain.position import ORIGIN, Position, to_datetime
from mnemolog.domain.session import session_of
from mnemolog.forgetting.results import Certificate, ForgettingStatus, ForgottenEvent, NodeStatus, Remainder, Statements
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.reader import PAGE


class Request(NamedTuple):
    """A request to forget, and its progress."""

    recorded: RecordedEvent
    event: ForgetRequested
    erased_at: Position | None = None
    """Position of the event that records its content as erased."""
    erased_last: Position | None = None
    """The last one: a request is carried out again if older keys were restored."""
    completed_at: Position | None = None
    """Position of the event that records it as completed, since its content was erased last."""
    copies: list[str] | None = None
    """Where copies of the keys were known to be when they were destroyed. None if that was not noted."""

    def not_confirmed_by(self, nodes: Sequence[NodeStatus]) -> list[NodeStatus]:
        """Return the nodes that have not confirmed that its content is gone from their projections."""
        return [node for node in nodes if self.erased_last is None or node.purged < self.erased_last]


def requests(log: EventLog) -> dict[str, Request]:
    """Return all requests by their ids, in order."""
    found: dict[str, Request] = {}
    upto = log.head().position if log.epoch() else ORIGIN
    for recorded in chain.from_iterable(log.read_stream(FORGETTING_STREAM, upto=upto)):
        at = recorded.position
        match recorded.event:
            case ForgetRequested() as event:
                found[event.id] = Request(recorded, event)
            case ContentErased(request=id, copies=copies) if id in found:
                known = found[id]
                first = known.erased_at or at
                found[id] = known._replace(erased_at=first, erased_last=at, completed_at=None, copies=copies)
            case ForgetCompleted(requests=done):
                for id in found.keys() & done:
                    found[id] = found[id]._replace(completed_at=found[id].completed_at or at)
    return found


def forgotten(log: EventLog, *, topic: str | None = None) -> Iterator[ForgottenEvent]:
    """Yield every event that lost its content, once, in the order of the requests; or those of one topic."""
    seen: set[int] = set()
    for request in requests(log).values():
        if request.erased_at is None:
            continue
        for target in request.event.targets:
            for position, found in _content(log, target, before=request.erased_at):
                if position not in seen and topic in (None, found):
                    seen.add(position)
                    yield ForgottenEvent(
                        position=position,
                        stream=target.stream,
                        topic=found,
                        request=request.event.id,
                        requested_at=to_datetime(request.recorded.recorded_at),
                        reason=request.event.reason,
                        actor=request.event.actor,
                    )


def positions_of(log: EventLog, request: Request) -> Positions:
    """Return the positions of all events whose content a request concerns."""
    before = request.erased_at or request.recorded.position
    found = Positions(before)
    for target in request.event.targets:
        for position, _ in _content(log, target, before=before):
            found.add(position)
    return found


def forgotten_turns(log: EventLog) -> list[Position]:
    """Return the positions of all forgotten turns, ascending."""
    return sorted(item.position for item in forgotten(log, topic=TurnRecorded.topic))


def status(log: EventLog) -> ForgettingStatus:
    """Return how far requests have been carried out."""
    found = requests(log).values()
    events = sum(sum(target.counts.values()) for item in found if item.erased_at for target in item.event.targets)
    pending = tuple(item.event.id for item in found if item.completed_at is None)
    return ForgettingStatus(requests=len(found), events=events, pending=pending)


def _content(log: EventLog, target: ForgetTarget, *, before: Position) -> Iterator[tuple[Position, str]]:
    for first, last in target.versions:
        while first <= last:
            upto = min(last, first + PAGE - 1)
            for position, _, _, topic, *_ in log.stored_versions(target.stream, after=first - 1, upto=upto):
                if position >= before:
                    return
                if topic in CONTENT_TOPICS and target.counts.get(topic):  # A session without a title had none.
                    yield Position(position), topic
            first += PAGE


RANGES_MAX: Final = 1_000
"""Ranges of positions that a certificate lists. The versions of streams that it names are complete."""
ITEMS_MAX: Final = 100
"""What a certificate lists of each kind of remainder; the rest is counted."""


def certificate_of(
    log: EventLog, found: Request, *, pending: str | None, copies: Sequence[str], nodes: Sequence[NodeStatus]
) -> Certificate:
    """Return the certificate of a request, as far as it is carried out.

    - `pending`: what has to wait, in words
    - `copies`: the copies of the keys that were known when they were destroyed; before that, those known now
    - `nodes`: the nodes of the log
    """
    event, at = found.event, found.recorded.position
    waiting = found.not_confirmed_by(nodes)
    after = found.completed_at or found.erased_last or at
    is_done = found.completed_at is not None and not waiting
    return Certificate(
        log_id=log.log_id,
        request=event.id,
        requested_at=to_datetime(found.recorded.recorded_at),
        reason=event.reason,
        actor=event.actor,
        scopes=tuple(event.scopes),
        facts_kept=event.facts_kept,
        despite_minimum=event.despite_minimum,
        asked=tuple(event.targets),
        positions=tuple(islice(positions_of(log, found).ranges(), RANGES_MAX)),
        before=log.head_at(at - 1),
        requested=log.head_at(at),
        erased=None if found.erased_last is None else log.head_at(found.erased_last),
        after=log.head_at(after),
        statements=Statements(
            keys_destroyed=0 if found.erased_at is None else sum(sum(one.counts.values()) for one in event.targets),
            complete=found.completed_at is not None,
            confirmed_by=() if is_done else tuple(node.label for node in nodes if node not in waiting),
            waiting_for=tuple(node.label for node in waiting),
        ),
        remains=tuple(_remains(log, found, pending, _first(copies), waiting)),
    )


def _named_in(log: EventLog, found: Request) -> Iterator[str]:
    for target in found.event.targets:
        session, first = session_of(target.stream), None
        with suppress(errors.KeysMissing):
            first = log.first_event(target.stream)
        yield f"stream {target.stream}" if session is None else f"session {session}"
        if first is not None and isinstance(first.event, SessionStarted):
            started = first.event
            yield from (f"{kind} {name}" for kind, name in (("scope", started.scope), ("agent", started.agent)) if name)


def _remains(
    log: EventLog, found: Request, pending: str | None, copies: tuple[str, ...], waiting: Sequence[NodeStatus]
) -> Iterator[Remainder]:
    """Yield what is known to remain."""
    event = found.event
    if found.erased_at is None:
        yield Remainder(kind="keys", says="the keys are not destroyed yet: the content can be read")
    elif found.completed_at is None:
        what = pending or "files of keys or of projections are still to be rewritten"
        yield Remainder(kind="files", says=f"it is not complete, and tried again: {what}")
    if copies:
        says = "copies of the keys from before, with which any copy of the log can be read"
        yield Remainder(kind="keys", says=says, items=copies)
    keys = [key for target in event.targets for key in _keys_of(log, target)]
    if count := sum(map(bool, map(REQUEST_DIGEST.search, keys))):
        says = f"{counted(count, 'key')} that an earlier server wrote: whoever guesses the content can confirm it"
        yield Remainder(kind="digests", says=says)
    if count := sum(map(bool, map(IMPORTED_KEY.fullmatch, keys))):
        says = f"{counted(count, 'key')} that an earlier import made from texts: the keys' file confirms a guess"
        yield Remainder(kind="digests", says=says)
    if event.questions_left is None:
        yield Remainder(kind="questions", says="questions asked above or beside it may quote it: they were not counted")
    elif event.questions_left:
        says = f"{counted(event.questions_left, 'question')} asked above or beside it may quote it"
        yield Remainder(kind="questions", says=says, items=_first(f"position {at}" for at in event.questions))
    if event.scopes:
        yield Remainder(kind="scopes", says=NOTHING_OUTSIDE, items=tuple(event.scopes))
    if waiting:
        says = "files of nodes that have not confirmed it; they purge them before their first answer"
        yield Remainder(kind="nodes", says=says, items=_first(node.label for node in waiting))
    says = "names stay in clear text in the log: ids, scopes, agents, actors, topics, times, sizes, reasons, and keys"
    yield Remainder(kind="names", says=f"{says} of events that the caller chose", items=_first(_named_in(log, found)))


def _keys_of(log: EventLog, target: ForgetTarget) -> Iterator[bytes]:
    """Yield the idempotency keys of the events of a target."""
    firsts = [first for first, _ in target.versions]
    for version, key in log.keys(target.stream):
        if (at := bisect_right(firsts, version)) and version <= target.versions[at - 1][1]:
            yield key.encode()


def _first(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(items), ITEMS_MAX))
