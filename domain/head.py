"""The head of a log: its last position and the digest there. And the positions that callers name by a time."""

import re
from typing import Annotated, Final, NamedTuple, Protocol

import msgspec

from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.result import Result
from mnemolog.domain.values import INTEGER_MAX, Micros, Position, When, checked_position, parse_time

_SHORT: Final = re.compile(r"(\d{1,19}):([0-9a-fA-F]{64})")


class Head(Result, frozen=True, kw_only=True, omit_defaults=True):
    """A position with the log's digest there. Kept elsewhere, it proves the history up to it."""

    position: Annotated[Position, msgspec.Meta(ge=0, le=INTEGER_MAX)]
    """0 for an empty log."""
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")]
    """The log's digest at `position`, 64 hexadecimal digits."""
    log_id: str | None = None
    """The id of the log, in a file of heads; None where it was not noted."""
    noted_at: Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})] | None = None
    """When the head was noted, in ISO 8601. For people: no decision depends on it."""

    def __str__(self) -> str:
        return f"{self.position}:{self.digest}"

    @property
    def digest_bytes(self) -> bytes:
        """The digest as stored, 32 bytes."""
        return bytes.fromhex(self.digest)


_DECODER: Final = msgspec.json.Decoder(Head)


def head_line(head: Head) -> bytes:
    """Return a head as a line of JSON."""
    return to_json(head) + b"\n"


def parse_head(field: str, value: str) -> Head:
    """Return the head written as `POSITION:DIGEST` or as a line of JSON. Raises `InvalidInput`, naming `field`."""
    text = value.strip()
    if short := _SHORT.fullmatch(text):
        head = Head(position=Position(int(short[1])), digest=short[2])
    else:
        try:
            head = _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidInput(field, f"{value[:100]!r} is not POSITION:DIGEST, as a head is printed") from error
    if head.position > INTEGER_MAX:
        raise InvalidInput(field, f"{value[:100]!r} names a position beyond {INTEGER_MAX}")
    return head


class RecordedTimes(Protocol):
    """A log in which times can be looked up."""

    def head(self) -> Head:
        """Return the last position."""

    def position_at(self, time: Micros) -> Position:
        """Return the position of the last event recorded at or before a time, 0 if there is none."""

    def recorded_at(self, position: Position) -> Micros:
        """Return when the event at a position, or the last one before it, was recorded."""


class Known(NamedTuple):
    """A position and a time: what was known then about then. All parts of one answer have the same."""

    upto: Position
    valid_at: Micros


def position_at(field: str, when: When, log: RecordedTimes) -> Position:
    """Return the position that a caller means, given as a number or as a time.

    Raises `InvalidInput` for a position that is not in the log, and for what is neither a position nor a time.
    """
    if isinstance(when, int):
        return checked_position(field, when, head=log.head().position)
    return log.position_at(parse_time(field, when, or_position=True))


def known_at(field: str, when: When, log: RecordedTimes) -> Known:
    """Return the position that a caller means, as `position_at`, and the time: as given, or that of its event."""
    position = position_at(field, when, log)
    return Known(position, log.recorded_at(position) if isinstance(when, int) else parse_time(field, when))


def page_bounds(after: When, before: When | None, log: RecordedTimes) -> tuple[Position, Position | None]:
    """Return the positions between which a page lies, both exclusive; a position may be outside the log.

    The events between two times are those recorded after `after` and before `before`.
    """
    return _bound("after", after, log), None if before is None else _bound("before", before, log, is_end=True)


def _bound(field: str, when: When, log: RecordedTimes, *, is_end: bool = False) -> Position:
    if isinstance(when, bool):
        return checked_position(field, when)
    if isinstance(when, int):
        return Position(when)
    time = parse_time(field, when, or_position=True)
    return Position(log.position_at(Micros(time - 1)) + 1) if is_end else log.position_at(time)


def positions_between(
    since: Micros | None, until: Micros | None, log: RecordedTimes
) -> tuple[Position | None, Position | None]:
    """Return the positions `(after, upto]` of the events recorded at `since` or later and before `until`."""
    after, upto = (None if time is None else log.position_at(Micros(time - 1)) for time in (since, until))
    return after, upto
