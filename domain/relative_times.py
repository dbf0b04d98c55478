"""Times as people give them to the command line and to agents: ISO 8601, `yesterday 14:00`, `2 hours ago`."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

from mnemolog.domain.clock import Clock, local_time, to_datetime
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.moments import parse_time
from mnemolog.domain.position import Micros

_FORMS: Final = "a time such as '2026-03-16 14:00', 'yesterday 14:00', 'monday' or '2 hours ago'"

_POSITION: Final = re.compile(r"-?[0-9]{1,19}")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY: Final = re.compile(
    rf"(today|yesterday|(?:last )?(?:{'|'.join(_WEEKDAYS)}))(?: (?:at )?(\d\d?):(\d\d(?::\d\d)?))?"
)
_AGO: Final = re.compile(r"(an?|\d{1,4}) ?(minutes?|min|m|hours?|h|days?|d|weeks?|w)( ago)?")


def parse_relative_time(field: str, given: str, *, clock: Clock) -> datetime:
    """Return a time in UTC. Raises `InvalidInput`.

    Besides ISO 8601 it can be `now`; `today`, `yesterday`, `monday` or `last monday`, with a time of day or not; or an
    age such as `2 hours ago` or `2h`. All are local time. `monday` is today on a Monday, else the last one; `last
    monday` is never today. Days and weeks ago keep the time of day, hours and minutes are exact.
    """
    now = to_datetime(clock.now())
    text, words = given, " ".join(given.lower().split())
    if words == "now":
        return now
    try:
        if found := _DAY.fullmatch(words):
            day = _day(found[1], today=local_time(now).date())
            text = str(day) if found[2] is None else f"{day}T{found[2]:0>2}:{found[3]}"
        elif found := _AGO.fullmatch(words):
            return _ago(1 if found[1].startswith("a") else int(found[1]), found[2][0], now=now)
        return to_datetime(parse_time(field, text))
    except (InvalidInput, OverflowError):
        raise InvalidInput(field, f"{given!r} is not a time; expected {_FORMS}") from None


def end_of_day(field: str, given: str, *, clock: Clock) -> datetime | None:
    """Return the last moment of a day such as `2026-03-16`, `yesterday` or `last monday`; None for what is no day."""
    words = " ".join(given.lower().split())
    try:
        if (found := _DAY.fullmatch(words)) and found[2] is None:
            day = _day(found[1], today=local_time(to_datetime(clock.now())).date())
        else:
            day = date.fromisoformat("" if words.isdigit() else words)
        return to_datetime(Micros(parse_time(field, day + timedelta(days=1)) - 1))
    except (ValueError, OverflowError):
        return None


def parse_position_or_time(field: str, given: str, *, clock: Clock) -> int | datetime:
    """Return a position or a time. Raises `InvalidInput` for what is neither."""
    if _POSITION.fullmatch(given):
        return int(given)
    try:
        return parse_relative_time(field, given, clock=clock)
    except InvalidInput:
        raise InvalidInput(field, f"{given!r} is neither a position such as 1200 nor {_FORMS}") from None


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
