"""Encode values as msgpack or JSON, so that a shortage of memory is an error and not the end of the process.

`encode` of msgspec dereferences a null pointer when its buffer cannot grow (docs/adr/0085-encode-into-a-buffer.md);
`encode_into` raises `MemoryError`. So everything here goes through `encode_into`, and nothing else calls `encode`.
"""

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for invalid bytes. Two are not its own errors: for a text that is no UTF-8, and deep nesting."""


BUFFER_BYTES: Final = 512
"""Most events fit, so the buffer seldom grows."""


class Encoder:
    """Encodes values. Raises what msgspec raises, and `MemoryError`."""

    def __init__(self, encoder: msgspec.msgpack.Encoder | msgspec.json.Encoder) -> None:
        self._into = encoder.encode_into

    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        buffer = bytearray(BUFFER_BYTES)
        self._into(value, buffer)
        return bytes(buffer)


def msgpack_encoder(order: Literal["deterministic", "sorted"] | None = None) -> Encoder:
    """Return an encoder of msgpack. `order` is that of an object's keys, as in msgspec."""
    return Encoder(msgspec.msgpack.Encoder(order=order))


def _plain(value: Any) -> str:
    """Return the text of a subclass of `str`, such as a hint, which msgspec alone does not encode."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"values of type {type(value).__name__} cannot be encoded")


_MSGPACK: Final = msgpack_encoder()
JSON: Final = Encoder(msgspec.json.Encoder(enc_hook=_plain))


def to_msgpack(value: Any) -> bytes:
    """Return a value as msgpack."""
    return _MSGPACK.encode(value)


def to_json(value: Any, *, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    """Return a value as JSON. `enc_hook` converts what JSON does not know."""
    return JSON.encode(value) if enc_hook is None else Encoder(msgspec.json.Encoder(enc_hook=enc_hook)).encode(value)


def printable(text: str) -> str:
    r"""Return a text as UTF-8 can hold it. What is no Unicode, such as a byte of a path, is shown as `\udcff`."""
    return text.encode(errors="backslashreplace").decode()


def to_printable_json(value: Any, *, enc_hook: Callable[[Any], Any] | None = None) -> bytes:
    r"""Return a value as JSON for readers. Text that is no Unicode, as in some paths, is shown as `\udcff`."""
    try:
        return to_json(value, enc_hook=enc_hook)
    except UnicodeEncodeError:
        return to_json(_escaped(msgspec.to_builtins(value, enc_hook=enc_hook or _plain)))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case list() | tuple():
            return [_escaped(item) for item in value]
        case dict():
            return {_escaped(key): _escaped(item) for key, item in value.items()}
        case _:
            return value


_CANONICAL: Final = msgpack_encoder("sorted")
_TOO_DEEP: Final = _CANONICAL.encode("nested too deep to be read")
_MSGPACK_MIN: Final = -(1 << 63)
_MSGPACK_MAX: Final = (1 << 64) - 1
_NORMAL: Final = frozenset((str, int, bool, type(None)))
"""Types whose values stay as they are."""


def canonical(value: Any) -> bytes:
    """Return the bytes of a JSON value that `checked_json` has accepted: equal ones for equal values only.

    Numbers are compared by value: `1` and `1.0` are equal, because JSON has one kind of number. Types stay apart: `1`,
    `"1"` and `true` are three values. The order of an object's keys does not matter. A value that is nested deeper than
    the stack, which `checked_json` refuses, becomes a text that says so.
    """
    try:
        return _CANONICAL.encode(_normal(value))
    except RecursionError:  # Of an event that no release writes.
        return _TOO_DEEP


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
