"""What clients are told before there is a store: instructions and tools, in a file beside this one.

They are made of signatures (`support.agent_tools`), whose import takes as long as the SDK's. When those have
changed, `python -m mnemolog.adapters.mcp.offer` writes the file anew; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

FILE: Final = Path(__file__).with_name("offer.json")


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as clients see it. See `mnemolog.adapters.support.agent_tools.Tool`."""

    name: str
    description: str
    effect: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What the server offers."""

    instructions: str
    tools: list[OfferedTool]


def read_offer() -> Offer:
    """Return what the file has."""
    return msgspec.json.decode(FILE.read_bytes(), type=Offer)


def make_offer() -> Offer:
    """Return what the file has to have."""
    from mnemolog.adapters.support.agent_tools import INSTRUCTIONS, TOOLS

    tools = [msgspec.convert(tool, OfferedTool, from_attributes=True) for tool in TOOLS.values()]
    return Offer(instructions=INSTRUCTIONS, tools=tools)


def write_offer() -> None:
    """Bring the file up to date."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(make_offer()), indent=1) + b"\n")


if __name__ == "__main__":
    write_offer()
