"""How generations are named on disk: by the beginning of their model's fingerprint, and a serial number."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from mnemolog.domain import errors

FOLDER_DIGITS: Final = 16
"""Digits of a fingerprint that the names of a model's files begin with."""

_GENERATION: Final = re.compile(rf"([0-9a-f]{{{FOLDER_DIGITS}}})-(\d{{4,18}})")


class GenerationFolder(NamedTuple):
    """A folder that is named as a generation. The order is by model, then by serial."""

    prefix: str
    serial: int
    path: Path


def prefix_of(fingerprint: str) -> str:
    """Return what the names of a model's files begin with."""
    return fingerprint[:FOLDER_DIGITS]


def generation_name(fingerprint: str, serial: int) -> str:
    """Return the name of a model's generation."""
    return f"{prefix_of(fingerprint)}-{serial:04d}"


def generation_folders(root: Path, fingerprint: str = "") -> list[GenerationFolder]:
    """Return the generations below `root`, or those of one model; of each model the oldest first.

    Raises `ProjectionUnreadable` where that cannot be told now: it must not be taken for there being none.
    """
    prefix = prefix_of(fingerprint)
    return sorted(
        GenerationFolder(match[1], int(match[2]), root / match[0])
        for match, entry in named(root, _GENERATION)
        if match[1].startswith(prefix) and entry.is_dir()
    )


def named(folder: Path, pattern: re.Pattern[str]) -> list[tuple[re.Match[str], os.DirEntry[str]]]:
    """Return what in a folder has such a name, nothing where there is no folder. Raises `ProjectionUnreadable`."""
    try:
        with os.scandir(folder) as entries:
            return [(match, entry) for entry in entries if (match := pattern.fullmatch(entry.name))]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise errors.ProjectionUnreadable(folder, str(error)) from error
