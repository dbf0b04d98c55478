"""The last head of a log that a folder has seen: the witness against a log that has lost events (ADR 44, ADR 67).

A tail that was cut, a standby that was promoted too early or an older base backup hands out positions a second time.
A process compares every head that it reads with the last one it has seen. It notes that one in its folder before a
projection can be built from it, so that it also notices after a restart.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.domain.position import Position
from mnemolog.domain.request import REPORTS
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import FILE_MODE, mapped_to_store_errors, open_descriptor, read_file, replace_file

_LINE_BYTES: Final = 256
"""The note is always so long: it is written over with one call, so that a killed process leaves a whole one."""


class Known(NamedTuple):
    """A head, with its digest as stored."""

    position: int
    digest: bytes


NOTHING: Final = Known(0, b"")
_MAY_LOSE: Final = b"This log was written with synchronous=NORMAL: a power cut may take its newest events.\n"


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
        self._layout, self._log_id, self._writable = StoreLayout(folder), log_id, writable
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
                replace_file(path, _MAY_LOSE, prefix="normal", synced=True)

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
            self.known, self._noted, self.lost = NOTHING, 0, ""

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
