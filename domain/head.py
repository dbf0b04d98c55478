"""A head that was noted down: the end of a log, as somebody outside the log remembers it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.domain.position import ORIGIN, Position

_SHORT: Final = re.compile(r"(\d{1,19}):([0-9a-fA-F]{64})")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")


class NotedHead(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a file of heads."""

    position: Position
    digest: str
    """The log's digest at `position`, 64 hexadecimal digits."""
    log_id: str | None = None
    """Of which log it is; None where nobody wrote that down."""
    noted_at: str | None = None
    """When, in ISO 8601. For people: nothing is decided by it."""


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(NotedHead)


def head_line(head: NotedHead) -> bytes:
    """Return a head as a line of JSON."""
    return _ENCODER.encode(head) + b"\n"


def parse_head(field: str, value: str) -> NotedHead:
    """Return the head that was written as `POSITION:DIGEST`, or as a line of JSON. Raises `InvalidInput`."""
    text = value.strip()
    if short := _SHORT.fullmatch(text):
        head = NotedHead(position=Position(int(short[1])), digest=short[2])
    else:
        try:
            head = _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise InvalidInput(field, f"{value[:100]!r} is no POSITION:DIGEST as `mnemolog head` prints it") from error
    if not ORIGIN <= head.position <= INTEGER_MAX or _DIGEST.fullmatch(head.digest) is None:
        raise InvalidInput(field, f"{value[:100]!r} is no position with 64 hexadecimal digits")
    return head
