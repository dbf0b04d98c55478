"""What callers give and events hold: positions, times, texts and numbers, with their limits and checks.

If a limit is exceeded, nothing is written. Sizes are bytes of UTF-8 (of the text) or of msgpack (of structured values).

The command line, agents and the console also take times as people write them: `yesterday 14:00`, `16 Mar 2026`. The
current time is passed in, so that tests can control it; it never determines order.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Annotated, Any, Final, Literal, NewType, Protocol, TypeAlias

import msgspec

from mnemolog.domain.display import ESCAPED
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.errors import InvalidInput, LimitExceeded, MemoryFull

INTEGER_MAX: Final = (1 << 63) - 1
"""The largest integer in SQLite: after every position, more than any count."""

TEXT_BYTES_MAX: Final = 1 << 20
METADATA_BYTES_MAX: Final = 64 << 10
LABEL_BYTES_MAX: Final = 256
KEY_BYTES_MAX: Final = 512
SCOPE_BYTES_MAX: Final = 512
QUERY_BYTES_MAX: Final = 64 << 10
RECALL_K_MAX: Final = 1_000
RECALL_FILTERS_MAX: Final = 100
"""Speakers, roles or keys of metadata that one recall may name."""
CONTEXT_TURNS_MAX: Final = 20
TURNS_PER_CALL_MAX: Final = 10_000
WAIT_S_MAX: Final = 86_400
"""The longest that a call may be told to wait, in seconds: a day."""
VALUE_BYTES_MAX: Final = 256 << 10
VALUE_KEY_BYTES_MAX: Final = 512
TASK_BYTES_MAX: Final = 16 << 10
NOTE_BYTES_MAX: Final = 64 << 10
DESCRIPTION_BYTES_MAX: Final = 4 << 10
BLOB_BYTES_MAX: Final = 64 << 20
"""The size of a channel of a thread, or of a write to one, serialised."""
CHECKPOINT_BYTES_MAX: Final = 256 << 20
"""The size of all channels of a thread that change at one checkpoint, or that one task writes."""
ITEM_BYTES_MAX: Final = 1 << 20

BOUNDS: Final = {
    **dict.fromkeys(("limit", "last", "turns"), (1, INTEGER_MAX)),
    **dict.fromkeys(("timeout_s", "wait_s"), (0, WAIT_S_MAX)),
    "k": (1, RECALL_K_MAX),
    "context_turns": (0, CONTEXT_TURNS_MAX),
    "min_relevance": (0, 1),
    "percent": (0, 100),
}
"""The least and the most of a number that is given as an argument, by name. Others are from 0 to `INTEGER_MAX`."""
LABELS: Final = {
    **dict.fromkeys(("actor", "agent", "by", "checkpoint", "maker", "name", "speaker", "speakers"), LABEL_BYTES_MAX),
    "status": LABEL_BYTES_MAX,
    **dict.fromkeys(("session", "asked_in", "id", "parent", "to"), LABEL_BYTES_MAX),
    "key": KEY_BYTES_MAX,
    "pattern": VALUE_KEY_BYTES_MAX,
    "scope": SCOPE_BYTES_MAX,
}
"""Arguments that are labels, which have one line, and how many bytes of UTF-8 they may have."""
SIZES: Final = {
    **dict.fromkeys(("reason", "title"), LABEL_BYTES_MAX),
    "key": KEY_BYTES_MAX,
    "pattern": VALUE_KEY_BYTES_MAX,
    "query": QUERY_BYTES_MAX,
    "text": TEXT_BYTES_MAX,
}
"""How many bytes of UTF-8 other texts may have that are given as arguments. Those not named: `LABEL_BYTES_MAX`."""


MARKS: Final = "\u200c\u200d\u200e\u200f\u061c"
"""Joiners and marks of direction: unseen, and part of how names are written."""


class MemoryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much the working memory of one session may hold. What would exceed it is refused."""

    values_max: int = 100_000
    values_bytes_max: int = 64 << 20
    """Bytes of all keys (UTF-8) and values (msgpack) together."""
    notes_max: int = 100_000
    notes_bytes_max: int = 64 << 20
    note_bytes_max: int = NOTE_BYTES_MAX
    checkpoints_max: int = 10_000
    """Inherited checkpoints count."""


