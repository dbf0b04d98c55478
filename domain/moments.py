"""Times as callers give them, read in one way everywhere: in the library, the command line and the adapters."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final, TypeAlias

from mnemolog.domain.clock import to_micros
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.position import Micros

Time: TypeAlias = datetime | date | str
"""A time: a `datetime` with a time zone, a `date`, or ISO 8601 text. See `parse_time`."""

TIME_CHARACTERS_MAX: Final = 64
# Lowest number, first number beyond, and microseconds as (times, divided by): from 1973 to 2286. Between the
# ranges are numbers such as 20230508 or 20230508135600, which are dates and not Unix times.
_UNITS: Final = (
    (10**8, 10**10, 1_000_000, 1),
    (10**11, 10**13, 1_000, 1),
    (10**14, 10**16, 1, 1),
    (10**17, 10**19, 1, 1_000),
)
_EXAMPLE: Final = "expected a time such as '2026-03-16T14:00' or '2026-03-16'"


def parse_time(field: str, value: Time) -> Micros:
    """Return a time as microseconds since the Unix epoch.

    A `date`, or text that is only a date, is the start of that day in local time. Text without a zone is local time;
    where clocks are set back, the earlier of the two moments is taken. Raises `InvalidInput` for text that is not
    ISO 8601, for a `datetime` without a time zone, and outside the years 1 to 9999 in UTC.
    """
    if isinstance(value, datetime):
        return to_micros(field, value)
    if isinstance(value, date):
        return _from_local(field, datetime(value.year, value.month, value.day))
    if not isinstance(value, str):
        raise InvalidInput(field, f"{_EXAMPLE}, or a datetime with a time zone; got {type(value).__name__}")
    found = _from_text(field, value)
    return _from_local(field, found) if found.tzinfo is None else to_micros(field, found)


def unix_micros(value: float) -> Micros:
    """Return a Unix time as microseconds; its size tells seconds, milli-, micro- and nanoseconds apart.

    Raises `ValueError` for a time that is not between 1973 and 2286.
    """
    for lowest, beyond, times, divided_by in _UNITS:
        if lowest <= value < beyond:
            exact = isinstance(value, int)
            return Micros(int(value) * times // divided_by if exact else round(value * times / divided_by))
    raise ValueError("is not a Unix time in seconds, milli-, micro- or nanoseconds between 1973 and 2286")


def local_time(value: datetime) -> datetime:
    """Return a moment in the time zone of this machine; unchanged where that leaves the calendar."""
    try:
        return value.astimezone()
    except (OverflowError, ValueError, OSError):
        return value


def _from_text(field: str, text: str) -> datetime:
    stripped = text.strip()
    # Digits alone are refused: 20260316 would be a date in ISO 8601, but reads as a position of the log.
    if len(stripped) <= TIME_CHARACTERS_MAX and not stripped.isdigit():
        try:
            return datetime.fromisoformat(stripped)
        except ValueError:
            pass
    shown = text if len(text) <= TIME_CHARACTERS_MAX else text[:TIME_CHARACTERS_MAX] + "…"
    raise InvalidInput(field, f"{shown!r} is not a time; {_EXAMPLE}")


def _from_local(field: str, moment: datetime) -> Micros:
    try:  # Not `astimezone`: it is an hour off where clocks go forward.
        seconds = int(moment.replace(microsecond=0).timestamp())
        zoned = datetime.fromtimestamp(seconds, UTC).replace(microsecond=moment.microsecond)
    except (OverflowError, ValueError, OSError) as error:
        raise InvalidInput(field, f"{moment.isoformat()} is not within the years 1 to 9999 in UTC") from error
    return to_micros(field, zoned)
