"""A copy of the store for `hermes backup`, which copies files as they are where they lie outside of Hermes' home."""

from __future__ import annotations

import shutil
from pathlib import Path

from mnemolog.store import MemoryStore


def copies(folder: Path, home: Path) -> list[str]:
    """Return what is to be copied: nothing that lies in Hermes' home, else a backup made now, and its keys.

    In its home Hermes finds the databases by itself and copies them through SQLite.
    """
    folder = folder.absolute()
    if not (folder / "log.db").exists() or folder.is_relative_to(home.absolute()):
        return []
    backup, keys = (folder.with_name(f"{folder.name}-{what}-for-hermes") for what in ("backup", "keys"))
    if (backup / "backup.json").exists():
        shutil.rmtree(backup)
    with MemoryStore.open(folder, model=None, create=False, background=False) as store:
        store.backup(backup, keys=keys, projections=False)
    return [str(path) for path in (backup, keys) if path.exists()]
