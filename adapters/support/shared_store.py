"""Stores that are shared within a process: many agents may want the same one, and a model is large."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mnemolog.infra.runtime import fork_guard
from mnemolog.store import MemoryStore


@dataclass
class _Shared:
    store: MemoryStore
    how: dict[str, Any]
    """Kept, so that the ids of what is in it are not given to anything else."""
    users: int = 0


class _Stores:
    """Those of this process. A child that was forked has none: its parent's are not its own."""

    def __init__(self) -> None:
        self.mutex, self.shared = threading.Lock(), dict[Any, _Shared]()
        fork_guard.watch(self)

    def forked(self) -> None:
        """Begin anew: another thread of the parent may have had the mutex."""
        self.mutex, self.shared = threading.Lock(), {}


_stores: Final = _Stores()


def acquire(path: str | Path, **how: Any) -> MemoryStore:
    """Return the store in the folder `path`, opened by the first who asks for it. To be given to `release` once.

    `how` is that of `MemoryStore.open`; stores that are opened otherwise are others, and what is no text or number,
    such as a model, is the same where it is the same object. Safe for many threads. Raises as `MemoryStore.open` does.
    """
    given = sorted(
        (name, value if isinstance(value, str | int | float | None) else id(value)) for name, value in how.items()
    )
    key = (Path(path).resolve(), tuple(given))
    with _stores.mutex:
        if key not in _stores.shared:
            _stores.shared[key] = _Shared(MemoryStore.open(path, **how), how)
        _stores.shared[key].users += 1
        return _stores.shared[key].store


def release(store: MemoryStore, *, broken: bool = False) -> None:
    """Close a store with its last user; or now, where it is `broken` and cannot be used: the next gets another one.

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
