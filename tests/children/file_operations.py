"""Counting the file operations of a process below a folder, and doing something at the n-th of them."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WATCHED = {"os.mkdir", "os.rename", "os.rmdir", "os.remove", "os.unlink", "os.truncate"}


class FileOperations:
    """Calls `effect` before the n-th operation that changes something below `root`, or that one and all after it.

    Creating, writing (opening for it), making durable, renaming, removing. One per process: the interpreter's
    audit hook that tells of them stays.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._effect: Callable[[], Any] | None = None
        self._at, self._for_ever, self.count = 0, False, 0
        self._sync = os.fsync
        os.fsync = self._fsync  # type: ignore[assignment]
        sys.addaudithook(self._hook)

    def arm(self, effect: Callable[[], Any] | None, *, at: int = 0, for_ever: bool = False) -> None:
        """Begin to count; with `effect` None only that."""
        self._effect, self._at, self._for_ever, self.count = effect, at, for_ever, 0

    def disarm(self) -> None:
        """Stop counting."""
        self._at, self._effect, self._for_ever = 0, None, False

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED or (event == "open" and _is_write(arguments)):
            self._before(arguments[0])

    def _fsync(self, descriptor: int) -> None:
        self._before(Path(f"/proc/self/fd/{descriptor}").readlink())
        self._sync(descriptor)

    def _before(self, path: Any) -> None:
        if not str(path if not isinstance(path, int) else "").startswith(self._root):
            return
        self.count += 1
        if self._effect is not None and (self.count == self._at or (self._for_ever and self.count > self._at)):
            self._effect()


def _is_write(arguments: tuple[Any, ...]) -> bool:
    flags = arguments[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
