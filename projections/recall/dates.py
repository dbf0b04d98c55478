"""Parse the dates in a query: a day, month or year, named or relative to the present."""

import calendar
import re
from datetime import MAXYEAR, MINYEAR, UTC, datetime, timedelta
from typing import Final

from dateutil.relativedelta import relativedelta

from mnemolog.domain.values import DAY, Micros, to_datetime, to_micros

_MONTHS: Final = {name.lower(): number for number, name in enumerate(calendar.month_name) if name}
_SHORT: Final = {name.lower(): number for number, name in enumerate(calendar.month_abbr) if name}
_ALSO_WORDS: Final = frozenset({"may", "march", "mar"})
"""Words that are months only if they are capitalised and not at the beginning."""
_NUMBER: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
_ISO: Final = re.compile(r"\b((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?\b")
_ONE_TO_TEN: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_COUNTS: Final = {"a": 1, "an": 1} | {word: number for number, word in enumerate(_ONE_TO_TEN, 1)}
_PERIODS: Final = {
    "day": relativedelta(days=1),
    "week": relativedelta(weeks=1),
    "month": relativedelta(months=1),
    "year": relativedelta(years=1),
}
_UNIT: Final = r"(day|week|month|year)"
_WEEKDAY: Final = r"(monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_WEEKDAYS: Final = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_RELATIVE: Final = re.compile(
    rf"\b(?:(today|yesterday)|(\d{{1,3}}|{'|'.join(_COUNTS)}) {_UNIT}s? ago"
    rf"|(last|this) {_UNIT}|(last|this|on) {_WEEKDAY})\b"
)


Dates = tuple[tuple[Micros, Micros], ...]
"""Days, months or years: spans of time `[from, to)`."""


def dates_of(query: str, *, now: Micros, first: Micros, last: Micros) -> Dates:
    """Return the spans of time that a query asks about; none if it names no date.

    Relative dates are relative to `now`. A month without a year means that month of every year from `first` to `last`.
    Understands English; in other languages only numbers.
    """
    if (named := _named(query)) is None:
        return _relative(query, now)
    year, month, day = named
    years = [year] if year else range(max(MINYEAR, _year_of(first) - 1), min(MAXYEAR, _year_of(last) + 1) + 1)
    return tuple(span for each in years if (span := _span(each, month, day)) is not None)


def _named(query: str) -> tuple[int | None, int | None, int | None] | None:
    """Return the named year, month and day; None if neither a year nor a month is named."""
    if (iso := _ISO.search(query)) is not None and 1 <= int(iso[2]) <= 12:
        return int(iso[1]), int(iso[2]), int(iso[3]) if iso[3] else None
    said = re.findall(r"\w+", query)
    words = [word.lower() for word in said]
    year = month = day = None
    for at, word in enumerate(words):
        if _YEAR.fullmatch(word):
            year = int(word)
        number = _MONTHS.get(word) or _SHORT.get(word)
        if number is None or (word in _ALSO_WORDS and (at == 0 or not said[at][0].isupper())):
            continue
        month = number
        near = [at - 1, at + 1, *([at - 2] if at >= 2 and words[at - 1] == "of" else [])]
        found = [int(match[1]) for n in near if 0 <= n < len(words) and (match := _NUMBER.fullmatch(words[n]))]
        day = next((number for number in found if 1 <= number <= 31), day)
    return None if year is None and month is None else (year, month, day)


def _span(year: int, month: int | None, day: int | None) -> tuple[Micros, Micros] | None:
    try:
        start = datetime(year, month or 1, day or 1, tzinfo=UTC)
    except ValueError:  # No such day in that year.
        return None
    if month is None:
        return _days(start, 365 + calendar.isleap(year))
    return _days(start, calendar.monthrange(year, month)[1] if day is None else 1)


def _days(start: datetime, count: int) -> tuple[Micros, Micros]:
    first = to_micros("start", start)
    return first, Micros(first + count * DAY)  # Not a `datetime`: the calendar ends with the year 9999.


def _relative(query: str, now: Micros) -> Dates:
    found = _RELATIVE.search(query.lower())
    read = None if found is None else _read(found, to_datetime(now))
    if read is None:
        return ()
    at, period = read
    if period == "week":
        start = at.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=at.weekday())
        return (_days(start, 7),)
    span = _span(at.year, None if period == "year" else at.month, at.day if period == "day" else None)
    return () if span is None else (span,)


def _read(found: re.Match[str], present: datetime) -> tuple[datetime, str] | None:
    """Return a moment and the period around it: day, week, month or year. None if the date does not exist."""
    day, count, counted, which, unit, side, weekday = found.groups()
    try:
        if day:
            return present - timedelta(days=day == "yesterday"), "day"
        if count:
            return present - _PERIODS[counted] * (_COUNTS.get(count) or int(count)), counted
        if unit:
            return None if unit == "day" else (present - _PERIODS[unit] * (which == "last"), unit)
        number = _WEEKDAYS[weekday]  # "this" includes today, "last" and "on" do not.
        if side == "this":
            return present + timedelta(days=(number - present.weekday()) % 7), "day"
        return present - timedelta(days=(present.weekday() - number) % 7 or 7), "day"
    except (ValueError, OverflowError):  # Before the year 1.
        return None


def _year_of(moment: Micros) -> int:
    return to_datetime(moment).year
