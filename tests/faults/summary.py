"""How often each promise of the README was tried: `python -m tests.faults.summary` takes it from docs/faults.json."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.faults.report import Report, Row

ROOT = Path(__file__).parents[2]
README, FAULTS = ROOT / "README.md", ROOT / "docs" / "faults.json"
EVERY_RUN = "with every change"
"""Of tests that do not count what they try: they are part of `make test`."""

_PROMISE = re.compile(
    r"^(?P<told>\| [^|]+ \| [^|]+ \| (?P<tests>(?![^|]*tests/adapters)`tests/[^|]+) \|) (?P<tried>[^|]*) \|$",
    re.MULTILINE,
)
_FILE = re.compile(r"tests/faults/(\w+\.py)")


def filled(page: str, rows: Sequence[Row]) -> str:
    """Return the page with what was tried in the last column of its promises."""

    def figure(match: re.Match[str]) -> str:
        files = set(_FILE.findall(match["tests"]))
        found = [row for row in rows if row.file in files]
        tried, failures = sum(row.tried for row in found), sum(row.failures for row in found)
        told = f"{tried:,}, {failures or 'none'} failed" if found else EVERY_RUN
        return f"{match['told']} {told} |"

    return _PROMISE.sub(figure, page)


def known() -> list[Row]:
    """Return what docs/faults.json knows."""
    return msgspec.json.decode(FAULTS.read_bytes(), type=Report).rows


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8"), known()), encoding="utf-8")
