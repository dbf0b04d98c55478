"""Times given on the command line: ISO 8601, and relative ones such as `yesterday 14:00` or `2 hours ago`."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

from mnemolog.domain.clock import Clock, to_datetime
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.moments import local_time, parse_time
from mnemolog.infra.runtime.clock import SystemClock

TIME_FORMS: Final = "such as '2026-03-16 14:00', 'yesterday 14:00', 'monday' or '2 hours ago'"

_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY: Final = re.compile(
    rf"(today|yesterday|(?:last )?(?:{'|'.join(_WEEKDAYS)}))(?: (?:at )?(\d\d?):(\d\d(?::\d\d)?))?"
)
_AGO: Final = re.compile(r"(an?|\d{1,4}) ?(minutes?|min|m|hours?|h|days?|d|weeks?|w)( ago)?")


def given_time(field: str, text: str | None, *, clock: Clock | None = None) -> datetime | None:
    """Return a time given on the command line, in UTC; None for None.

    Besides ISO 8601 it can be `now`; `today`, `yesterday`, `monday` or `last monday`, with a time of day or not; or an
    age such as `2 hours ago` or `2h`. All are local time. `monday` is today on a Monday, else the last one; `last
    monday` is never today. Days and weeks ago keep the time of day, hours and minutes are exact. Raises `InvalidInput`.
    """
    if text is None:
        return None
    now = to_datetime((clock or SystemClock()).now())
    words = " ".join(text.lower().split())
    if words == "now":
        return now
    if found := _DAY.fullmatch(words):
        day = _day(found[1], today=local_time(now).date())
        given = day if found[2] is None else f"{day}T{found[2]:0>2}:{found[3]}"
    elif found := _AGO.fullmatch(words):
        return _ago(1 if found[1].startswith("a") else int(found[1]), found[2][0], now=now)
    else:
        given = text
    try:
        return to_datetime(parse_time(field, given))
    except InvalidInput:
        raise InvalidInput(field, f"{text!r} is not a time; expected one {TIME_FORMS}") from None


def _day(name: str, *, today: date) -> date:
    if name in ("today", "yesterday"):
        return today - timedelta(days=name == "yesterday")
    days = (today.weekday() - _WEEKDAYS.index(name.removeprefix("last "))) % 7
    return today - timedelta(days=7 if name.startswith("last ") and days == 0 else days)


def _ago(number: int, unit: str, *, now: datetime) -> datetime:
    if unit in "mh":
        return now - number * timedelta(minutes=1 if unit == "m" else 60)
    then = local_time(now).replace(tzinfo=None) - number * timedelta(days=1 if unit == "d" else 7)
    return to_datetime(parse_time("time", then.isoformat()))
