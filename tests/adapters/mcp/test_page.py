"""The page, the example, and what the adapter does to the process that it is imported into."""

from __future__ import annotations

import gc
import re

from pydantic import BaseModel

from mnemolog.tools import TOOLS
from tests.pages import ROOT, run_example


def test_the_page_has_every_tool_and_whether_it_writes():
    """And none that is not there."""
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| .* \| (yes|no) \|$", page, re.MULTILINE)
    told = {name: writes == "yes" for names, writes in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tool.name: tool.effect != "reads" for tool in TOOLS.values()}


def test_the_example_of_a_client_runs(capsys):
    """It starts a server of its own and cleans up behind itself."""
    run_example("mcp_client.py")
    printed = capsys.readouterr().out
    assert "recalled: [('I moved to Lisbon in March.', 2)] ['text']" in printed
    assert "before it was said: []" in printed
    assert "budget: 900" in printed
    assert "refused: UnknownSession: there is no session 'trap'\nhint: nothing was written" in printed


def test_what_hastens_the_import_of_the_sdk_is_taken_back():
    """Other models of the process are built as they always were."""
    assert BaseModel.model_config == {}
    assert gc.isenabled()
