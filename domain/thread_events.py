"""The events of a thread of a graph: checkpoints of its channels, writes of tasks, and what is hidden.

A thread has a stream of its own (`mnemolog.domain.threads`). The values of its channels are opaque here: bytes from the
graph's own serialiser, with the name of their kind.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from mnemolog.domain.event import Count, Event, Ordinal
from mnemolog.domain.limits import INTEGER_MAX


class Blob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of a serialiser."""

    kind: str
    """The serialiser's name for their format."""
    data: bytes = b""
    packed: bool = False
    """Whether they are deflated (RFC 1951)."""


class ChannelValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value of a channel at a checkpoint: whole, or as a delta against an earlier value."""

    name: str
    blob: Blob
    """The whole value; with a `base` only the bytes that are not in it. Deflated with the last 32 KiB of the base."""
    base: Ordinal | None = None
    """The log position of the checkpoint that has the earlier value."""
    plan: list[int] = []
    """How to build the value, in threes: bytes to take from the blob, offset and length of a copy from the base."""
    number: Count = 0
    """How many values of the channel came before this one, since the last whole one."""


class ThreadCheckpointed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A graph took a step or received input: the state of the thread at that time."""

    topic: ClassVar[str] = "thread.checkpointed.v1"

    id: str
    checkpoint: Blob
    """The checkpoint without the values of its channels."""
    metadata: Blob
    ns: str = ""
    parent: str | None = None
    run: str | None = None
    values: list[ChannelValue] = []
    """The channels that changed since the parent."""
    kept: dict[str, Ordinal] = {}
    """The other channels: the log position of the checkpoint that has their value."""


class ThreadWrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The write of a task to one channel."""

    channel: str
    blob: Blob
    place: Annotated[int, msgspec.Meta(le=INTEGER_MAX)]
    """Its index among the writes of the task. Negative for writes that may be repeated (errors, interrupts)."""


class ThreadWritten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A task of the step that follows a checkpoint wrote to channels."""

    topic: ClassVar[str] = "thread.written.v1"

    checkpoint: str
    task: str
    writes: list[ThreadWrite]
    ns: str = ""
    path: str = ""


class ThreadPruned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Some checkpoints of a thread are hidden, with the writes after them."""

    topic: ClassVar[str] = "thread.pruned.v1"

    hidden: dict[str, list[str]]
    """Ids by namespace."""
    reason: str = ""


class ThreadDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a thread up to here is hidden."""

    topic: ClassVar[str] = "thread.deleted.v1"


class ThreadCopied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A thread was copied: it starts with what the source has at this position. Recorded in the stream of the copy."""

    topic: ClassVar[str] = "thread.copied.v1"

    source: str


THREAD_EVENTS: tuple[type[Event], ...] = (ThreadCheckpointed, ThreadWritten, ThreadPruned, ThreadDeleted, ThreadCopied)
