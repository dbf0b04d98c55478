"""The gate: what leaves a store is inside of its scopes, and leaves a line in an audit of reads.

The audit is a file that is not part of the store: a line for each call that shows content.
"""

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

from mnemolog.domain import errors
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.events import Event
from mnemolog.domain.position import to_datetime
from mnemolog.domain.request import current_actor
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Boundary
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import mapped_to_store_errors, open_descriptor

Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=type)
Method = TypeVar("Method", bound=Callable[..., Any])
SHOW_NOTHING: Final = {
    *("None", "Self", "bool", "int", "Position", "Head", "SessionAt", "Ticket"),
    *("Verification", "Status", "BackupReport", "Results[RebuildReport]"),
}
"""Types of answers that hold no content and no names of sessions. Every other type shows something."""


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

    def __init__(self, ranges: list[tuple[int, int]] | None = None, *, silent: bool = False) -> None:
        self.silent = silent
        """Whether the call shows nothing, and leaves no line."""
        self.ranges = [] if ranges is None else ranges

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
        self.require_writable()

    def require_writable(self) -> None:
        """Raise `StoreNotWritable` if no line can be appended: then the call is not made."""
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

    def admitted(self, answer: Answer) -> Answer:
        """Return an answer without references to what lies outside of the boundary. Raises `LogDamaged`."""


_SHOWN: Final[ContextVar[Shown | None]] = ContextVar("mnemolog_shown", default=None)
"""Of the call that the line is about: what is called for it adds to that."""


@contextmanager
def reading(
    visible: AuditedReads, operation: str, *, scope: str | Sequence[str] = (), silent: bool = False
) -> Iterator[Shown]:
    """Write a line at the end of the block, with what it adds to `Shown`; within another such block, add to that.

    A `silent` block shows nothing: it leaves a line only if it is refused with an error that may name sessions.
    """
    outer = _SHOWN.get()
    shown = Shown(silent=silent)
    refused = ""
    if visible.reads is None or outer is not None:
        yield shown if outer is None else Shown(outer.ranges)
        return
    if not silent:
        visible.reads.require_writable()
    token = _SHOWN.set(shown)
    try:
        yield shown
    except Exception as error:
        refused = type(error).__name__
        shown.silent = silent and not isinstance(error, errors.SessionError)
        raise
    finally:
        _SHOWN.reset(token)
        if not shown.silent:
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


def gives_back(method: Method) -> Method:
    """Mark a write whose answer is what its caller gave: it leaves no line. A title that others gave does."""
    vars(method)["gives_back"] = True
    return method


def gated(prefix: str) -> Callable[[Kind], Kind]:
    """Have the answers of all public methods of a class pass the one gate.

    What lies outside of the scopes of the store is taken out (`VisibleEvents.admitted`), and a line is written for what
    is shown: the type of the answer decides that, or `gives_back`. The class has `_visible`. `prefix` begins the names
    of its operations.
    """

    def decorate(kind: Kind) -> Kind:
        for name, method in list(vars(kind).items()):
            if isfunction(method) and not name.startswith("_"):
                setattr(kind, name, _gated(prefix + name, method))
        return kind

    return decorate


def _gated(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    gives, returns = "gives_back" in vars(method), method.__annotations__.get("return")
    silent = gives or getattr(returns, "__name__", returns) in SHOW_NOTHING  # A type where options were read.

    @wraps(method)
    def call(self: Any, /, *args: Any, **given: Any) -> Any:
        visible: AuditedReads | None = getattr(self, "_visible", None)
        if visible is None:
            return method(self, *args, **given)
        if not (visible.reads or visible.boundary.scopes):
            answer = method(self, *args, **given)
            return answer if silent or isinstance(answer, Iterator) else visible.admitted(answer)
        scope: Any = given.get("scope") or getattr(self, "scope", "")
        with reading(visible, operation, scope=scope, silent=silent) as shown:
            answer = method(self, *args, **given)
            if not isinstance(answer, Iterator):
                answer = visible.admitted(answer)
                shown.collect(answer)
                if gives:
                    shown.silent = getattr(answer, "title", "") in ("", given.get("title"))
                return answer
        return _followed(answer, visible, operation, scope)

    return call


def _followed(items: Iterator[Any], visible: AuditedReads, operation: str, scope: str | Sequence[str]) -> Iterator[Any]:
    """Yield items; a line at the end has their positions. The line before the first one says that they were asked for.

    The caller's own calls come in between, so this is no block of `reading`. The items are inside of the scopes:
    `VisibleEvents.read` looks up what a batch of events refers to, where here each item would be asked about alone.
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
