"""Stores shared by the agents of a process, with reference counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import local_path
from mnemolog.store import MemoryStore


@dataclass
class _Shared:
    store: MemoryStore
    how: dict[str, Any]
    """Kept alive, so that no other object gets the `id` of one that is in the key."""
    users: int = 0


class _Stores:
    """The shared stores of this process. A forked child starts with none: stores do not survive a fork."""

    def __init__(self) -> None:
        self.mutex, self.shared = fork_guard.lock(), dict[Any, _Shared]()
        fork_guard.watch(self)

    def forked(self) -> None:
        """Start empty."""
        self.shared = {}


_stores: Final = _Stores()


def acquire(path: str | Path, **how: Any) -> MemoryStore:
    """Return the shared store in the folder `path`; the first caller opens it. Pass it to `release` once.

    `how` are the options of `MemoryStore.open`. Callers with the same path and options share a store; options that
    are not text or numbers, such as a model, are compared by identity. Safe for many threads. Raises as
    `MemoryStore.open` does.
    """
    given = sorted(
        (name, value if isinstance(value, str | int | float | None) else id(value)) for name, value in how.items()
    )
    key = (local_path("path", path).resolve(), tuple(given))
    with _stores.mutex:
        if key not in _stores.shared:
            _stores.shared[key] = _Shared(MemoryStore.open(path, **how), how)
        _stores.shared[key].users += 1
        return _stores.shared[key].store


def release(store: MemoryStore, *, broken: bool = False) -> None:
    """Close a store when its last user releases it. A `broken` store is closed now, and the next caller gets a new one.

    A store that is not shared is closed.
    """
    with _stores.mutex:
        for key, shared in _stores.shared.items():
            if shared.store is store:
                shared.users -= 1
                if shared.users and not broken:
                    return
                del _stores.shared[key]
                break
    store.close()
