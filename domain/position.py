"""Where an event stands in the log, and when it was recorded: types of counters and times that cannot be confused.

Time is passed in, so that tests can control it; it never determines order.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, NewType, Protocol, TypeAlias

import msgspec

from mnemolog.domain.errors import InvalidInput

Position = NewType("Position", int)
"""Position in the whole log, also called the log offset. Starts at 1, rises, is never reused, may have gaps."""

Version = NewType("Version", int)
"""Position in one stream. Starts at 1, without gaps."""

Micros = NewType("Micros", int)
"""Microseconds since 1970-01-01T00:00:00Z."""

ORIGIN: Final = Position(0)
"""Before the first event."""

NO_STREAM: Final = Version(0)
"""The version of a stream that nothing was appended to."""

UtcTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time in an answer, in UTC."""


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> Micros:
        """Microseconds since the Unix epoch, UTC."""


def to_micros(field: str, value: datetime) -> Micros:
    """Return a moment in time as microseconds.

    Raises `InvalidInput` for a time without a time zone, or outside the years 1 to 9999 in UTC: it could be stored, but
    never be read again.
    """
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"expected a datetime, got {type(value).__name__}")
    if value.tzinfo is None:
        raise InvalidInput(field, "a time without a time zone is ambiguous; add tzinfo, e.g. UTC")
    try:
        micros = Micros((value - _EPOCH) // _MICROSECOND)
    except (OverflowError, ValueError, TypeError) as error:  # Other time zones fail at the ends of the calendar.
        raise InvalidInput(field, f"{value.replace(tzinfo=None)} is not within the years 1 to 9999 in UTC") from error
    if not is_in_calendar(micros):
        raise InvalidInput(field, f"{value.isoformat()} is not within the years 1 to 9999 in UTC")
    return micros


def is_in_calendar(micros: int) -> bool:
    """Whether a moment lies within the years 1 to 9999 in UTC, so that `to_datetime` can return it."""
    return CALENDAR_FIRST <= micros <= CALENDAR_LAST


def within_calendar(micros: int) -> Micros:
    """Return a moment; the first or the last one of the calendar for what lies outside of it."""
    return Micros(min(max(micros, CALENDAR_FIRST), CALENDAR_LAST))


def to_datetime(value: Micros) -> datetime:
    """Return microseconds as a datetime in UTC."""
    return _EPOCH + value * _MICROSECOND


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = datetime(1970, 1, 1, microsecond=1, tzinfo=UTC) - _EPOCH
CALENDAR_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
CALENDAR_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
