"""The base of every event: a frozen struct, stored under a topic that we choose.

Decoding checks the types of the fields below, so an event that was read has no number or time that cannot be used.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import CALENDAR_FIRST, CALENDAR_LAST

Moment = Annotated[int, msgspec.Meta(ge=CALENDAR_FIRST, le=CALENDAR_LAST)]
"""Microseconds since the Unix epoch, within the years 1 to 9999."""
Count = Annotated[int, msgspec.Meta(ge=0, le=INTEGER_MAX)]
"""A number that may be 0; also a position before which there may be nothing."""
Ordinal = Annotated[int, msgspec.Meta(ge=1, le=INTEGER_MAX)]
"""A number that counts from 1, such as the position of an event or the version of a stream."""
Age = Annotated[str, msgspec.Meta(pattern=r"^\d{1,6}[mhdw]$")]
"""A duration such as `90m`, `12h`, `30d` or `8w`."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact. Appended once, never changed.

    It cannot be part of a reference cycle, so the garbage collector does not track it (`gc=False`): a read of the log
    creates very many of them.
    """

    topic: ClassVar[str]

    actor: str = ""
    """Who appended it (`mnemolog.acting_as`); empty if none was given."""
    redacted: dict[str, Count] | None = None
    """How many secrets were replaced in it before it was appended, by kind (`mnemolog.domain.redaction`)."""


class RequestedEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A write to the memory of a session. It is encrypted as a whole, so it may hold parts of its content."""

    request: str = ""
    """Digest of the request over HTTP that its key is of: another request with that key is refused. Empty for none."""
