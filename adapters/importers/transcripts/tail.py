"""Read a file that another program is writing, from a saved offset."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.adapters.importers.source import decode
from mnemolog.domain.errors import InvalidInput
from mnemolog.infra.runtime.regular_files import open_file
from mnemolog.infra.text_file import LINE_BYTES_MAX, without_mark

CHECKED_BYTES: Final = 4_096


class Line(NamedTuple):
    """A complete line. `text` is None if it was too long."""

    number: int
    end: int
    """The offset after it."""
    text: bytes | None


def lines_from(path: Path, *, offset: int, number: int) -> Iterator[Line]:
    """Yield the lines after `offset`, the first of which is line `number` + 1.

    A last line without a line end is complete if it is a JSON object: half a line never is. Raises `OSError`.
    """
    with open_file(path, follow=True) as file:
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
    """Return a digest of the bytes before `offset`, to detect that a file was replaced. Empty if the file is shorter.

    It covers the last 4 KiB only. Changes before those are detected by the keys of turns.
    """
    with open_file(path, follow=True) as file:
        begin = max(0, offset - CHECKED_BYTES)
        file.seek(begin)
        read = file.read(offset - begin)
    return b"" if len(read) < offset - begin else blake2b(read, key=secret[:64], digest_size=16).digest()


def _is_whole(text: bytes) -> bool:
    try:
        return isinstance(decode(text), dict)
    except InvalidInput:
        return False
