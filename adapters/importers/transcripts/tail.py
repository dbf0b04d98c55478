"""Reading a file that somebody else is writing, from where the last reading ended."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.text_source import LINE_BYTES_MAX, decode, without_mark

CHECKED_BYTES: Final = 4_096


class Line(NamedTuple):
    """A line that is whole. Without text where it was too long to be one."""

    number: int
    end: int
    """The offset behind it."""
    text: bytes | None


def lines_from(path: Path, *, offset: int, number: int) -> Iterator[Line]:
    """Yield the lines behind `offset`, the first of which is line `number` + 1.

    A last line without its end is whole if it is JSON: what is half written never is. Raises `OSError`.
    """
    with path.open("rb") as file:
        file.seek(offset)
        while text := file.readline(LINE_BYTES_MAX + 1):
            if len(text) > LINE_BYTES_MAX and not text.endswith(b"\n"):
                rest = b""
                while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                    pass
                if not rest:
                    return
                text = b""
            elif not text.endswith(b"\n") and not _is_whole(text):
                return
            number += 1
            yield Line(number, file.tell(), (without_mark(text) if number == 1 else text) or None)


def mark_at(path: Path, offset: int, secret: bytes) -> bytes:
    """Return what tells whether a file still is, up to `offset`, the one that was read: a digest of the bytes there.

    Empty where it is shorter. It may be rewritten further up; that is for the keys of turns to notice.
    """
    with path.open("rb") as file:
        begin = max(0, offset - CHECKED_BYTES)
        file.seek(begin)
        read = file.read(offset - begin)
    return b"" if len(read) < offset - begin else blake2b(read, key=secret[:64], digest_size=16).digest()


def _is_whole(text: bytes) -> bool:
    try:
        return isinstance(decode(text), dict)
    except InvalidInput:
        return False
