"""Fill in how often each promise of docs/guarantees.md was tried, from docs/reports/faults.json."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.faults.report import Report, Row

ROOT = Path(__file__).parents[2]
GUARANTEES, FAULTS = ROOT / "docs" / "guarantees.md", ROOT / "docs" / "reports" / "faults.json"

_PROMISE = re.compile(
    r"^(?P<start>\| [^|]+ \| (?P<tests>(?![^|]*tests/adapters)`tests/[^|]+) \|)[^|]*\|$", re.MULTILINE
)
_FILE = re.compile(r"tests/faults/(\w+\.py)")


def filled(page: str, rows: Sequence[Row]) -> str:
    """Return `page` with the number of tries in the last column of each promise.

    Empty for tests that do not count tries, and with the number of failures if there are any.
    """

    def figure(match: re.Match[str]) -> str:
        files = set(_FILE.findall(match["tests"]))
        found = [row for row in rows if row.file in files]
        tried, failures = sum(row.tried for row in found), sum(row.failures for row in found)
        tries = f" {tried:,}" if found else ""
        return f"{match['start']}{tries}{f', {failures} failed' if failures else ''} |"

    return _PROMISE.sub(figure, page)


def known() -> list[Row]:
    """Return the rows of docs/reports/faults.json."""
    return msgspec.json.decode(FAULTS.read_bytes(), type=Report).rows


if __name__ == "__main__":
    GUARANTEES.write_text(filled(GUARANTEES.read_text(encoding="utf-8"), known()), encoding="utf-8")
