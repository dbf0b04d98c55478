"""Checkpoints as they are returned, with the values of their channels and pending writes."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.thread_events import Blob
from mnemolog.domain.threads import unpack


class Typed(NamedTuple):
    """Serialised bytes, with the serialiser's name of their format."""

    kind: str
    data: bytes


class Written(NamedTuple):
    """A write of a task to a channel."""

    task: str
    channel: str
    value: Typed


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint of a thread, as it was passed in."""

    thread: str
    ns: str
    """Its namespace in the thread; empty for the root."""
    id: str
    parent: str | None
    checkpoint: Typed
    """Everything but the values of its channels."""
    metadata: Typed
    values: dict[str, Typed]
    """By channel."""
    writes: list[Written]
    """Writes of tasks after it, in the order of task path, task and place."""


def typed(blob: Blob) -> Typed:
    """Return the content of a blob. Raises `LogDamaged`."""
    try:
        return Typed(blob.kind, unpack(blob))
    except ValueError as error:
        raise errors.LogDamaged(f"bytes of a checkpoint cannot be read: {error}") from error