MEMORY_LIMITS: Final = MemoryLimits()


def checked_text(field: str, value: str, *, bytes_max: int | None = None) -> str:
    """Return `value` if it is valid text for the log. `bytes_max` is as in `SIZES` if it is not given.

    Raises `InvalidInput` for a value that is not a string, is empty, or contains NUL or a lone surrogate, and
    `LimitExceeded` beyond `bytes_max` bytes of UTF-8.
    """
    if not isinstance(value, str):
        raise InvalidInput(field, f"expected text, got {type(value).__name__}")
    if not value or value.isspace():
        raise InvalidInput(field, "empty")
    if "\x00" in value:
        raise InvalidInput(field, f"contains a NUL character at {value.index(chr(0))}")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidInput(field, f"not valid Unicode: lone surrogate at character {error.start}") from error
    if size > (limit := bytes_max or SIZES.get(field, LABEL_BYTES_MAX)):
        raise LimitExceeded(field, limit=limit, actual=size)
    return value


def checked_whole(field: str, value: int, *, least: int | None = None, most: int | None = None) -> int:
    """Return `value` if it is a whole number from `least` to `most`, as in `BOUNDS` if they are not given.

    Raises `InvalidInput`.
    """
    usual = BOUNDS.get(field, (0, INTEGER_MAX))
    least, most = usual[0] if least is None else least, usual[1] if most is None else most
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        wanted = f"a whole number from {least} {'on' if most == INTEGER_MAX else f'to {most:,}'}"
        raise InvalidInput(field, f"{wanted}, got {value!r}")
    return value


def checked_number(field: str, value: float, *, least: float = 0, most: float | None = None) -> float:
    """Return `value` as a float if it is a number from `least` to `most`, as in `BOUNDS` if that is not given.

    Raises `InvalidInput`.
    """
    most = BOUNDS[field][1] if most is None else most
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:  # True of NaN too.
        raise InvalidInput(field, f"a number from {least:,} to {most:,}, got {value!r}")
    return abs(float(value))  # Minus zero is zero.


def check_count(field: str, count: int, *, limit: int, unit: str) -> None:
    """Raise `LimitExceeded` for more than `limit`."""
    if count > limit:
        raise LimitExceeded(field, limit=limit, actual=count, unit=unit)


def checked_label(field: str, value: str, *, bytes_max: int | None = None) -> str:
    """Return `value` if it is a one-line label: a name, an agent, a speaker.

    Joiners, marks of direction and all kinds of spaces are letters of names. What cannot be seen and is no part of a
    word is refused by its name.
    """
    checked_text(field, value, bytes_max=bytes_max or LABELS.get(field, LABEL_BYTES_MAX))
    if not value.isprintable():
        for found in ESCAPED.findall(value):
            if len(found) == 1:
                called = f"U+{ord(found):04X} {unicodedata.name(found, 'control character')}"
                raise InvalidInput(field, f"contains {called}, which cannot be seen in a name; leave it out")
        if not value.strip(MARKS):
            raise InvalidInput(field, "empty: nothing of it can be seen")
    return value


def without_unseen(value: str) -> str:
    """Return `value` as a label may have it: controls that are spaces become one, all else that is unseen goes."""
    return value if value.isprintable() else ESCAPED.sub(_seen, value)


