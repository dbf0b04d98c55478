"""The certificate of a request to forget: what it took, and what is known to remain. Made from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.display import counted
from mnemolog.domain.encrypted_content import IMPORTED_KEY, REQUEST_DIGEST
from mnemolog.domain.events import SessionStarted
from mnemolog.domain.position import Position
from mnemolog.domain.session import session_of
from mnemolog.forgetting.history import Request, positions_of
from mnemolog.forgetting.results import Certificate, NodeStatus, Remainder, Statements
from mnemolog.infra.log.event_log import EventLog

RANGES_MAX: Final = 1_000
"""Ranges of positions that a certificate lists. The versions of streams that it names are complete."""
ITEMS_MAX: Final = 100
"""What a certificate lists of each kind of remainder; the rest is counted."""


class Known(NamedTuple):
    """What a store knows besides its log."""

    pending: str | None
    """What has to wait, in words."""
    questions: tuple[int, Sequence[Position]] | None
    """How many questions that may quote the content are left, and where the first are. None: they were not counted."""
    copies_of_keys: Callable[[Position], Iterable[str]]
    """Returns the known copies of the keys that were made before a position."""
    nodes: Sequence[NodeStatus]


def certificate_of(log: EventLog, found: Request, known: Known) -> Certificate:
    """Return the certificate of a request, as far as it is carried out."""
    event, at = found.event, found.recorded.position
    waiting = found.not_confirmed_by(known.nodes)
    after = found.completed_at or found.erased_last or at
    return Certificate(
        log_id=log.log_id,
        request=event.id,
        requested_at=to_datetime(found.recorded.recorded_at),
        reason=event.reason,
        actor=event.actor,
        asked=tuple(event.targets),
        positions=tuple(islice(positions_of(log, found).ranges(), RANGES_MAX)),
        before=log.head_at(at - 1),
        requested=log.head_at(at),
        erased=None if found.erased_last is None else log.head_at(found.erased_last),
        after=log.head_at(after),
        statements=Statements(
            keys_destroyed=0 if found.erased_at is None else sum(sum(one.counts.values()) for one in event.targets),
            complete=found.completed_at is not None,
            confirmed_by=tuple(node.label for node in known.nodes if node not in waiting),
            waiting_for=tuple(node.label for node in waiting),
        ),
        remains=tuple(_remains(log, found, known)),
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


def _remains(log: EventLog, found: Request, known: Known) -> Iterator[Remainder]:
    """Yield what is known to remain."""
    if found.erased_at is None:
        yield Remainder(kind="keys", says="the keys are not destroyed yet: the content can be read")
    elif found.completed_at is None:
        what = known.pending or "files of keys or of projections are still to be rewritten"
        yield Remainder(kind="files", says=f"it is not complete, and tried again: {what}")
    if copies := _first(known.copies_of_keys(found.erased_at or found.recorded.position)):
        says = "copies of the keys from before, with which any copy of the log can be read"
        yield Remainder(kind="keys", says=says, items=copies)
    keys = [key.encode() for target in found.event.targets for _, key in log.keys(target.stream)]
    if count := sum(map(bool, map(REQUEST_DIGEST.search, keys))):
        says = f"{counted(count, 'key')} that an earlier server wrote: whoever guesses the content can confirm it"
        yield Remainder(kind="digests", says=says)
    if count := sum(map(bool, map(IMPORTED_KEY.fullmatch, keys))):
        says = f"{counted(count, 'key')} that an earlier import made from texts: the keys' file confirms a guess"
        yield Remainder(kind="digests", says=says)
    if known.questions is None:
        yield Remainder(kind="questions", says="questions asked above or beside it may quote it: they were not counted")
    elif known.questions[0]:
        says = f"{counted(known.questions[0], 'question')} asked above or beside it may quote it"
        yield Remainder(kind="questions", says=says, items=_first(f"position {at}" for at in known.questions[1]))
    if waiting := found.not_confirmed_by(known.nodes):
        says = "files of nodes that have not confirmed it; they purge them before their first answer"
        yield Remainder(kind="nodes", says=says, items=_first(node.label for node in waiting))
    says = "names stay in clear text in the log: ids, scopes, agents, actors, topics, times, sizes, reasons, and keys"
    yield Remainder(kind="names", says=f"{says} of events that the caller chose", items=_first(_named_in(log, found)))


def _first(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(items), ITEMS_MAX))
