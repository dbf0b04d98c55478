"""How often each fault was tried, and how often it failed: docs/reports/faults.json, and the page made from it.

A run replaces the rows of the tests that it ran and leaves the others: promises can be tried one by one, at the larger
scale where there is time for it. Each row says with which seed, at which scale and of which commit it is.
"""

from __future__ import annotations

import platform
import subprocess
import time
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
    date: str = ""
    """When the last of its runs ended."""
    commit: str = ""
    """Of which state that run was; each row says of which it is."""
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
        date=time.strftime("%Y-%m-%d"),
        commit=commit(),
        rows=sorted((kept | fresh).values(), key=_place),
    )
    source.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    path.write_text(page(report))


def page(report: Report) -> str:
    """Return the page that shows a report."""
    figures = {
        "date": report.date,
        "commit": report.commit,
        "versions": f"SQLite {report.sqlite}, FAISS {report.faiss}, Python {report.python}, {report.system}",
        "promises": sum(
            any(row.promise == name and row.cases > row.skipped for row in report.rows) for name in PROMISES
        ),
        "tests": len(report.rows),
        "tried": f"{sum(row.tried for row in report.rows):,}",
        "failures": f"{sum(row.failures for row in report.rows):,}",
        "hours": f"{sum(row.seconds for row in report.rows) / 3600:.1f}",
        "commits": len({row.commit.removesuffix("-dirty") for row in report.rows}),
    }
    head, found = (
        Path(__file__).with_name(f"report_{part}.md").read_text(encoding="utf-8").strip() for part in ("head", "found")
    )
    lines = [
        head.format_map(figures),
        "",
        "| | promise | tests | tried | failures | seconds | scale |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
        *(f"| {name} | {title} | {_of_promise(name, report.rows)} |" for name, title in PROMISES.items()),
        "",
        found,
        "",
        "## Every test",
        "",
        "| | test | claim | tried | failures | seconds | scale | seed |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | ---: |",
        *(
            f"| {row.promise} | {row.file.removesuffix('.py')} | {row.claim.replace('|', chr(92) + '|')} "
            f"| {_sums([row])} | {row.scale}{_left_out(row)} | {row.seed} |"
            for row in report.rows
        ),
    ]
    return "\n".join(lines) + "\n"


def _left_out(row: Row) -> str:
    return f" ({row.skipped} not possible here)" if row.skipped else ""


def _of_promise(name: str, tried: Sequence[Row]) -> str:
    rows = [row for row in tried if row.promise == name and row.cases > row.skipped]
    scale = " and ".join(sorted({row.scale for row in rows}))
    return f"{len(rows)} | {_sums(rows)} | {scale}" if rows else f"0 | {NOT_TESTED} | | |"


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
