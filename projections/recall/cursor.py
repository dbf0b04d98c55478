"""Where the next page of a recall begins: opaque text that holds for one question, one log and one order."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.position import Position

FORMAT: Final = 1
_CHECK: Final = 4

_FIELD: Final = "after"
_HINT: Final = "give `next` of the page before, and ask the same question"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where a page continues."""

    format: int = FORMAT
    log_id: str
    question: bytes
    """The question's digest."""
    head: Position
    """The offset that the first page was answered as of."""
    as_of: bool
    """Whether that was asked for."""
    passed_over: int
    candidates: int
    order: bytes
    """The digest of the hits that were returned, in their order."""
    vectors_cover: Position | None
    model: str | None


def encode(cursor: Cursor) -> str:
    """Return a cursor as text."""
    made = msgspec.msgpack.encode(cursor)
    return urlsafe_b64encode(made + sha256(made).digest()[:_CHECK]).decode().rstrip("=")


def decode(text: str) -> Cursor:
    """Return the cursor that `encode` made a text of. Raises `InvalidInput` for any other text."""
    if not isinstance(text, str):
        raise errors.InvalidInput(_FIELD, f"expected text, got {type(text).__name__}; {_HINT}")
    try:
        stored = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        made, check = stored[:-_CHECK], stored[-_CHECK:]
        cursor = msgspec.msgpack.decode(made, type=Cursor)
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of a recall; {_HINT}") from error
    if sha256(made).digest()[:_CHECK] != check or cursor.format != FORMAT:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of this mnemolog, or was changed; {_HINT}")
    return cursor


def refused(why: str) -> errors.InvalidInput:
    """Return the error for a cursor that does not fit."""
    return errors.InvalidInput(_FIELD, f"{why}; {_HINT}")
