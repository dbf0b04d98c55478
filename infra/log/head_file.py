"""A file of heads, kept outside the store: `verify` compares the log with it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.domain import errors
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.infra.runtime.files import FILE_MODE, mapped_to_store_errors, open_descriptor, open_file, sync

LINE_BYTES_MAX: Final = 4_096
TAIL_BYTES: Final = 1 << 20
"""Of a larger file only so much of its end is read to find the last head: some 5,000 lines."""

Line = tuple[int, Head]
"""A head and the number of its line, counted from 1."""


def read_heads(path: Path, *, from_end: bool = False) -> Iterator[Line]:
    """Yield every head of a file, in its order; with `from_end` those in its last MiB, with lines counted from there.

    Raises `WitnessUnreadable`, naming the invalid line.
    """
    try:
        with open_file(path, follow=True) as file:
            yield from _heads_in(path, file, from_end=from_end)
    except FileNotFoundError as error:
        raise errors.WitnessUnreadable(path, None, "there is no such file") from error
    except OSError as error:
        raise errors.WitnessUnreadable(path, None, f"cannot be read: {error.strerror or error}") from error


def last_head(path: Path) -> Line | None:
    """Return the last head of a file; None if there is no such file, or no head in it. As `append_head` finds it."""
    if not path.exists():
        return None
    return next(reversed([*read_heads(path, from_end=True)]), None)


def append_head(path: Path, head_after: Callable[[Line | None], Head]) -> Head:
    """Append a head to a file, which is created if it does not exist. The head is durable when this returns.

    `head_after` receives the last head of the file and returns the next one; where it raises, nothing is written.
    Only one process does so at a time. Raises `WitnessUnreadable`, `StoreNotWritable`, `StorageFull`.
    """
    with mapped_to_store_errors(path):
        is_new = not path.exists()
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        with os.fdopen(open_descriptor(path, flags, mode=FILE_MODE, follow=True), "a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                last = None
                for last in _heads_in(path, file, from_end=True):  # noqa: B007
                    pass
                head = head_after(last)
                _write(file, _separator(file) + head_line(head))
            finally:  # Closing is not enough: a child forked meanwhile has the file open too.
                fcntl.flock(file, fcntl.LOCK_UN)
        if is_new:
            sync(path.absolute().parent)
    return head


def _heads_in(path: Path, file: BinaryIO, *, from_end: bool) -> Iterator[Line]:
    number = 0
    if file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES) if from_end else 0):
        file.readline(LINE_BYTES_MAX + 1)
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if line.isspace():
            continue
        try:
            yield number, parse_head("head", line.decode())
        except (errors.InvalidInput, UnicodeDecodeError) as error:
            why = error.why if isinstance(error, errors.InvalidInput) else "not UTF-8 text"
            raise errors.WitnessUnreadable(path, number, why) from error


def _write(file: BinaryIO, data: bytes) -> None:
    """Append `data` durably. Where there is no room for all of it, nothing is written: half a line is not a head."""
    end = file.seek(0, os.SEEK_END)
    try:
        if os.write(file.fileno(), data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise
    os.fsync(file.fileno())


def _separator(file: BinaryIO) -> bytes:
    """Return the separator before the next line: the last line may lack its newline."""
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return b""
    file.seek(end - 1)
    return b"" if file.read(1) == b"\n" else b"\n"
