"""The actor: on whose behalf a thread or a task works. Each event has the name of the actor that appended it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

import msgspec

from mnemolog.domain.event import Event
from mnemolog.domain.limits import checked_label

E = TypeVar("E", bound=Event)

_ACTOR: Final[ContextVar[str]] = ContextVar("mnemolog_actor", default="")


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Record `actor` in each event that is appended within the `with` block, by this thread or asyncio task.

    It is a label such as `alice` or `ci/nightly`, never content. Calls of `AsyncMemoryStore` keep it; a thread that the
    block starts does not. A block within the block may name another actor. Raises `InvalidInput`.
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
    """Return an event without its actor, to compare what happened: a retry may come from another actor."""
    return msgspec.structs.replace(event, actor="") if event.actor else event
