"""Times and durations given on the command line."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

import typer

from mnemolog.domain.clock import Clock
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.moments import By, checked_by, parse_position_or_time, parse_relative_time
from mnemolog.infra.runtime.clock import SystemClock

_DURATION: Final = re.compile(r"(\d{1,6}) ?(m|h|d|w)")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def given_duration(given: str) -> timedelta:
    """Return a duration such as `90m`, `12h`, `30d` or `8w`. Raises `typer.BadParameter`."""
    found = _DURATION.fullmatch(given.strip().lower())
    if found is None:
        raise typer.BadParameter(f"{given!r} is not a duration; expected one such as '90m', '12h', '30d' or '8w'")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def given_time(given: str, *, clock: Clock | None = None) -> datetime:
    """Return a time, in UTC. Raises `typer.BadParameter`."""
    try:
        return parse_relative_time("time", given, clock=clock or SystemClock())
    except InvalidInput as error:
        raise typer.BadParameter(error.why) from None


def said_or_recorded(value: str) -> By:
    """Return which time is meant. Raises `typer.BadParameter` for another word."""
    try:
        return checked_by(value)
    except InvalidInput as error:
        raise typer.BadParameter(error.why) from None


def position_or_time(value: str) -> int | datetime:
    """Return a position or a time. Raises `typer.BadParameter` for what is neither."""
    try:
        return parse_position_or_time("time", value, clock=SystemClock())
    except InvalidInput as error:
        raise typer.BadParameter(error.why) from None
