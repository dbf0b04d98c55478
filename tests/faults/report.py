"""The table of docs/faults.md: what was claimed, how often it was tried, how often it failed."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import faiss
from pysqlite3 import dbapi2


class Tried(NamedTuple):
    """One test, all its cases together."""

    file: str
    claim: str
    cases: int
    tried: int
    """Kills, flips or other faults where the test counts them, else its cases."""
    failed: int
    seconds: float


def merged(reports: Iterable[Tried]) -> list[Tried]:
    """Return one line for each claim, in the order they came."""
    found: dict[tuple[str, str], Tried] = {}
    for item in reports:
        before = found.get((item.file, item.claim), item._replace(cases=0, tried=0, failed=0, seconds=0.0))
        found[item.file, item.claim] = before._replace(
            cases=before.cases + item.cases,
            tried=before.tried + item.tried,
            failed=before.failed + item.failed,
            seconds=before.seconds + item.seconds,
        )
    return list(found.values())


def write(path: Path, reports: Iterable[Tried], *, seed: int, kills: int) -> None:
    """Write the page."""
    lines = [
        "# Faults",
        "",
        f"Written by `make faults`, with `--kills {kills} --seed {seed}`; the same seed tries the same again.",
        f"SQLite {dbapi2.sqlite_version}, FAISS {faiss.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}.",
        "",
        "| test | claim | tried | failures | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for item in merged(reports):
        claim = item.claim.replace("|", "\\|")
        lines.append(f"| {item.file} | {claim} | {item.tried:,} | {item.failed} | {item.seconds:.0f} |")
    path.write_text("\n".join(lines) + "\n")
