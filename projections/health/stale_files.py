"""Find and delete files left by dead processes: temporary files and folders."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.infra.runtime.processes import is_running
from mnemolog.projections.vectors.lock import IndexerLock
from mnemolog.projections.vectors.manifest import generation_folders

_TEMPORARY: Final = re.compile(r"\.[a-z]+\.(\d{1,18})\.[0-9a-f]{8}(?:-wal|-shm)?")
"""The names that `files.temporary_name` makes, with the files that SQLite keeps beside them."""
_LOCK: Final = re.compile(r"\.([0-9a-f]{16})\.lock")


def abandoned(projections: Path) -> list[Path]:
    """Return the temporary files and folders whose process no longer runs on this machine."""
    vectors = projections / "vectors"
    generations = [folder.path for folder in generation_folders(vectors)]
    folders = [projections, vectors, projections / "quarantine", *generations]
    return [item for folder in folders for item in abandoned_in(folder)]


def abandoned_in(folder: Path) -> list[Path]:
    """Return the temporary files in one folder whose process no longer runs on this machine."""
    named = [(path, _TEMPORARY.fullmatch(path.name)) for path in sorted(folder.glob(".*"))]
    return [path for path, match in named if match is not None and not is_running(int(match[1]))]


def remove(path: Path) -> None:
    """Delete a stale file or folder, if it still exists. Raises `ProjectionUnreadable`."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except OSError as error:
        raise errors.ProjectionUnreadable(path, str(error)) from error


@contextmanager
def indexers_locked_out(vectors: Path) -> Iterator[None]:
    """Keep indexers out while the block runs. Raises `IndexerBusy` at once if one is at work.

    Process ids mean little between containers that share a folder; these locks hold there too.
    """
    names = {match[1] for path in vectors.glob(".*.lock") if (match := _LOCK.fullmatch(path.name))}
    names |= {folder.prefix for folder in generation_folders(vectors)}
    with ExitStack() as held:
        for name in sorted(names):
            held.enter_context(IndexerLock(vectors, name).held(wait_s=0))
        yield
