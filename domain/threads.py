"""Threads of a graph: their events, their streams, and the values of their channels as they are stored.

The values are opaque here: bytes from the graph's own serialiser, with the name of their kind.

A value is stored as a delta against an earlier value of the same channel. Which one follows from the value's number:
its lowest digit that is not 0 is reduced by one. So a whole value is a few steps away, however many values there
are, and the total size stays near that of the additions.
"""

import zlib
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec

from mnemolog.domain.binary_delta import splice, spliced
from mnemolog.domain.event import Count, Event, Ordinal, named_streams
from mnemolog.domain.values import BLOB_BYTES_MAX, INTEGER_MAX, KEY_BYTES_MAX, check_count, checked_text


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


thread_stream, thread_of = named_streams("thread/")
"""The stream that holds a thread, and the thread that a stream holds."""
DIGITS: Final = 8
"""The base of those numbers. Each digit takes up to 7 steps, and stores about all that was added once more."""
PACK_BYTES_MIN: Final = 64
DICTIONARY_BYTES: Final = 32 << 10
"""How far deflate looks back at most (RFC 1951)."""
_LEVEL: Final = 1
_RAW: Final = -15


def checked_thread_id(thread_id: str) -> str:
    """Return `thread_id` if it can name a thread. Raises `InvalidInput`, `LimitExceeded`."""
    return checked_text("thread_id", thread_id, bytes_max=KEY_BYTES_MAX)


class ValueAt(NamedTuple):
    """A value of a channel, and where it is stored."""

    position: int
    """The position of the checkpoint that has it."""
    number: int
    base: int | None
    kind: str
    data: bytes


def base_number(number: int) -> int:
    """Return the number of the value that value `number`, at least 1, is stored as a delta against."""
    unit = 1
    while number % (unit * DIGITS) == 0:
        unit *= DIGITS
    return number - unit


def pack(kind: str, data: bytes, *, dictionary: bytes = b"") -> Blob:
    """Return bytes in their stored form: deflated if that is smaller. Raises `LimitExceeded`."""
    _check_size(data)
    if len(data) >= PACK_BYTES_MIN:
        known = dictionary[-DICTIONARY_BYTES:]
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW, 8, zlib.Z_DEFAULT_STRATEGY, known)
        packed = deflate.compress(data) + deflate.flush()
        if len(packed) < len(data):
            return Blob(kind=kind, data=packed, packed=True)
    return Blob(kind=kind, data=data)


def unpack(blob: Blob, *, dictionary: bytes = b"") -> bytes:
    """Return the bytes that `pack` packed. Raises `ValueError` for an invalid blob."""
    if not blob.packed:
        return blob.data
    inflate = zlib.decompressobj(_RAW, dictionary[-DICTIONARY_BYTES:])
    try:
        data = inflate.decompress(blob.data, BLOB_BYTES_MAX)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof:
        raise ValueError("cut off, or larger than any that is stored")
    return data


def stored_value(name: str, kind: str, data: bytes, before: ValueAt | None, base: ValueAt | None) -> ChannelValue:
    """Return a value in its stored form, given the one before it and the base of its delta.

    It is stored whole without a base, or if they have little in common. Raises `LimitExceeded`.
    """
    _check_size(data)
    if before is not None and base is not None and len(data) >= PACK_BYTES_MIN:
        plan, between = splice(base.data, data)
        if 2 * len(between) <= len(data):
            blob = pack(kind, between, dictionary=base.data)
            return ChannelValue(name=name, blob=blob, base=base.position, plan=plan, number=before.number + 1)
    return ChannelValue(name=name, blob=pack(kind, data))


def read_value(value: ChannelValue, base: bytes | None) -> bytes:
    """Return the bytes of a value, given those of its base. Raises `ValueError` where they do not fit."""
    if value.base is None:
        return unpack(value.blob)
    if base is None:
        raise ValueError("its base is missing")
    return spliced(base, value.plan, unpack(value.blob, dictionary=base))


def _check_size(data: bytes) -> None:
    check_count("value", len(data), limit=BLOB_BYTES_MAX, unit="bytes")
