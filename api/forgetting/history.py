"""Requests to forget, read from the log: their progress, the content they concern, and their certificates."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.display import counted
from mnemolog.domain.encoding import UNDECODABLE
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
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_of
from mnemolog.domain.values import ORIGIN, Position, UtcTime, to_datetime
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.reader import PAGE
from mnemolog.infra.runtime.files import read_file


class NodeStatus(Result, frozen=True, kw_only=True):
    """A node of a log in PostgreSQL: a folder on some machine with projections of the log."""

    called_by = "node"

    node: str
    """Its random id."""
    label: str
    """Its host and folder."""
    here: bool
    """Whether it is the folder of this store."""
    opened_at: UtcTime
    seen_at: UtcTime
    """When it last noted something: when it was opened or closed, after a purge, else once a minute while it reads."""
    position: Position
    """How far its views had read the log then."""
    behind_events: int
    purged: Position
    """What was forgotten up to this position is gone from its projections."""


Kind = Literal["names", "questions", "keys", "files", "nodes", "digests", "scopes"]


class Remainder(Result, frozen=True, kw_only=True):
    """Something of what was forgotten, or about it, that is known to remain."""

    kind: Kind
    says: str
    items: tuple[str, ...] = ()
    """The first of them, up to 100."""


class Statements(Result, frozen=True, kw_only=True):
    """What the store says. No export of the log can prove it."""

    keys_destroyed: int
    """Events whose keys were destroyed."""
    complete: bool
    """Whether keys and projections of the node that did it were rewritten without them."""
    confirmed_by: tuple[str, ...]
    """Nodes of a log in PostgreSQL whose projections have none of it, as long as others are waited for."""
    waiting_for: tuple[str, ...]
    """Nodes that have not confirmed it."""


class Certificate(Result, frozen=True, kw_only=True):
    """What a request to forget took. An export proves all but `statements` and `remains` (docs/verify_export.py).

    What it counts is counted as of the request. Once it says `complete` and waits for no node, it stays the same.
    """

    format: str = "mnemolog-certificate"
    version: int = 1
    log_id: str
    request: str
    requested_at: UtcTime
    reason: str
    actor: str
    scopes: tuple[str, ...]
    """The scopes that the caller was bound to; none for a caller who was not."""
    facts_kept: int
    """How many facts stay although all turns went that they rest on."""
    despite_minimum: str
    """Why it was forgotten although a minimum age had not passed; empty where it had."""
    asked: tuple[ForgetTarget, ...]
    """What was asked, as it is in the log: versions of streams, and how many events with content these are."""
    positions: tuple[tuple[int, int], ...]
    """The positions of these events, as ranges with both ends: the first 1,000. `asked` has all."""
    before: Head
    """The head of the log before the request."""
    requested: Head
    """Position and digest of `forget.requested`."""
    erased: Head | None
    """Position and digest of the `content.forgotten` that ends the request; None if its keys are still there."""
    after: Head
    """Of `forget.completed`; if it is not complete, of the last of these events."""
    statements: Statements
    remains: tuple[Remainder, ...]
    """What is known to remain."""


class AskedQuestion(Result, frozen=True, kw_only=True):
    """A recall or a context with a receipt, asked in a scope that covers what is forgotten: it may quote that."""

    position: Position
    asked_at: UtcTime
    scope: str
    """The scope that was searched; of a question of a session, that of the session."""
    session: str | None
    """The session that asked; None if none did."""
    query: str
    """With `dry_run` only."""
    stays: bool
    """Whether it is kept."""


class ForgetReport(Result, frozen=True, kw_only=True):
    """What was forgotten, or with `dry_run` would be."""

    request: str | None
    """Id of the request. None if none was made: a dry run, or no content was left to forget."""
    position: Position | None
    """Position of the request in the log."""
    dry_run: bool
    sessions: tuple[str, ...]
    """Sessions that are forgotten entirely; their structure stays."""
    events: int
    """Events that had content."""
    counts: dict[str, int]
    """By topic."""
    dependents: int = 0
    """How many of the events were not named but depend on named ones: facts that rest on them alone, with their
    retractions, and later checkpoints and writes of threads, which cannot be read without them."""
    questions: int = 0
    """How many are receipts of questions that were asked above or beside the content, and may quote it."""
    questions_left: int = 0
    """How many of these stay."""
    facts_kept: int = 0
    """How many facts stay although all turns go that they rest on: a rule of retention keeps those that hold."""
    asked: tuple[AskedQuestion, ...] = ()
    """The first of both, up to 100."""
    pending: str | None = None
    """What had to wait, and why: rewriting the keys' files, or the projections'. No answer has the content any more.
    Every process that has the store open tries again, about once a minute, and so does the next `open`."""
    confirmed_by: tuple[NodeStatus, ...] = ()
    """Nodes of a log in PostgreSQL whose files have none of it any more, this one among them."""
    waiting_for: tuple[NodeStatus, ...] = ()
    """The other nodes. They serve nothing of it either; `store.audit.pending_erasures` lists who has not confirmed."""
    outside: str = ""
    """For a caller that is bound to scopes, what that means: the same sentence for every request. Else empty."""
    certificate: Certificate | None = None
    """What to keep of it. None if there was no request."""

    @property
    def complete(self) -> bool:
        """Whether all copies are gone from the files of the store, for a log in PostgreSQL from those of this node."""
        return self.pending is None


class Requested(Result, frozen=True, kw_only=True):
    """Which request to forget something is about, when it was made, why and by whom."""

    request: str
    requested_at: UtcTime
    reason: str
    actor: str = ""
    """Who requested it; empty if none was given."""


class ForgottenEvent(Requested, frozen=True, kw_only=True):
    """An event whose content was forgotten: its position and kind, when and why."""

    position: Position
    stream: str
    topic: str


class Erasure(Requested, frozen=True, kw_only=True):
    """A request to forget, or a revoked token: to apply again to a store restored from an older backup.

    A token has no request, and `requested_at` is when it was revoked. A store that applies it records its own actor.
    """

    targets: tuple[ForgetTarget, ...]
    token: str = ""
    """The id of a token that was revoked; empty for a request to forget."""


# Made at import: `mnemolog.projections.sql.checked_json` has the reason.
_DECODER: Final = msgspec.json.Decoder(list[Erasure])


class PendingErasure(Requested, frozen=True, kw_only=True):
    """A request to forget that is not carried out everywhere."""

    complete: bool
    """Whether the node that carried it out has done so. If not, every process that has the store open tries again."""
    waiting_for: tuple[NodeStatus, ...]
    """Nodes of a log in PostgreSQL that have not confirmed it."""


class ReapplyReport(Result, frozen=True, kw_only=True):
    """The result of applying erasures again to a restored store."""

    erasures: int
    requested: int
    """Requests that its log did not have."""
    revoked: int = 0
    """Tokens that were revoked again."""
    pending: str | None = None
    """What is not done yet, and why."""


class ForgettingStatus(Result, frozen=True, kw_only=True):
    """The progress of requests to forget."""

    requests: int
    events: int
    """Events whose content was erased."""
    pending: tuple[str, ...]
    """Requests that are not done yet."""


def read_erasures(file: Path) -> list[Erasure]:
    """Return the erasures in a JSON file. Raises `InvalidInput` for any other file."""
    try:
        return _DECODER.decode(read_file(file, follow=True))
    except (OSError, *UNDECODABLE) as error:
        raise errors.InvalidInput("erasures", f"{file} does not hold erasures: {error}; nothing was changed") from error


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


def forgetting_status(log: EventLog) -> ForgettingStatus:
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
