"""Stores that the agents of one process share: a gateway has many agents, and a model is large."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mnemolog.store import MemoryStore


@dataclass
class _Held:
    store: MemoryStore
    users: int = 0


_held: Final[dict[tuple[int, Path, Any], _Held]] = {}
_mutex = threading.Lock()


def take(folder: Path, model: Any) -> MemoryStore:
    """Return the store in `folder`, opened by the first who takes it. Raises as `MemoryStore.open` does."""
    key = (os.getpid(), folder.absolute(), model if isinstance(model, str | None) else id(model))
    with _mutex:
        if key not in _held:
            folder.parent.mkdir(parents=True, exist_ok=True)
            _held[key] = _Held(MemoryStore.open(folder, model=model))
        _held[key].users += 1
        return _held[key].store


def give_back(store: MemoryStore, *, broken: bool = False) -> None:
    """Close a store with its last user, or at once where it cannot be used any more: the others open another one."""
    with _mutex:
        for key, held in list(_held.items()):
            if held.store is store:
                held.users -= 1
                if broken or not held.users:
                    del _held[key]
                    store.close()
