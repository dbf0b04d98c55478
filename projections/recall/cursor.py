"""The cursor for the next page of a recall: opaque text, valid for one question, one log and one ranking."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_msgpack
from mnemolog.domain.position import Micros, Position

FORMAT: Final = 2
_CHECK: Final = 4

_FIELD: Final = "after"
_HINT: Final = "give `next` of the page before, and ask the same question"


class Cursor(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The end of a page, where the next one continues."""

    format: int = FORMAT
    log_id: str
    question: bytes
    """The digest of the question."""
    head: Position
    """The position that the first page refers to."""
    moment: Micros
    """When it was judged what holds."""
    as_of: bool
    """Whether the caller gave that position."""
    passed_over: int
    candidates: int
    order: bytes
    """The digest of the hits returned so far, in order."""
    vectors_cover: Position | None
    model: str | None
    ranking: str
    """The name of the ranking that ordered them."""


# Made at import: `checked_json` has the reason.
_DECODER: Final = msgspec.msgpack.Decoder(Cursor)


def encode(cursor: Cursor) -> str:
    """Return a cursor as text."""
    made = to_msgpack(cursor)
    return urlsafe_b64encode(made + sha256(made).digest()[:_CHECK]).decode().rstrip("=")


def decode(text: str) -> Cursor:
    """Return the cursor that `encode` encoded. Raises `InvalidInput` for any other text."""
    if not isinstance(text, str):
        raise errors.InvalidInput(_FIELD, f"expected text, got {type(text).__name__}; {_HINT}")
    try:
        stored = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        made, check = stored[:-_CHECK], stored[-_CHECK:]
        cursor = _DECODER.decode(made)
    except (ValueError, msgspec.MsgspecError) as error:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of a recall; {_HINT}") from error
    if sha256(made).digest()[:_CHECK] != check or cursor.format != FORMAT:
        raise errors.InvalidInput(_FIELD, f"{text[:40]!r} is no cursor of this mnemolog, or was changed; {_HINT}")
    return cursor


def refused(why: str) -> errors.InvalidInput:
    """Return the error for a cursor that does not match."""
    return errors.InvalidInput(_FIELD, f"{why}; {_HINT}")
