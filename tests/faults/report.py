"""How often each fault was tried, and how often it failed: docs/reports/faults.json, and the page made from it.

A run replaces the rows of the tests that it ran and leaves the others: promises can be tried one by one, at the larger
scale where there is time for it. Each row says with which seed, at which scale and of which commit it is.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import faiss
import msgspec
from pysqlite3 import dbapi2

from tests.faults.promises import PROMISES

NOT_TESTED = "not tested"


class Row(msgspec.Struct, kw_only=True):
    """One test, all its cases together."""

    promise: str
    file: str
    test: str
    claim: str
    cases: int = 0
    tried: int = 0
    """Kills, flips or other faults where the test counts them, else its cases."""
    failures: int = 0
    """Cases that failed."""
    skipped: int = 0
    """Cases that could not be tried here."""
    seconds: float = 0.0
    scale: str
    seed: int
    commit: str

    def add(self, other: Row) -> None:
        """Take another case of the same test in."""
        self.cases += other.cases
        self.tried += other.tried
        self.failures += other.failures
        self.skipped += other.skipped
        self.seconds += other.seconds

    @property
    def key(self) -> tuple[str, str, str]:
        return self.promise, self.file, self.test


class Report(msgspec.Struct, kw_only=True):
    """All that is known, by promise and then in the order of the tests."""

    sqlite: str
    faiss: str
    python: str
    system: str
    rows: list[Row]


def write(path: Path, rows: Iterable[Row], *, collected: Sequence[tuple[str | None, str, str]]) -> None:
    """Put what was tried now in place of what was tried before, in `path` (.md) and beside it (.json).

    Rows of tests that are not there any more go, as far as their files were `collected`.
    """
    source = path.with_suffix(".json")
    known = msgspec.json.decode(source.read_bytes(), type=Report).rows if source.exists() else []
    files = {file for _, file, _ in collected}
    kept = {row.key: row for row in known if row.file not in files or row.key in collected}
    fresh: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row.key in fresh:
            fresh[row.key].add(row)
        else:
            fresh[row.key] = row
    report = Report(
        sqlite=dbapi2.sqlite_version,
        faiss=faiss.__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        rows=sorted((kept | fresh).values(), key=_place),
    )
    source.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    path.write_text(page(report))


def page(report: Report) -> str:
    """Return the page that shows a report."""
    seconds = sum(row.seconds for row in report.rows)
    failures = sum(row.failures for row in report.rows)
    lines = [
        "# Faults",
        "",
        "What the store promises, how often each promise was tried, and how often it failed. `make faults` writes",
        "this page from [faults.json](faults.json). Each row gives the scale (`ci`: with every change, or `nightly`)",
        "and the seed; the same seed repeats the same tries:",
        "",
        "    make faults SCALE=nightly ONLY=P3 SEED=1",
        "",
        f"SQLite {report.sqlite}, FAISS {report.faiss}, Python {report.python}, {report.system}. "
        f"{failures:,} failures in {seconds:,.0f} seconds.",
        "",
        "| | promise | tests | tried | failures | seconds | scale |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, title in PROMISES.items():
        rows = [row for row in report.rows if row.promise == name and row.cases > row.skipped]
        if rows:
            scale = " and ".join(sorted({row.scale for row in rows}))
            lines.append(f"| {name} | {title} | {len(rows)} | {_sums(rows)} | {scale} |")
        else:
            lines.append(f"| {name} | {title} | 0 | {NOT_TESTED} | | | |")
    lines += [
        "",
        "`tried` counts kills, flips, cuts, scripts and so on; for tests that do not count, their cases.",
        "[Simulation](../simulation.md) lists the long runs of P20 and what they found.",
        "",
        "| | test | claim | tried | failures | seconds | scale | seed |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in report.rows:
        where = f"| {row.promise} | {row.file.removesuffix('.py')} | {row.claim.replace('|', chr(92) + '|')} "
        skipped = f" ({row.skipped} not possible here)" if row.skipped else ""
        lines.append(f"{where}| {_sums([row])} | {row.scale}{skipped} | {row.seed} |")
    return "\n".join(lines) + "\n"


def commit() -> str:
    """Return which state of the code this is, as far as git tells."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return told.stdout.strip()


def _sums(rows: Sequence[Row]) -> str:
    tried, failures = sum(row.tried for row in rows), sum(row.failures for row in rows)
    return f"{tried:,} | {failures:,} | {sum(row.seconds for row in rows):,.0f}"


def _place(row: Row) -> tuple[int, str]:
    return list(PROMISES).index(row.promise), row.file
