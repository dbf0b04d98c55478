"""The time zone of the reader of a page: times are shown in it, and text without a zone is of it.

The script of the console puts its name into a cookie. Without one, pages are in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from mnemolog.domain.display import dated

COOKIE: Final = "mnemolog_zone"
_ZONE: Final[ContextVar[tzinfo]] = ContextVar("mnemolog_zone", default=UTC)


def use_zone_of(cookies: Mapping[str, str]) -> None:
    """Answer this request, which has a context of its own, in the zone that its cookies name."""
    try:
        zone: tzinfo = ZoneInfo(cookies[COOKIE])
    except (KeyError, ZoneInfoNotFoundError, ValueError, OSError):
        zone = UTC
    _ZONE.set(zone)


def zone() -> tzinfo:
    """Return the zone of the request that is answered."""
    return _ZONE.get()


def shown(time: datetime, *, exact: bool = False) -> tuple[str, str]:
    """Return a time as it is shown, and in UTC to stand beside it; that is empty where both are the same.

    Both are to the second, or `exact` with the parts of one; then the last microsecond of a day is its end.
    """
    utc = f"{time.replace(tzinfo=None).isoformat(' ')}Z" if exact else dated(time, seconds=True)
    here, day = _here(time), _day_ended_by(time) if exact else ""
    if not here.utcoffset():
        return f"the end of {day}" if day else utc, ""
    if day:
        return f"the end of {day}", utc
    local = here.replace(tzinfo=None).isoformat(" ", timespec="auto" if exact else "seconds")
    same_day = local[:10] == utc[:10]
    return local, utc[11:] if same_day else utc


def as_typed(text: str) -> str:
    """Return a moment of a URL as a box has it: a time in UTC is in the reader's zone, anything else is as it is."""
    try:
        time = datetime.fromisoformat(text if text.endswith("Z") else "")
    except ValueError:
        return text
    here = _here(time)
    if here.fold:  # The second of two hours with the same names.
        return text
    timespec = "auto" if here.second or here.microsecond else "minutes"
    return _day_ended_by(time) or here.replace(tzinfo=None).isoformat(" ", timespec=timespec)


def _day_ended_by(time: datetime) -> str:
    """Return the day that a time is the last microsecond of; empty for any other time."""
    here = _here(time)
    return f"{here:%Y-%m-%d}" if here.time() == datetime.max.time() else ""


def _here(time: datetime) -> datetime:
    try:
        return time.astimezone(_ZONE.get())
    except OverflowError:  # At an end of the calendar, which other zones reach earlier or later.
        return time
