"""The certificate of a request to forget: what it took, and what is known to remain. Made from the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from mnemolog.domain import errors
from mnemolog.domain.display import counted
from mnemolog.domain.encrypted_content import IMPORTED_KEY, REQUEST_DIGEST
from mnemolog.domain.events import ForgetTarget, SessionStarted
from mnemolog.domain.forgetting import NOTHING_OUTSIDE
from mnemolog.domain.position import to_datetime
from mnemolog.domain.session import session_of
from mnemolog.forgetting.history import Request, positions_of
from mnemolog.forgetting.results import Certificate, NodeStatus, Remainder, Statements
from mnemolog.infra.log.event_log import EventLog

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
