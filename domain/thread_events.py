"""The facts of a thread of a graph: checkpoints of its channels, what tasks wrote, and what is gone from sight.

A thread lies in a stream of its own (`mnemolog.domain.threads`). What its channels hold is opaque here: bytes as
the graph's own serialiser gave them, with the name that it gave their kind.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from mnemolog.domain.event import Event


class Blob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes of a serialiser."""

    kind: str
    """What the serialiser calls their form."""
    data: bytes = b""
    packed: bool = False
    """Whether they are deflated (RFC 1951)."""


class ChannelValue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a channel held at a checkpoint, whole, or as what differs from an earlier value of it."""

    name: str
    blob: Blob
    """The whole value; with a `base` only those bytes that are not in the base. Deflated with its last 32 KiB."""
    base: int | None = None
    """The log position of the checkpoint that has the earlier value."""
    plan: list[int] = []
    """How the value is made of both, in threes: bytes of the blob to take, then offset and length of a copy."""
    number: int = 0
    """How many values of the channel came before in this line, since one that is whole."""


class ThreadCheckpointed(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A graph took a step, or was given input: the state of a thread then."""

    topic: ClassVar[str] = "thread.checkpointed.v1"

    id: str
    checkpoint: Blob
    """All of it but the values of its channels."""
    metadata: Blob
    ns: str = ""
    parent: str | None = None
    run: str | None = None
    values: list[ChannelValue] = []
    """The channels that changed since the parent."""
    kept: dict[str, int] = {}
    """The other channels: the log position of the checkpoint that has their value."""


class ThreadWrite(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task wrote to one channel."""

    channel: str
    blob: Blob
    place: int
    """Its place among the writes of the task. Negative for what may be written again (errors, interrupts)."""


class ThreadWritten(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A task of the step that follows a checkpoint wrote to channels."""

    topic: ClassVar[str] = "thread.written.v1"

    checkpoint: str
    task: str
    writes: list[ThreadWrite]
    ns: str = ""
    path: str = ""


class ThreadPruned(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Some checkpoints of a thread are gone from sight, and what was written behind them."""

    topic: ClassVar[str] = "thread.pruned.v1"

    hidden: dict[str, list[str]]
    """Ids by namespace."""
    reason: str = ""


class ThreadDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Everything of a thread up to here is gone from sight."""

    topic: ClassVar[str] = "thread.deleted.v1"


class ThreadCopied(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A thread has from here on what another one has at this position. Lies in the stream of the copy."""

    topic: ClassVar[str] = "thread.copied.v1"

    source: str


THREAD_EVENTS: tuple[type[Event], ...] = (ThreadCheckpointed, ThreadWritten, ThreadPruned, ThreadDeleted, ThreadCopied)
