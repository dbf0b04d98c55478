"""Publishing files so that a crash leaves the old state or the new one, never a mix."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and make its content durable."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder its final name. Raises `FileExistsError` when that is taken."""
    sync_folder(temporary)
    if final.exists():
        raise FileExistsError(final)
    temporary.rename(final)
    sync_folder(final.parent)


def temporary_name(prefix: str) -> str:
    """Return a name that no other process picks, and that readers pass over."""
    return f".{prefix}.{os.getpid()}.{secrets.token_hex(4)}"


def remove_folder(folder: Path) -> None:
    """Delete what another folder replaces. Renamed first, so that no reader sees half of it."""
    doomed = folder.with_name(temporary_name("removed"))
    folder.rename(doomed)
    shutil.rmtree(doomed)


def quarantine(path: Path, folder: Path, *, reason: str, state: str = "damaged") -> Path | None:
    """Set `path` aside in the quarantine that is `folder`, None where it stays. See `Quarantine.set_aside`."""
    from mnemolog.projections.quarantine import Quarantine  # It is made of what is above.

    return Quarantine(folder).set_aside(path, reason=reason, state=state)
