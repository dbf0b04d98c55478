"""The last head of a log that a folder has seen: the witness against a log that has lost events (ADR 44, ADR 67).

A tail that was cut, a standby that was promoted too early or an older base backup hands out positions a second time.
A process compares every head that it reads with the last one it has seen. It notes that one in its folder before a
projection can be built from it, so that it also notices after a restart.

A file of heads is kept outside of the store: `verify` compares the log with it.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.domain.request import REPORTS
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import Position
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import (
    FILE_MODE,
    mapped_to_store_errors,
    open_descriptor,
    open_file,
    read_file,
    replace_file,
    sync,
)

_LINE_BYTES: Final = 256
"""The note is always so long: it is written over with one call, so that a killed process leaves a whole one."""


class Known(NamedTuple):
    """A head, with its digest as stored."""

    position: int
    digest: bytes


NOTHING: Final = Known(0, b"")


def noted_head(folder: Path) -> Head | None:
    """Return the head that is noted in a local folder. None if there is none, or after a power cut half of one."""
    with suppress(OSError):
        return _parsed(read_file(StoreLayout(folder).seen_head, size_max=_LINE_BYTES))
    return None


def _parsed(line: bytes) -> Head | None:
    with suppress(UnicodeDecodeError, errors.InvalidInput):
        return parse_head("head", line.decode())
    return None


class SeenHead:
    """The last head that was seen of a log, by this process or noted in its folder before. Safe for threads.

    - `may_lose`: whether this process appends with `synchronous="NORMAL"`
    """

    def __init__(self, folder: Path, log_id: str, *, writable: bool, may_lose: bool = False) -> None:
        self._layout = StoreLayout(folder)
        self._log_id = log_id
        self._writable = writable
        self._appends_may_be_lost = may_lose
        self._lock = fork_guard.lock()
        self._file: int | None = None
        self._line = b""
        """What this process has noted last."""
        noted = noted_head(folder)
        is_of_this = noted is not None and noted.log_id in (None, log_id)
        self.known = Known(noted.position, noted.digest_bytes) if noted is not None and is_of_this else NOTHING
        self._noted = self.known.position
        self.lost = ""
        """Why the log is neither read nor written; empty if nothing speaks against it."""
        self.was_lost = False
        """Whether it was so when the log was opened: then this process remembers nothing of what is lost."""
        self.warnings: dict[str, str] = {}
        """What else is known to be wrong with the log, by kind. It is read and written all the same."""

    @property
    def may_lose(self) -> bool:
        """Whether a power cut may have taken events that were seen: this process or one before risks that."""
        return self._appends_may_be_lost or self._layout.may_lose.exists()

    def begin(self) -> None:
        """Note durably, before the first append, if what is appended may be lost by a power cut."""
        path = self._layout.may_lose
        if self._appends_may_be_lost and self._writable and not path.exists():
            with mapped_to_store_errors(path):
                replace_file(
                    path,
                    b"This log was written with synchronous=NORMAL: a power cut may take its newest events.\n",
                    prefix="normal",
                    synced=True,
                )

    def require(self, *, always: bool = False) -> None:
        """Raise `HistoryLost` if the log has lost events, but `always` not to those that report on it."""
        if self.lost and (always or not REPORTS.get()):
            raise errors.HistoryLost(self._layout.folder, self.lost)

    def compare(self, before: Known, head: Known, digest_there: bytes | None) -> None:
        """Take a head that was read; what the log has lost is in `lost`.

        `before` is what was known before it was read, `digest_there` the digest that the log has at that position.
        """
        if why := contradiction(before, head, digest_there):
            self.lost = self.lost or why
        self.saw(head, note=False)

    def saw(self, head: Known, *, note: bool = True) -> None:
        """Take a head that this process has read or committed; note the last one, unless it is not to be noted yet."""
        if head.position > self.known.position:
            self.known = head
        if note and self.known.position > self._noted and self._writable and not self.lost:
            with self._lock:
                self._note(self.known)

    def meet(self, error: errors.MnemologError) -> errors.MnemologError:
        """Remember damage that a read has met, and return the error."""
        if isinstance(error, errors.LogDamaged):
            self.warnings["damage"] = f"a read met damage of the log: {error}"
        return error

    def take(self) -> None:
        """Take the log as it is, whatever was seen of it before."""
        with self._lock:
            self._close()
            if self._writable:
                self._layout.seen_head.unlink(missing_ok=True)
            self.known = NOTHING
            self._noted = 0
            self.lost = ""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._writable = False
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _note(self, head: Known) -> None:
        """Note a head, unless another process of this node has noted a later one."""
        self._noted = head.position
        noted = Head(position=Position(head.position), digest=head.digest.hex(), log_id=self._log_id)
        line = head_line(noted).rstrip().ljust(_LINE_BYTES - 1) + b"\n"
        with suppress(OSError):  # Without room for it the process itself still knows.
            if self._file is None:
                self._file = open_descriptor(self._layout.seen_head, os.O_RDWR | os.O_CREAT, mode=FILE_MODE)
            found = os.pread(self._file, _LINE_BYTES, 0)
            other = None if found == self._line else _parsed(found)
            if other is None or other.log_id != self._log_id or other.position < head.position:
                os.pwrite(self._file, line, 0)
                self._line = line


def contradiction(seen: Known, head: Known, digest_there: bytes | None) -> str:
    """Return why a log is not the one that `seen` was read from; empty if it may be."""
    if head.position < seen.position:
        lost = f"events {head.position + 1} to {seen.position}"
        if head.position + 1 == seen.position:
            lost = f"event {seen.position}"
        ends = f"the log ends at position {head.position}; this node has seen position {seen.position}"
        return f"{ends}: the database lost {lost}"
    there = head.digest if head.position == seen.position else digest_there
    if seen.position and there != seen.digest:
        return (
            f"the log has another event at position {seen.position} than this node has seen there: "
            "the database lost events, and others took their positions"
        )
    return ""


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


def append_next_head(path: Path, head_after: Callable[[Line | None], Head]) -> Head:
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
    last = os.pread(file.fileno(), 1, max(0, file.seek(0, os.SEEK_END) - 1))
    return b"" if last in (b"", b"\n") else b"\n"
