"""An audit of reads: a line for each call that shows content, in a file that is not part of the store."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from inspect import isfunction
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.events import Event
from mnemolog.domain.request import current_actor
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Boundary
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.infra.runtime.regular_files import open_descriptor

Kind = TypeVar("Kind", bound=type)
NOT_AUDITED: Final = {
    *("open", "close", "within", "session", "start_session", "end_session", "record", "record_many", "switch"),
    *("forget", "distrust", "trust_again", "assert_fact", "retract_fact", "retract_facts", "rewind", "branch", "end"),
    *("at", "prefetch", "judge", "append_head", "head", "position_at", "verify", "status", "backup", "rebuild"),
    *("erasures", "pending_erasures"),
}
"""Public methods that write, or that show no content."""


class Read(Result, frozen=True, kw_only=True):
    """A line of the file: one call. It holds no text of the store, and none that was asked."""

    at: datetime
    actor: str
    operation: str
    """As in the table of operations; `console` and its path for a page."""
    scope: tuple[str, ...]
    """Where: as asked, else what the caller may see. Empty for everywhere."""
    positions: tuple[tuple[int, int], ...] = ()
    """Log positions that were shown, as ranges, both ends included."""
    refused: str = ""
    """The error that the caller got instead of an answer; empty if it was answered."""


_HOLD_NOTHING: Final = frozenset((str, int, float, bool, bytes, datetime))


class Shown:
    """The positions that a call has shown, as ranges."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def add(self, first: int, last: int) -> None:
        """Add a range. One that continues the last one makes that longer."""
        if self.ranges and self.ranges[-1][0] <= first <= self.ranges[-1][1] + 1:
            first, last = self.ranges[-1][0], max(last, self.ranges.pop()[1])
        self.ranges.append((first, last))

    def collect(self, answer: Any) -> None:
        """Add every position in an answer. Events refer to positions that they do not show."""
        items: Iterable[Any] = ()
        if isinstance(answer, list | tuple):
            items = answer
        elif isinstance(answer, dict):
            items = answer.values()
        elif isinstance(answer, msgspec.Struct) and not isinstance(answer, Event):
            if (position := getattr(answer, "position", None)) is not None:
                self.add(position, position)
            items = [getattr(answer, name) for name in answer.__struct_fields__]
        for item in items:
            if item and type(item) not in _HOLD_NOTHING:
                self.collect(item)


class ReadsFile:
    """The file. It is opened for each line, so the host may move it away: the next line makes it again."""

    def __init__(self, path: Path) -> None:
        """Raises `StoreNotWritable`."""
        self._path = path.absolute()
        self._append(b"")

    def write(self, read: Read) -> None:
        """Append a line. Raises `StoreNotWritable`, `StorageFull`: then the caller gets no answer."""
        self._append(to_printable_json(read) + b"\n")

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with (
            mapped_to_store_errors(self._path),
            os.fdopen(open_descriptor(self._path, flags, follow=True), "ab", buffering=0) as file,
        ):
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class AuditedReads(Protocol):
    """What a caller reads, and the file that takes a line for each read, if there is one."""

    reads: ReadsFile | None
    boundary: Boundary


_SHOWN: Final[ContextVar[Shown | None]] = ContextVar("mnemolog_shown", default=None)
"""Of the call that the line is about: what is called for it adds to that."""


@contextmanager
def reading(visible: AuditedReads, operation: str, *, scope: str | Sequence[str] = ()) -> Iterator[Shown]:
    """Write a line at the end of the block, with what it adds to `Shown`; within another such block, add to that."""
    outer, shown, refused = _SHOWN.get(), Shown(), ""
    if visible.reads is None or outer is not None:
        yield outer or shown
        return
    token = _SHOWN.set(shown)
    try:
        yield shown
    except Exception as error:
        refused = type(error).__name__
        raise
    finally:
        _SHOWN.reset(token)
        _write(visible, operation, shown, scope, refused)


def _write(visible: AuditedReads, operation: str, shown: Shown, scope: str | Sequence[str], refused: str = "") -> None:
    merged = Shown()
    for first, last in sorted(shown.ranges):
        merged.add(first, last)
    read = Read(
        at=to_datetime(SystemClock().now()),
        actor=current_actor(),
        operation=operation,
        scope=((scope,) if isinstance(scope, str) else tuple(scope)) if scope else visible.boundary.scopes,
        positions=tuple(merged.ranges),
        refused=refused,
    )
    if visible.reads is not None:
        visible.reads.write(read)


def audited(prefix: str) -> Callable[[Kind], Kind]:
    """Write a line for each call of each public method of a class that is not in `NOT_AUDITED`.

    The class has `_visible`. `prefix` begins the names of its operations.
    """

    def decorate(kind: Kind) -> Kind:
        for name, method in list(vars(kind).items()):
            if isfunction(method) and not name.startswith("_") and name not in NOT_AUDITED:
                setattr(kind, name, _audited(prefix + name, method))
        return kind

    return decorate


def _audited(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *args: Any, **given: Any) -> Any:
        visible: AuditedReads | None = getattr(self, "_visible", None)
        if visible is None or visible.reads is None:
            return method(self, *args, **given)
        scope: Any = given.get("scope") or getattr(self, "scope", "")
        with reading(visible, operation, scope=scope) as shown:
            answer = method(self, *args, **given)
            if not isinstance(answer, Iterator):
                shown.collect(answer)
                return answer
        return _followed(answer, visible, operation, scope)

    return call


def _followed(items: Iterator[Any], visible: AuditedReads, operation: str, scope: str | Sequence[str]) -> Iterator[Any]:
    """Yield items; a line at the end has their positions. The line before the first one says that they were asked for.

    The caller's own calls come in between, so this is no block of `reading`.
    """
    outer = _SHOWN.get()
    shown = outer or Shown()
    try:
        for item in items:
            shown.collect(item)
            yield item
    finally:
        if outer is None:
            _write(visible, operation, shown, scope)
