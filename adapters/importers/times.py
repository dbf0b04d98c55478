"""Parse times in common formats. Ambiguous times are refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final

from mnemolog.domain.clock import to_micros
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.domain.moments import unix_micros

TIME_CHARACTERS_MAX: Final = 100
_UNIX: Final = re.compile(r"\d{9,10}(\.\d+)?|\d{13}|\d{16}|\d{19}")
_WEEKDAY: Final = re.compile(r"\(\s*(mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?\s*\)", re.IGNORECASE)

# Parsed with two defaults that differ in year, month and day: a difference shows that the text leaves one out.
_DEFAULTS: Final = (datetime(2001, 1, 1), datetime(2004, 2, 2))


def parse_time(field: str, value: object) -> int | None:
    """Return microseconds since the Unix epoch, None for nothing. A time without a zone is UTC.

    Reads ISO 8601, Unix time in seconds, milli-, micro- or nanoseconds (distinguished by size, 1973 to 2286), and
    written forms such as `1:56 pm on 8 May, 2023`. Raises `InvalidInput` for anything else: a date without year, month
    or day, a year of two digits, `5/8/2023` (day and month are ambiguous), a zone abbreviation such as `EST`.
    """
    try:
        if isinstance(value, str):
            return _from_text(value) if value else None
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return unix_micros(value)
        raise ValueError("is not a time")
    except ValueError as error:
        raise InvalidInput(field, f"{quoted(value)} {error}") from error


@lru_cache(maxsize=4_096)
def _from_text(text: str) -> int:
    if len(text) > TIME_CHARACTERS_MAX:
        raise ValueError("is too long for a time")
    if _UNIX.fullmatch(text):
        return unix_micros(float(text) if "." in text else int(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = _from_written(_WEEKDAY.sub(" ", text))
    if not 1 < moment.year < 9999:
        raise ValueError("is out of range")
    return to_micros("time", moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _from_written(text: str) -> datetime:
    moment, other = (_guess(text, default=default) for default in _DEFAULTS)
    if moment != other or f"{moment.year:04d}" not in text:
        raise ValueError("lacks a year (in four digits), month or day")
    year_first = text.lstrip().startswith(f"{moment.year:04d}")
    if not year_first and _guess(text, default=_DEFAULTS[0], dayfirst=True) != moment:
        raise ValueError("is ambiguous: day or month first; write it like 2023-05-08")
    return moment


def _guess(text: str, *, default: datetime, dayfirst: bool = False) -> datetime:
    from dateutil import parser  # Not needed for ISO 8601, and slow to load.

    try:
        return parser.parse(text, default=default, dayfirst=dayfirst, tzinfos=_zone)
    except _UnknownZone:
        raise
    except (ValueError, OverflowError, ArithmeticError, TypeError, AttributeError, IndexError) as error:
        # dateutil lets some internal errors through; in every case this is not a time.
        raise ValueError("cannot be parsed as a time; write it in ISO 8601, like 2023-05-08T13:56:00Z") from error


class _UnknownZone(ValueError):
    """A zone abbreviation: `EST` and `IST` mean several zones each."""


def _zone(name: str | None, offset_s: int | None) -> tzinfo | None:
    if offset_s is not None:
        return timezone(timedelta(seconds=offset_s))
    if name is None:
        return None
    raise _UnknownZone(f"has the ambiguous zone {name!r}; write an offset like +02:00")
