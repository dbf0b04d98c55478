"""Figures on pages are those that their commands wrote last: nobody edits one by hand."""

import json
import re

import pytest

from benchmarks.mechanisms import page as mechanisms
from benchmarks.outside import page as outside
from tests.pages import ROOT

REPORTS = ROOT / "docs" / "reports"
FOUND = json.loads((REPORTS / "mechanisms.json").read_text())
MADE = {
    "docs/comparison.md": lambda text: mechanisms.with_table(text, FOUND),
    "docs/reports/mechanisms.md": lambda _: mechanisms.page(FOUND),
    "docs/reports/outside.md": lambda _: outside.page(),
}


@pytest.mark.parametrize("page", MADE)
def test_a_page_has_the_figures_that_its_commands_wrote(page):
    """`make mechanisms`, `make outside-…`."""
    text = (ROOT / page).read_text()
    assert text == MADE[page](text)


def test_the_five_figures_of_the_readme_are_those_of_the_last_reports():
    """Kills, edits, first hits in the worst and the best kind of conversation, a turn against an INSERT, memory."""
    rows = [row for row in json.loads((REPORTS / "faults.json").read_text())["rows"] if row["promise"] == "P1"]
    lines = json.loads((REPORTS / "outside-agmi.json").read_text())["lines"]
    refused = {line["asked"]: str(sum(edit["verdict"] == "REJECTED" for edit in line["edits"])) for line in lines}
    quality = (REPORTS / "recall-quality.md").read_text()
    hits = re.findall(r"^\| (?:locomo|assistant|qmsum)-dev, left out (?:\|[^|]+){2}\| (\S+)", quality, re.M)[:3]
    among = sorted(map(float, hits))
    assert re.findall(
        r"^\| .*?(?: in ([\d,]+) [^|]*)?\| ([^|]+) \| \[`make", (ROOT / "README.md").read_text(), re.M
    ) == [
        (f"{sum(row['tried'] for row in rows):,}", str(sum(row["failures"] for row in rows))),
        ("", ", ".join(refused[f"mnemolog, {asked}"] for asked in ("reads", "reads with witness="))),
        ("", f"{among[0] * 100:.0f} to {among[-1] * 100:.0f} %"),
        (
            "",
            re.search(r"synchronous=FULL, p50 (?:\|[^|]+){2}\| (\S+)", (REPORTS / "bench.md").read_text())[1]
            + " \N{MULTIPLICATION SIGN}",
        ),
        ("", re.search(r"after 200 recalls \| 1,000,000 \| ([^|]+) \|", (REPORTS / "bench-scale.md").read_text())[1]),
    ]
