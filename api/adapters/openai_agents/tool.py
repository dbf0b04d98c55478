"""Recall as a tool that an agent calls."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from agents import FunctionTool, function_tool

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.projections.recall import Hit
from mnemolog.seam import in_lanes
from mnemolog.store import MemoryStore

SHOWN_MAX: Final = 2_000
"""Characters of a turn that the agent is shown."""


def recall_tool(
    store: MemoryStore | AsyncMemoryStore, *, scope: str = "", k: int = 5, name: str = "recall", **filters: Any
) -> FunctionTool:
    """Return a tool that finds what was said in a scope before, in any session.

    `filters` are further ones of `MemoryStore.recall`. Only messages are found, of users and assistants, unless
    `roles` says otherwise: what tools gave out, this one included, would come back as if it had been said.
    """
    recalled, lanes = in_lanes(store)
    ask = partial(recalled.recall, k=k, scope=scope, **{"roles": ("user", "assistant"), **filters})

    async def recall(query: str) -> str:
        """Find what was said in earlier conversations. Use it before you answer what may have been talked about.

        Args:
            query: What to look for: a question, or words that were used.
        """
        found = await lanes.recall(partial(ask, query))
        return "\n".join(map(_line, found.hits)) or "Nothing was found."

    return function_tool(recall, name_override=name)


def _line(hit: Hit) -> str:
    text = hit.text if len(hit.text) <= SHOWN_MAX else f"{hit.text[:SHOWN_MAX]}…"
    return f"[{hit.said_at:%Y-%m-%d}, session {hit.session}, position {hit.position}] {hit.role}: {text}"
