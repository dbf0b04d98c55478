"""A backup of a store for somebody else's backup, which copies files one after the other while they are in use."""

from __future__ import annotations

from pathlib import Path

from mnemolog.infra.log.event_log import LOG_FILE
from mnemolog.store import MemoryStore


def backup_beside(store: str | Path, name: str) -> list[Path]:
    """Copy the log of the store in the folder `store` and its keys, as they are now, into two folders beside it.

    Returns these: `STORE-backup-NAME`, to be restored with `restore_backup`, and `STORE-keys-NAME`, where it has keys.
    Those of an earlier call are replaced. Nothing where there is no store. Raises as `MemoryStore.backup` does.
    """
    folder = Path(store).absolute()
    if not (folder / LOG_FILE).exists():
        return []
    backup, keys = (folder.with_name(f"{folder.name}-{what}-{name}") for what in ("backup", "keys"))
    with MemoryStore.open(folder, model=None, create=False, background=False) as opened:
        opened.backup(backup, keys=keys, projections=False, replace=True)
    return [path for path in (backup, keys) if path.exists()]
