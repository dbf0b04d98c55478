"""JSON text to values, with reasons that help to find what is wrong."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.errors import InvalidInput

UTF8_BOM: Final = b"\xef\xbb\xbf"
_OTHER_BOMS: Final = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_DECODER: Final = msgspec.json.Decoder()
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_AT_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_EXPLAINED_BYTES_MAX: Final = 16 << 20
_FAILURES: Final = (*UNDECODABLE, RecursionError)


class BrokenDocument(InvalidInput):
    """Text that is no JSON. `line` is where it breaks, counted within the text."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__("JSON", why)
        self.line = line


def decode(data: bytes | memoryview) -> Any:
    """Return the JSON value. Raises `BrokenDocument` that says what is wrong and where."""
    try:
        return _DECODER.decode(data)
    except _FAILURES as error:
        raise _broken(bytes(data), error) from error


def elements(data: bytes | memoryview) -> list[memoryview]:
    """Return the elements of a JSON array as text, each to be decoded on its own.

    Raises `BrokenDocument` when this is no array. An element that is no UTF-8 shows when it is decoded.
    """
    try:
        return [memoryview(element) for element in _ELEMENTS.decode(data)]
    except _FAILURES as error:
        raise _broken(bytes(data), error) from error


def foreign_encoding(head: bytes) -> str | None:
    """Return the name of the encoding when a byte order mark says that it is not UTF-8."""
    return next((name for mark, name in _OTHER_BOMS.items() if head.startswith(mark)), None)


def _broken(data: bytes, error: Exception) -> BrokenDocument:
    """Return why `data` is refused. Only for text that was refused already, so it may take its time."""
    at = _AT_BYTE.search(str(error))
    line = data.count(b"\n", 0, int(at[1]) if at else len(data.rstrip())) + 1
    try:
        text = data.decode()
    except UnicodeDecodeError as bad:
        line = data.count(b"\n", 0, bad.start) + 1
        return BrokenDocument(f"not UTF-8: byte 0x{data[bad.start]:02x} at byte {bad.start}", line)
    if isinstance(error, RecursionError):
        return BrokenDocument("nested too deeply", 1)
    if len(data) <= _EXPLAINED_BYTES_MAX:
        try:
            # msgspec calls a lone surrogate "truncated input". The standard library reads it, so it can be named.
            json.dumps(json.loads(text.rstrip()), ensure_ascii=False).encode()
        except UnicodeEncodeError as bad:
            surrogate = f"\\u{ord(bad.object[bad.start]):04x}"
            return BrokenDocument(f"not valid Unicode: lone surrogate {surrogate}", line)
        except json.JSONDecodeError as bad:
            return BrokenDocument(f"invalid JSON: {bad.msg} at column {bad.colno}", bad.lineno)
        except (ValueError, RecursionError):
            pass  # A number that only msgspec refuses.
    return BrokenDocument(f"invalid JSON: {error}", line)
