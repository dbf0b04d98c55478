"""Figures on pages are those that their commands wrote last: nobody edits one by hand.

docs/reports/faults.md says of each promise what was tried, and of none more than that.
"""

import json
import re

import msgspec
import pytest

from benchmarks.mechanisms import page as mechanisms
from benchmarks.outside import page as outside
from tests.faults import summary
from tests.faults.promises import NUMBERS, PROMISES, SCALES, number
from tests.faults.report import NOT_TESTED, Report, Row, write
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


def row(promise="P1", test="test_a", **fields):
    usual = {"file": "test_kill.py", "claim": "It holds.", "scale": "ci", "seed": 1, "commit": "c", "cases": 1}
    return Row(promise=promise, test=test, **(usual | {"tried": 10, "seconds": 1.0} | fields))


def lines_of(path, start):
    return [line for line in path.read_text().splitlines() if line.startswith(f"| {start} |")]


def everything(*rows):
    return [row.key for row in rows]


def test_a_promise_that_nothing_has_tried_is_listed_as_not_tested(tmp_path):
    """Also where its only test could not be run here."""
    path = tmp_path / "faults.md"
    skipped = row("P2", tried=0, skipped=1)
    write(path, [row(), skipped], collected=everything(row(), skipped))
    assert len(PROMISES) >= 20
    for name in PROMISES:
        (said, *tests) = lines_of(path, name)
        assert (NOT_TESTED in said) == (name != "P1")
        assert len(tests) == (name in ("P1", "P2"))
    assert "1 not possible here" in lines_of(path, "P2")[1]


def test_cases_of_a_test_make_one_row_and_failures_are_counted(tmp_path):
    """Two cases of one test, one of which failed."""
    path = tmp_path / "faults.md"
    write(path, [row(), row(failures=1, tried=5)], collected=everything(row()))
    (promise, test) = lines_of(path, "P1")
    assert "| 1 | 15 | 1 | 2 | ci |" in promise
    assert "| 15 | 1 | 2 | ci | 1 |" in test


def test_a_later_run_replaces_its_own_rows_and_leaves_the_others(tmp_path):
    """Promises are tried one by one, each with a seed and at a scale of its own."""
    path = tmp_path / "faults.md"
    one, two, three = row(), row("P3", "test_b"), row("P3", "test_c")
    write(path, [one, two, three], collected=everything(one, two, three))
    write(path, [row("P3", "test_b", scale="nightly", seed=7, tried=1_000)], collected=everything(one, two, three))
    kept = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Report).rows
    assert [(found.promise, found.test, found.scale, found.seed, found.tried) for found in kept] == [
        ("P1", "test_a", "ci", 1, 10),
        ("P3", "test_b", "nightly", 7, 1_000),
        ("P3", "test_c", "ci", 1, 10),
    ]
    assert "| 2 | 1,010 | 0 | 2 | ci and nightly |" in lines_of(path, "P3")[0]


def test_rows_of_tests_that_are_gone_go_with_them(tmp_path):
    """As far as their file was looked at."""
    path = tmp_path / "faults.md"
    gone, elsewhere = row(test="test_gone"), row(test="test_other", file="test_drift.py")
    write(path, [gone, elsewhere], collected=everything(gone, elsewhere))
    write(path, [row()], collected=everything(row()))
    kept = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Report).rows
    assert {found.test for found in kept} == {"test_a", "test_other"}


@pytest.mark.parametrize("promise", NUMBERS)
def test_the_larger_scale_tries_at_least_as_much(promise):
    """Of every promise that has numbers."""
    for what in NUMBERS[promise]:
        small, large = (number(promise, what, scale) for scale in SCALES)
        assert 0 < small <= large


def test_the_guarantees_say_how_often_each_was_tried():
    """The figures are those of docs/reports/faults.json, where `python -m tests.faults.summary` takes them from."""
    written = summary.GUARANTEES.read_text(encoding="utf-8")
    assert summary.filled(written, summary.known()) == written
    promises = [line for line in written.splitlines() if line.startswith("| ") and "`tests/" in line]
    counted = [line for line in promises if re.search(r"\| [\d,]+ \|$", line)]
    assert 2 * len(counted) > len(promises), "most of them are counted"


def test_a_failure_is_shown_in_the_guarantees():
    """And a promise whose tests count nothing has no figure."""
    page = "| one | `tests/faults/test_a.py`, `tests/unit/b.py` | 0 |\n| two | `tests/unit/x.py` | 0 |\n"
    rows = [row(file="test_a.py", tried=1_200, failures=2), row(file="test_c.py", tried=7)]
    told = summary.filled(page, rows)
    assert "`tests/unit/b.py` | 1,200, 2 failed |\n" in told
    assert told.endswith("`tests/unit/x.py` | |\n")


def test_pages_stay_short_enough_to_be_read():
    """In words: each page at most 1,500, all of them 60,500, beside decisions and reports."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adapters").glob("*.md")]
    words = {page.name: len(page.read_text().split()) for page in pages}
    assert {name: number for name, number in words.items() if number > 1_500} == {}
    assert sum(words.values()) <= 60_500
