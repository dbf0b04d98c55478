"""Canonical JSON: equal values have equal bytes, and different values different bytes.

Numbers are compared by value: `1` and `1.0` are equal, because JSON has one kind of number. Types stay apart: `1`,
`"1"` and `true` are three values. The order of an object's keys does not matter.
"""

from __future__ import annotations

from typing import Any, Final

from mnemolog.domain.encoding import msgpack_encoder

_ENCODER: Final = msgpack_encoder("sorted")
_MSGPACK_MIN: Final = -(1 << 63)
_MSGPACK_MAX: Final = (1 << 64) - 1
_NORMAL: Final = frozenset((str, int, bool, type(None)))
"""Types whose values stay as they are."""


def canonical(value: Any) -> bytes:
    """Return the bytes of a JSON value that `checked_json` has accepted."""
    return _ENCODER.encode(_normal(value))


def _normal(value: Any) -> Any:
    match value:
        case float() if value.is_integer() and _MSGPACK_MIN <= value <= _MSGPACK_MAX:
            return min(int(value), _MSGPACK_MAX)
        case list() | tuple():
            return [item if type(item) in _NORMAL else _normal(item) for item in value]
        case dict():
            return {key: item if type(item) in _NORMAL else _normal(item) for key, item in value.items()}
        case _:
            return value
