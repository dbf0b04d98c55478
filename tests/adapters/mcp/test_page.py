"""The page, the example, and what the adapter does to the process that it is imported into."""

from __future__ import annotations

import re
import subprocess
import sys

import msgspec
import pytest

from mnemolog.adapters.mcp.offer import Offer, make_offer, read_offer
from mnemolog.adapters.support.agent_tools import TOOLS
from tests.pages import ROOT, run_example


def test_the_page_has_every_tool_and_whether_it_writes():
    """And none that is not there."""
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| .* \| (yes|no) \|$", page, re.MULTILINE)
    told = {name: writes == "yes" for names, writes in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {tool.name: tool.effect != "reads" for tool in TOOLS.values()}


def test_what_clients_are_told_is_what_the_library_has():
    """The file is made of its signatures: `python -m mnemolog.adapters.mcp.offer` after they have changed."""
    assert read_offer() == msgspec.json.decode(msgspec.json.encode(make_offer()), type=Offer)


def test_the_example_of_a_client_runs(capfd):
    """It starts a server of its own and cleans up behind itself."""
    run_example("mcp_client.py")
    printed = capfd.readouterr().out
    assert "recalled: [('I moved to Lisbon in March.', 2)] ['text']" in printed
    assert "before it was said: []" in printed
    assert "budget: 900" in printed
    assert "refused: UnknownSession: no session has the id 'trap'\nhint: nothing was written" in printed


@pytest.mark.parametrize("first", ["", "import mcp"])
def test_what_hastens_the_import_of_the_sdk_is_taken_back(first):
    """Other models of the process are built as they always were, and its packages have all that they have."""
    script = f"""
{first}
from mnemolog.adapters.mcp import sdk
from pydantic import BaseModel, TypeAdapter
import gc, mcp, mcp.server
assert gc.isenabled()
assert BaseModel.model_config == {{}}
assert TypeAdapter(int | None).pydantic_complete
assert mcp.server.lowlevel.Server is sdk.Server
assert all(hasattr(mcp, name) for name in mcp.__all__), mcp.__all__
assert mcp.ClientSession.__module__ == "mcp.client.session"
from mcp.server import MCPServer
assert not hasattr(mcp, "nothing")
assert mcp.__file__.endswith("__init__.py") and mcp.__spec__.name == "mcp"
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_client_is_greeted_before_what_takes_long_is_imported():
    """What only clients need takes a fifth of the SDK's time, the store as much as the SDK."""
    late = ["mcp.client", "mnemolog.store", "mnemolog.adapters.support.agent_tools", "sqlalchemy", "numpy"]
    script = f"""
import sys
from mnemolog.cli.app import application
application("mcp")
from mnemolog.adapters.mcp import PendingMemory, make_server
make_server(PendingMemory(None, read_only=True))
assert not (early := [name for name in {late} if name in sys.modules]), early
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
