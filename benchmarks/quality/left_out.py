"""Weights that were fitted without a set: how good recall is on conversations that its weights have not seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from unittest.mock import patch

import msgspec

from mnemolog.projections.recall import scoring

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


def has_fit(file: Path, source: str) -> bool:
    """Return whether a file of weights has a fit that has not seen a source."""
    return source in _fits(file)


class _File(msgspec.Struct):
    left_out: dict[str, scoring.Fitted]


@contextmanager
def ranked_without(file: Path, source: str) -> Iterator[None]:
    """Have every recall in the block use the fit that has not seen a source.

    The file is that of the ranking, written by `benchmarks.fit_recall`.
    """
    fit = _fits(file)[source]
    with patch.object(scoring, "fitted", lambda: fit):
        yield


def _fits(file: Path) -> dict[str, scoring.Fitted]:
    return msgspec.json.decode(file.read_bytes(), type=_File).left_out
