"""Times given on the command line: ISO 8601, and relative ones such as `yesterday 14:00` or `2 hours ago`."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final

import typer

from mnemolog.domain.clock import Clock, local_time, to_datetime
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.moments import By, checked_by, parse_time
from mnemolog.infra.runtime.clock import SystemClock

_FORMS: Final = "a time such as '2026-03-16 14:00', 'yesterday 14:00', 'monday' or '2 hours ago'"

_POSITION: Final = re.compile(r"-?[0-9]{1,19}")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY: Final = re.compile(
    rf"(today|yesterday|(?:last )?(?:{'|'.join(_WEEKDAYS)}))(?: (?:at )?(\d\d?):(\d\d(?::\d\d)?))?"
)
_AGO: Final = re.compile(r"(an?|\d{1,4}) ?(minutes?|min|m|hours?|h|days?|d|weeks?|w)( ago)?")


_DURATION: Final = re.compile(r"(\d{1,6}) ?(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def given_duration(given: str) -> timedelta:
    """Return a duration such as `90m`, `12h`, `30d` or `8w`. Raises `typer.BadParameter`."""
    found = _DURATION.fullmatch(given.strip().lower())
    if found is None:
        raise typer.BadParameter(f"{given!r} is not a duration; expected one such as '90m', '12h', '30d' or '8w'")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def given_time(given: str, *, clock: Clock | None = None) -> datetime:
    """Return a time given on the command line, in UTC.

    Besides ISO 8601 it can be `now`; `today`, `yesterday`, `monday` or `last monday`, with a time of day or not; or an
    age such as `2 hours ago` or `2h`. All are local time. `monday` is today on a Monday, else the last one; `last
    monday` is never today. Days and weeks ago keep the time of day, hours and minutes are exact. Raises
    `typer.BadParameter`.
    """
    now = to_datetime((clock or SystemClock()).now())
    text, words = given, " ".join(given.lower().split())
    if words == "now":
        return now
    try:
        if found := _DAY.fullmatch(words):
            day = _day(found[1], today=local_time(now).date())
            text = str(day) if found[2] is None else f"{day}T{found[2]:0>2}:{found[3]}"
        elif found := _AGO.fullmatch(words):
            return _ago(1 if found[1].startswith("a") else int(found[1]), found[2][0], now=now)
        return to_datetime(parse_time("time", text))
    except (InvalidInput, OverflowError):
        raise typer.BadParameter(f"{given!r} is not a time; expected {_FORMS}") from None


def said_or_recorded(value: str) -> By:
    """Return which time is meant. Raises `typer.BadParameter` for another word."""
    try:
        return checked_by(value)
    except InvalidInput as error:
        raise typer.BadParameter(error.why) from None


def position_or_time(value: str) -> int | datetime:
    """Return a position or a time given on the command line. Raises `typer.BadParameter` for what is neither."""
    if _POSITION.fullmatch(value):
        return int(value)
    try:
        return given_time(value)
    except typer.BadParameter:
        raise typer.BadParameter(f"{value!r} is neither a position such as 1200 nor {_FORMS}") from None


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
