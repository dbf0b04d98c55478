"""docs/reports/outside.md says what the last runs found, and what it says of agmi's edits is still so."""

from pathlib import Path

import pytest

from benchmarks.outside.agmi.__main__ import asked
from benchmarks.outside.agmi.adapter import ReadsWithWitness
from benchmarks.outside.page import page

PAGE = Path(__file__).parents[2] / "docs" / "reports" / "outside.md"


def test_the_page_says_what_the_last_run_found():
    """It is written by the commands alone."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("projections", [True, False], ids=["there", "deleted"])
@pytest.mark.parametrize("encrypt", [True, False], ids=["encrypted", "plain"])
def test_a_read_with_a_witness_rejects_each_edit(encrypt, projections):
    """On SQLite; `make outside-agmi` has PostgreSQL too, and who is asked otherwise."""
    edits = asked(ReadsWithWitness, encrypt=encrypt, projections=projections)
    assert {edit.name: edit.verdict for edit in edits} == dict.fromkeys((edit.name for edit in edits), "REJECTED")
    assert len(edits) == 9
