"""The head of a log: its last position and the digest there."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from mnemolog.domain.encoding import to_json
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result

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
