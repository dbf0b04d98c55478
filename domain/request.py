"""What the events that a thread or a task appends take from its request: the actor, its idempotency key and its digest.

And whether it reports on a log that has lost events.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import msgspec

from mnemolog.domain.event import Event, RequestedEvent
from mnemolog.domain.values import checked_label

E = TypeVar("E", bound=Event)

_ACTOR: Final[ContextVar[str]] = ContextVar("mnemolog_actor", default="")
_REQUEST: Final[ContextVar[tuple[str | None, str]]] = ContextVar("mnemolog_request", default=(None, ""))
"""Key and digest."""
REPORTS: Final[ContextVar[bool]] = ContextVar("mnemolog_reports", default=False)
"""Whether what runs reports on the log, and so reads one that has lost events."""


@contextmanager
def as_it_is() -> Iterator[None]:
    """Let the block read a log that has lost events: it reports on the log."""
    token = REPORTS.set(True)
    try:
        yield
    finally:
        REPORTS.reset(token)


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Record who acts in each event that is appended within the `with` block, by this thread or asyncio task.

    - `actor`: a label such as `alice` or `ci/nightly`, never content

    Calls of `AsyncMemoryStore` keep it; a thread that the block starts does not. A block within the block may name
    another actor. Raises `InvalidInput`.
    """
    token = _ACTOR.set(checked_label("actor", actor))
    try:
        yield
    finally:
        _ACTOR.reset(token)


def current_actor() -> str:
    """Return the name of the actor of this thread or task; empty if none was given."""
    return _ACTOR.get()


def without_actor(event: E) -> E:
    """Return an event without its actor, to compare what happened: a retry may come from another actor.

    The number of secrets that were replaced is left out, too: a retry may come without them.
    """
    return msgspec.structs.replace(event, actor="", redacted=None) if event.actor or event.redacted else event


def with_request(event: E) -> E:
    """Return an event with the digest of the request, if it may hold one."""
    _, digest = _REQUEST.get()
    return msgspec.structs.replace(event, request=digest) if digest and isinstance(event, RequestedEvent) else event


def is_of_other_request(event: Event) -> bool:
    """Whether an event was made for a request that differs from this one, though it has the same key."""
    _, digest = _REQUEST.get()
    return isinstance(event, RequestedEvent) and bool(event.request and digest) and event.request != digest


def current_request_key() -> str | None:
    """Return the key of the request that is being answered; None outside of one, and for one without a key."""
    return _REQUEST.get()[0]


@contextmanager
def request_key(key: str | None, digest: str = "") -> Iterator[None]:
    """Give the writes of the block a key, so that a retry of the block with the same key writes nothing.

    The key is stored with the event, in the clear. With the `digest` of a request, another request with that key is
    refused where the event is encrypted as a whole. A block makes one call that writes.
    """
    token = _REQUEST.set((key, digest))
    try:
        yield
    finally:
        _REQUEST.reset(token)