def _seen(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if len(sign) > 1 else " " if sign.isspace() else ""


def checked_room(what: str, *, before: int, after: int, limit: int, unit: str) -> None:
    """Raise `MemoryFull` when `after` is over `limit`, unless it is less than `before`.

    So a limit that was lowered later does not prevent deletions.
    """
    if after > limit and after > before:
        raise MemoryFull(what, limit=limit, actual=after, unit=unit)


def checked_json(field: str, value: Any, *, bytes_max: int) -> Any:
    """Return `value` if it consists of JSON types only, without NaN or infinity. Text may contain NUL.

    Raises `InvalidInput` for other types, NaN, infinity, non-string keys, lone surrogates or integers
    beyond 64 bits, and `LimitExceeded` beyond `bytes_max` bytes of msgpack.
    """
    _check_json_types(field, value, depth=0)
    try:
        size = len(to_msgpack(value))
    except (UnicodeEncodeError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidInput(field, f"cannot be stored: {error}") from error
    check_count(field, size, limit=bytes_max, unit="bytes")
    return value


JSON_DEPTH_MAX: Final = 64
"""How deep a JSON value may be nested."""


def _check_json_types(field: str, value: Any, *, depth: int) -> None:
    if depth > JSON_DEPTH_MAX:
        raise InvalidInput(field, f"nested deeper than {JSON_DEPTH_MAX} levels")
    match value:
        case None | bool() | int() | str():
            return
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                raise InvalidInput(field, "NaN and infinity are not JSON")
        case list() | tuple():
            for item in value:
                _check_json_types(field, item, depth=depth + 1)
        case dict():
            for name, item in value.items():
                if not isinstance(name, str):
                    raise InvalidInput(field, f"keys must be text, got {type(name).__name__}")
                _check_json_types(f"{field}.{name}", item, depth=depth + 1)
        case _:
            raise InvalidInput(field, f"{type(value).__name__} is not a JSON type")


def quoted(value: object) -> str:
    """Return `value` for a message, shortened."""
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def as_invalid_input(error: Exception) -> InvalidInput:
    """Return the error for a value that the driver of a database refused before it could look for it."""
    why = "contains a lone surrogate" if isinstance(error, UnicodeEncodeError) else "is beyond 64 bits"
    return InvalidInput("argument", f"{why}, so no such session, key or position can exist")


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


Time: TypeAlias = datetime | date | str
"""A time: a `datetime` with a time zone, a `date`, or ISO 8601 text. See `parse_time`."""

When: TypeAlias = int | Time
"""A position of the log, or a time: that of the last event recorded at or before it. See `position_at`."""

By: TypeAlias = Literal["said", "recorded"]
"""Which time of a turn counts. One without a said time counts as said when it was recorded."""

TIME_CHARACTERS_MAX: Final = 64
DAY: Final = 86_400_000_000
"""Microseconds."""
# Lowest number, first number beyond, and microseconds as (times, divided by): from 1973 to 2286. Between the
# ranges are numbers such as 20230508 or 20230508135600, which are dates and not Unix times.
_UNITS: Final = (
    (10**8, 10**10, 1_000_000, 1),
    (10**11, 10**13, 1_000, 1),
    (10**14, 10**16, 1, 1),
    (10**17, 10**19, 1, 1_000),
)
_LOST_DIGITS: Final = re.compile(r"[.,]\d{6}\d*?[1-9]")
_TIME: Final = "a time such as '2026-03-16T14:00' or '2026-03-16'"


def checked_position(field: str, value: Any, *, head: int | None = None) -> Position:
    """Return `value` if it is a position in a log that ends at `head`, or in any log. Raises `InvalidInput`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(field, f"expected a position such as 1200, got {type(value).__name__}")
    if not 0 <= value <= (INTEGER_MAX if head is None else head):
        ends = "" if head is None else f", which ends at {head}"
        raise InvalidInput(field, f"position {value} is not in this log{ends}")
    return Position(value)


def checked_by(by: str) -> By:
    """Return which time counts. Raises `InvalidInput`."""
    if by not in ("said", "recorded"):
        raise InvalidInput("by", f"{by!r} is neither 'said' nor 'recorded'")
    return "said" if by == "said" else "recorded"


def parse_time(field: str, value: Time, *, or_position: bool = False) -> Micros:
    """Return a time as microseconds since the Unix epoch.

    Text without a zone is UTC, and a `date`, or text that is only a date, is the start of that day. Raises
    `InvalidInput` for text that is not ISO 8601 or finer than a microsecond, for a `datetime` without a time zone, and
    outside the years 1 to 9999 in UTC. With `or_position` the error says that a position is expected, too.
    """
    return _micros(field, value, expected=f"a position such as 1200, or {_TIME}" if or_position else _TIME)


def parse_said_at(value: Time) -> Micros:
    """Return when a turn was said, as `parse_time` does, a day or more within the calendar.

    So a day can be added or taken away, and every time zone can show it. Raises `InvalidInput`.
    """
    time = parse_time("said_at", value)
    try:
        to_datetime(Micros(time - DAY)), to_datetime(Micros(time + DAY))
    except OverflowError as error:
        why = "is at an end of the calendar; use a time from 0001-01-02 to 9999-12-30 in UTC, or none"
        raise InvalidInput("said_at", f"{to_datetime(time).isoformat()} {why}") from error
    return time


def unix_micros(value: float) -> Micros:
    """Return a Unix time as microseconds; its size tells seconds, milli-, micro- and nanoseconds apart.

    Raises `ValueError` for a time that is not between 1973 and 2286.
    """
    for lowest, beyond, times, divided_by in _UNITS:
        if lowest <= value < beyond:
            exact = isinstance(value, int)
            return Micros(int(value) * times // divided_by if exact else round(value * times / divided_by))
    raise ValueError("is not a Unix time in seconds, milli-, micro- or nanoseconds between 1973 and 2286")


def _micros(field: str, value: Time, *, expected: str) -> Micros:
    if isinstance(value, datetime):
        return to_micros(field, value)
    if isinstance(value, date):
        return to_micros(field, datetime(value.year, value.month, value.day, tzinfo=UTC))
    if not isinstance(value, str):
        raise InvalidInput(field, f"expected {expected}; got {type(value).__name__}")
    require_microseconds(field, value)
    found = _from_iso(value.strip())
    if found is None:
        raise InvalidInput(field, f"{value[:TIME_CHARACTERS_MAX]!r} is not a time; expected {expected}")
    return to_micros(field, found if found.tzinfo else found.replace(tzinfo=UTC))


def require_microseconds(field: str, text: str) -> None:
    """Raise `InvalidInput` for a time with digits after a microsecond: nothing keeps them."""
    if _LOST_DIGITS.search(text):
        why = "is finer than a microsecond, which is what is kept: round it to six digits of a second"
        raise InvalidInput(field, f"{text[:TIME_CHARACTERS_MAX]!r} {why}")


def _from_iso(text: str) -> datetime | None:
    # Digits alone are refused: 20260316 would be a date in ISO 8601, but reads as a position of the log.
    if len(text) > TIME_CHARACTERS_MAX or text.isdigit():
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


_FORMS: Final = "a time such as '2026-03-16 14:00', '16 Mar 2026', 'yesterday 14:00', 'monday' or '2 hours ago'"

_POSITION: Final = re.compile(r"-?[0-9]{1,19}")
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAY: Final = re.compile(r"(.+?)(?: (?:at )?(\d\d?):(\d\d(?::\d\d)?))?")
"""A day, with a time of day or not."""
_WRITTEN: Final = (
    re.compile(r"(?P<day>\d\d?)(?:st|nd|rd|th|\.)? (?P<month>[a-z]{3,})\.?,? (?P<year>\d{4})"),
    re.compile(r"(?P<month>[a-z]{3,})\.? (?P<day>\d\d?)(?:st|nd|rd|th)?,? (?P<year>\d{4})"),
    re.compile(r"(?P<day>\d\d?)\. ?(?P<month>\d\d?)\. ?(?P<year>\d{4})"),
    re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"),
    re.compile(r"(?P<day>1[3-9]|[23]\d)/(?P<month>\d\d?)/(?P<year>\d{4})"),
    re.compile(r"(?P<month>\d\d?)/(?P<day>\d\d?)/(?P<year>\d{4})"),
)
"""Days in words and numbers. With slashes they have one reading here: see `require_one_reading`."""
_SLASHED: Final = re.compile(r"(\d\d?)/(\d\d?)/(\d{4})(?: (?:at )?\d\d?:\d\d(?::\d\d)?)?")
_AGES: Final = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DURATION: Final = re.compile(r"(\d{1,6}) ?(m|h|d|w)")
_AGO: Final = re.compile(r"(an?|\d{1,4}) ?(minutes?|min|m|hours?|h|days?|d|weeks?|w)( ago)?")


def parse_relative_time(
    field: str, given: str, *, clock: Clock, zone: tzinfo = UTC, or_position: bool = False, to_end: bool = False
) -> datetime:
    """Return a time in UTC. Raises `InvalidInput`.

    Besides ISO 8601 it can be `now`; a day with a time of day or not: `16 Mar 2026`, `March 16, 2026`, `16.3.2026`,
    `today`, `yesterday`, `monday` or `last monday`; or an age such as `2 hours ago` or `2h`. `monday` is today on a
    Monday, else the last one; `last monday` is never today. `3/4/2026` is refused: it is read in two ways.

    - `zone`: the zone of a text without one, and of days
    - `or_position`: whether the error says that a position is expected, too
    - `to_end`: whether a day without a time of day is its last microsecond, instead of its first one
    """
    require_microseconds(field, given)
    now, words = to_datetime(clock.now()), " ".join(given.lower().split())
    require_one_reading(field, words)
    if words == "now":
        return now
    try:
        if found := _AGO.fullmatch(words):
            return now - (1 if found[1].startswith("a") else int(found[1])) * _AGES[found[2][0]]
        found = _DAY.fullmatch(words)
        day = None if found is None else _day(found[1], today=now.astimezone(zone).date())
        if found is None or day is None:
            time = _from_iso(given.strip())
        elif found[2] is None:
            midnight = datetime(day.year, day.month, day.day, tzinfo=zone) + timedelta(days=to_end)
            time = midnight.astimezone(UTC) - timedelta(microseconds=to_end)
        else:
            time = datetime.fromisoformat(f"{day}T{found[2]:0>2}:{found[3]}")
        if time is not None:
            return to_datetime(to_micros(field, time if time.tzinfo else time.replace(tzinfo=zone)))
    except (ValueError, OverflowError):
        pass
    expected = "neither a position such as 1200 nor" if or_position else "not a time; expected"
    raise InvalidInput(field, f"{given!r} is {expected} {_FORMS}")


def require_one_reading(field: str, words: str) -> None:
    """Raise `InvalidInput` for a day such as `3/4/2026`, which is one in March and one in April."""
    if found := _SLASHED.fullmatch(words):
        first, second = int(found[1]), int(found[2])
        if first != second and 1 <= first <= 12 and 1 <= second <= 12:
            readings = (
                f"{day} {_MONTHS[month - 1].title()} {found[3]}" for day, month in ((first, second), (second, first))
            )
            raise InvalidInput(field, f"{quoted(words)} is {' or '.join(readings)}: write one of these")


def parse_duration(field: str, given: str) -> timedelta:
    """Return a duration such as `90m`, `12h`, `30d` or `8w`. Raises `InvalidInput`."""
    number, unit = _duration(field, given)
    return number * _AGES[unit]


def parse_age(field: str, given: str | None) -> str | None:
    """Return a duration as an event has it: `180d` for ` 180 D`; None for none. Raises `InvalidInput`, also for 0."""
    if not given:
        return None
    number, unit = _duration(field, given)
    if not number:
        raise InvalidInput(field, "an age is a minute at least; leave it out for none")
    return f"{number}{unit}"


def _duration(field: str, given: object) -> tuple[int, str]:
    found = _DURATION.fullmatch(given.strip().lower()) if isinstance(given, str) else None
    if found is None:
        why = "is not a duration; expected one such as '90m', '12h', '30d' or '8w'"
        raise InvalidInput(field, f"{quoted(given)} {why}")
    return int(found[1]), found[2]


def micros_of(age: str | None) -> int:
    """Return a duration in microseconds; 0 for none."""
    return parse_duration("age", age) // timedelta(microseconds=1) if age else 0


def parse_position_or_time(
    field: str, given: str, *, clock: Clock, zone: tzinfo = UTC, to_end: bool = False
) -> int | datetime:
    """Return a position, or a time as `parse_relative_time` does. Raises `InvalidInput` for what is neither."""
    if _POSITION.fullmatch(given):
        return int(given)
    return parse_relative_time(field, given, clock=clock, zone=zone, or_position=True, to_end=to_end)


def _day(words: str, *, today: date) -> date | None:
    """Return a day that words name; None for what is no day. Raises `ValueError` for one that no calendar has."""
    if words in ("today", "yesterday"):
        return today - timedelta(days=words == "yesterday")
    if (name := words.removeprefix("last ")) in _WEEKDAYS:
        days = (today.weekday() - _WEEKDAYS.index(name)) % 7
        return today - timedelta(days=7 if name != words and days == 0 else days)
    for form in _WRITTEN:
        if found := form.fullmatch(words):
            name = found["month"]
            named = (number for number, month in enumerate(_MONTHS, 1) if month.startswith(name))
            return date(int(found["year"]), int(name) if name.isdigit() else next(named, 0), int(found["day"]))
    return None
