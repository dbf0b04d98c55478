"""Named limits and their checks. If a limit is exceeded, nothing is written.

Sizes are bytes of UTF-8 (of the text) or of msgpack (of structured values).
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

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
