"""Read forget requests from the log: their progress, and the content they concern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mnemolog.domain.encrypted_content import CONTENT_TOPICS
from mnemolog.domain.events import (
    ContentErased,
    ForgetCompleted,
    ForgetRequested,
    ForgetTarget,
    RecordedEvent,
    TurnRecorded,
)
from mnemolog.domain.forgetting import FORGETTING_STREAM, Positions
from mnemolog.domain.position import Position, to_datetime
from mnemolog.forgetting.results import ForgettingStatus, ForgottenEvent, NodeStatus
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.reader import PAGE


class Request(NamedTuple):
    """A request to forget, and its progress."""

    recorded: RecordedEvent
    event: ForgetRequested
    erased_at: Position | None
    """Position of the event that records its content as erased."""
    erased_last: Position | None
    """The last one: a request is carried out again if older keys were restored."""
    completed_at: Position | None
    """Position of the event that records it as completed, since its content was erased last."""
    copies: list[str] | None
    """Where copies of the keys were known to be when they were destroyed. None if that was not noted."""

    def not_confirmed_by(self, nodes: Sequence[NodeStatus]) -> list[NodeStatus]:
        """Return the nodes that have not confirmed that its content is gone from their projections."""
        return [node for node in nodes if self.erased_last is None or node.purged < self.erased_last]


def requests(log: EventLog) -> list[Request]:
    """Return all requests in order."""
    if log.epoch() == 0:
        return []
    asked: dict[str, tuple[RecordedEvent, ForgetRequested]] = {}
    erased: dict[str, Position] = {}
    erased_last: dict[str, Position] = {}
    completed: dict[str, Position] = {}
    copies: dict[str, list[str] | None] = {}
    for events in log.read_stream(FORGETTING_STREAM, upto=log.head().position):
        for recorded in events:
            match recorded.event:
                case ForgetRequested() as event:
                    asked[event.id] = recorded, event
                case ContentErased(request=request):
                    erased.setdefault(request, recorded.position)
                    erased_last[request], copies[request] = recorded.position, recorded.event.copies
                    completed.pop(request, None)
                case ForgetCompleted(requests=done):
                    completed.update(dict.fromkeys(set(done) - completed.keys(), recorded.position))
    return [
        Request(
            recorded,
            event,
            erased.get(request),
            erased_last.get(request),
            completed.get(request),
            copies.get(request),
        )
        for request, (recorded, event) in asked.items()
    ]


def forgotten(log: EventLog, *, topic: str | None = None) -> Iterator[ForgottenEvent]:
    """Yield every event that lost its content, once, in the order of the requests; or those of one topic."""
    seen: set[int] = set()
    for request in requests(log):
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
    found = requests(log)
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
