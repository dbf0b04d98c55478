"""What a thread answers with: checkpoints, with the values of their channels and what was written behind them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.thread_events import Blob
from mnemolog.domain.threads import unpack


class Typed(NamedTuple):
    """Bytes of a serialiser, with what it calls their form."""

    kind: str
    data: bytes


class Written(NamedTuple):
    """What a task wrote to a channel."""

    task: str
    channel: str
    value: Typed


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a thread, as it was handed over."""

    thread: str
    ns: str
    """Its namespace in the thread; empty for the outermost."""
    id: str
    parent: str | None
    checkpoint: Typed
    """All of it but the values of its channels."""
    metadata: Typed
    values: dict[str, Typed]
    """By channel."""
    writes: list[Written]
    """What tasks wrote behind it: by path of the task, task, and place."""


def typed(blob: Blob) -> Typed:
    """Return what a blob holds. Raises `LogDamaged`."""
    try:
        return Typed(blob.kind, unpack(blob))
    except ValueError as error:
        raise errors.LogDamaged(f"bytes of a checkpoint cannot be read: {error}") from error
