"""A consistent copy of a store, for backup tools that copy files one by one while they are in use."""

from pathlib import Path

from mnemolog.infra.log.postgres.address import ADDRESS_FILE
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.store import MemoryStore


def backup_beside(store: str | Path, name: str) -> list[Path]:
    """Copy the log and the keys of the store in the folder `store` into two folders beside it.

    Returns their paths: `STORE-backup-NAME`, for `restore_backup`, and `STORE-keys-NAME` if the store has keys. Copies
    of an earlier call are replaced. Returns an empty list if there is no store. Raises as `MemoryStore.backup` does.
    """
    folder = Path(store).absolute()
    if not any((folder / name).exists() for name in (LOG_FILE, ADDRESS_FILE)):
        return []
    backup, keys = (folder.with_name(f"{folder.name}-{what}-{name}") for what in ("backup", "keys"))
    with MemoryStore.open(folder, model=None, create=False, background=False) as opened:
        opened.backup(backup, keys=keys, replace=True)
    return [path for path in (backup, keys) if path.exists()]
