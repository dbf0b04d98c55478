"""Weights that were fitted without a set: how good recall is on conversations that its weights have not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog import Weights

OURS: Final = "ours"
"""The source of all conversations that this project has written itself."""
SOURCES: Final = {
    "locomo-dev": "locomo-dev",
    "assistant-dev": "assistants",
    "longmemeval-pool": "assistants",
    "longmemeval-mini": "assistants",
    "qmsum-dev": "qmsum-dev",
}
"""Folders of data by name, with their sources. Sets of one source share conversations and are left out together."""


def source_of(name: str) -> str:
    """Return the source of a folder of data; one that is not listed is its own."""
    return SOURCES.get(name, name)


def left_out_arguments(file: Path, source: str) -> dict[str, Any] | None:
    """Return the arguments of a recall with weights that were fitted without a source; None if the file has none.

    The file is a JSON object: for each source, the coefficients of the fit that has not seen it.
    """
    fits = msgspec.json.decode(file.read_bytes(), type=dict[str, dict[str, Any]])
    found = fits.get(source)
    return None if found is None else {"weights": Weights(**found)}
