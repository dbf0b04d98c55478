"""The last head of a log that this node has seen: the witness against a database that has lost events.

A standby that was promoted too early, or an older base backup, hands out positions a second time. The node notices,
because it compares every head that it reads with the last one it has seen. It notes that one in its local folder, so
that it also notices after a restart.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors
from mnemolog.domain.head import Head, head_line, parse_head
from mnemolog.domain.hints import Hint, remedy
from mnemolog.domain.position import Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.atomic_files import FILE_MODE
from mnemolog.infra.runtime.regular_files import open_descriptor, read_file

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
    """The last head that this process has seen, and the error for a log that does not have it. Safe for threads."""

    def __init__(self, folder: Path, log_id: str, *, writable: bool) -> None:
        self._folder, self._log_id, self._writable = folder, log_id, writable
        self._lock = fork_guard.lock()
        self._file: int | None = None
        self._line = b""
        """What this process has noted last."""
        self.known = NOTHING
        self._lost = ""
        self.answers = True
        """Whether reads are answered. Not after the loss is noticed: what this process remembers may be lost."""

    def refusal(self) -> errors.StoreReplaced | None:
        """Return the error of appends, None if nothing speaks against the log."""
        return lost_events(self._folder, self._lost) if self._lost else None

    def require(self) -> None:
        """Raise the error of appends, if there is one."""
        if (refused := self.refusal()) is not None:
            raise refused

    def opened(self, noted: Head | None, head: Known, digest_there: bytes | None) -> None:
        """Compare the head that was noted with the log: its head, and its digest at the noted position.

        If the log does not have it, appends are refused and reads are answered from the log as it is.
        """
        if noted is not None and noted.log_id not in (None, self._log_id):
            self._lost = f"the database holds log {self._log_id} under this name; this node has seen log {noted.log_id}"
        elif noted is not None:
            self._lost = contradiction(Known(noted.position, noted.digest_bytes), head, digest_there)
        self.saw(head)

    def opened_alone(self, noted: Head | None) -> None:
        """Begin with the head that was noted: the log is compared with it when it answers."""
        if noted is not None:
            self.known = Known(noted.position, noted.digest_bytes)

    def compare(self, before: Known, head: Known, digest_there: bytes | None) -> None:
        """Take a head that was read, or raise `StoreReplaced`, and from now on for every call.

        `before` is what was known before it was read, `digest_there` the digest that the log has at that position.
        """
        why = contradiction(before, head, digest_there)
        if why:
            self._lost, self.answers = self._lost or why, False
            raise lost_events(self._folder, self._lost)
        self.saw(head)

    def saw(self, head: Known) -> None:
        """Take a head that this process has read or committed, and note it."""
        if head.position <= self.known.position:
            return
        with self._lock:
            if head.position > self.known.position:
                self.known = head
                if self._writable and not self._lost:
                    self._note(head)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._writable = False
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _note(self, head: Known) -> None:
        """Note a head, unless another process of this node has noted a later one."""
        noted = Head(position=Position(head.position), digest=head.digest.hex(), log_id=self._log_id)
        line = head_line(noted).rstrip().ljust(_LINE_BYTES - 1) + b"\n"
        with suppress(OSError):  # Without room for it the process itself still knows.
            if self._file is None:
                path = StoreLayout(self._folder).seen_head
                self._file = open_descriptor(path, os.O_RDWR | os.O_CREAT, mode=FILE_MODE)
            found = os.pread(self._file, _LINE_BYTES, 0)
            other = None if found == self._line else _parsed(found)
            if other is None or other.log_id != self._log_id or other.position < head.position:
                os.pwrite(self._file, line, 0)
                self._line = line


def lost_events(folder: Path, why: str) -> errors.StoreReplaced:
    """Return the error for a log that does not have what this node has seen."""
    error = errors.StoreReplaced(folder, why)
    error.args = (why,)
    error.hint = Hint(
        "this call is not acknowledged; open the store again: ", remedy("admin.doctor"), " reports what was lost"
    )
    return error


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
