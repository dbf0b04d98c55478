"""What docs/reports/outside.md says of agmi's edits is what the last run of `make outside-agmi` found, and still so."""

from pathlib import Path

import msgspec
import pytest

from benchmarks.outside.agmi.__main__ import Run, asked, page
from benchmarks.outside.agmi.adapter import ReadsWithWitness

REPORTS = Path(__file__).parents[2] / "docs" / "reports"
FOUND = msgspec.json.decode((REPORTS / "outside-agmi.json").read_bytes(), type=Run)


def test_the_page_says_what_the_last_run_found():
    """It is written by the command alone."""
    assert (REPORTS / "outside.md").read_text(encoding="utf-8") == page(FOUND)


@pytest.mark.parametrize("projections", [True, False], ids=["there", "deleted"])
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_a_read_with_a_witness_rejects_each_edit(encrypt, projections):
    """On SQLite; `make outside-agmi` has PostgreSQL too, and who is asked otherwise."""
    edits = asked(ReadsWithWitness, encrypt=encrypt, projections=projections)
    assert {edit.name: edit.verdict for edit in edits} == dict.fromkeys((edit.name for edit in edits), "REJECTED")
    assert len(edits) == 9
