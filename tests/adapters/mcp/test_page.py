"""The page and the example."""

from __future__ import annotations

import re

from mnemolog.adapters.support.agent_tools import TOOLS
from tests.pages import ROOT, run_example


def test_the_page_has_every_tool_and_whether_it_writes():
    """And none that is not there."""
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| .* \| (yes|no) \|$", page, re.MULTILINE)
    told = {name: writes == "yes" for names, writes in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tool.name: tool.effect != "reads" for tool in TOOLS.values()}


def test_the_example_of_a_client_runs(capfd):
    """It starts a server of its own and cleans up behind itself."""
    run_example("mcp_client.py")
    printed = capfd.readouterr().out
    assert "recalled: [('I moved to Lisbon in March.', 2)]" in printed
    assert "before it was said: Nothing was found." in printed
    assert "  budget: 900" in printed
    assert "refused: InvalidArguments: recall has no argument 'limit' (did you mean 'k'?)" in printed
