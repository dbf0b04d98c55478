"""Names of generation folders: a prefix of the model's fingerprint, and a serial number."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors

FOLDER_DIGITS: Final = 16
"""Length of the fingerprint prefix in names of a model's files, in hexadecimal digits."""

_GENERATION: Final = re.compile(rf"([0-9a-f]{{{FOLDER_DIGITS}}})-(\d{{4,18}})")


class GenerationFolder(NamedTuple):
    """A folder with the name of a generation. Sorts by model, then by serial number."""

    prefix: str
    serial: int
    path: Path


def prefix_of(fingerprint: str) -> str:
    """Return the prefix of the names of a model's files."""
    return fingerprint[:FOLDER_DIGITS]


def generation_name(fingerprint: str, serial: int) -> str:
    """Return the folder name of a model's generation."""
    return f"{prefix_of(fingerprint)}-{serial:04d}"


def generation_folders(root: Path, fingerprint: str = "") -> list[GenerationFolder]:
    """Return the generations below `root`, of all models or of one. Within a model, the oldest comes first.

    Raises `ProjectionUnreadable` if the folder cannot be read now. That does not mean that it is empty.
    """
    prefix = prefix_of(fingerprint)
    return sorted(
        GenerationFolder(match[1], int(match[2]), root / match[0])
        for match, entry in named(root, _GENERATION)
        if match[1].startswith(prefix) and entry.is_dir()
    )


def named(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], os.DirEntry[str]]]:
    """Return the matching entries of a folder, but no symbolic links; none if it does not exist.

    Raises `ProjectionUnreadable`.
    """
    try:
        with os.scandir(folder) as entries:
            matching = [(match, entry) for entry in entries if (match := pattern.fullmatch(entry.name))]
            return [(match, entry) for match, entry in matching if not entry.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.ProjectionUnreadable(folder, str(error)) from error
