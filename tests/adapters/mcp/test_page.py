"""The page and the example."""

import re

from mnemolog.adapters.support.agent_tools import TOOLS
from tests.pages import ROOT, assert_example_prints


def test_the_page_has_every_tool_and_whether_it_writes():
    """And none that is not there."""
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| .* \| (yes|no) \|$", page, re.MULTILINE)
    told = {name: writes == "yes" for names, writes in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tool.name: tool.effect != "reads" for tool in TOOLS.values()}


def test_the_example_of_a_client_runs(capfd):
    """It starts a server of its own and cleans up behind itself."""
    assert_example_prints(
        capfd,
        "mcp_client.py",
        "recalled: [('I moved to Lisbon in March.', 2)]",
        "before it was said: Nothing was found.",
        "  budget: 900",
        "refused: InvalidArguments: recall has no argument 'limit' (did you mean 'k'?)",
    )
