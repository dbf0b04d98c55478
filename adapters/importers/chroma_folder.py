"""A persistent folder of Chroma, read by Chroma's own library from a copy: it changes what it opens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mnemolog.adapters.extras import require
from mnemolog.domain.encoding import to_json
from mnemolog.infra.runtime.files import write_pieces

DATABASE: Final = "chroma.sqlite3"
"""Its file in such a folder."""
PAGE: Final = 1_000
"""Documents that are read together."""


def save_collections(folder: Path, into: Path) -> list[Path]:
    """Save each collection in a file of its own, as `get()` returns its pages, one a line. Raises `ExtraMissing`."""
    require("chroma", "chromadb")
    chromadb: Any = import_module("chromadb")
    copy = shutil.copytree(folder, into / "copy", symlinks=True)
    client = chromadb.PersistentClient(str(copy), settings=chromadb.Settings(anonymized_telemetry=False))
    files = []
    for number, collection in enumerate(sorted(client.list_collections(), key=lambda found: found.name)):
        files.append(into / f"{number}.jsonl")
        write_pieces(files[-1], _pages(collection))
    return files


def _pages(collection: Any) -> Iterator[bytes]:
    """Yield the lines of a collection's file."""
    for offset in range(0, collection.count(), PAGE):
        page = collection.get(limit=PAGE, offset=offset, include=["documents", "metadatas"])
        kept = {name: page[name] for name in ("ids", "documents", "metadatas")}
        yield to_json({"collection": collection.name} | kept) + b"\n"
