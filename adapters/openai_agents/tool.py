"""Tools for an agent of the SDK: recall as text, or all the tools of a memory."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from agents import FunctionTool, function_tool

from mnemolog.adapters.support.agent_tools import Memory, Tool, offered
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.errors import InvalidInput
from mnemolog.projections.recall.answer import Hit
from mnemolog.store import MemoryStore

SHOWN_MAX: Final = 2_000
"""Characters of a turn that the agent sees."""


def recall_tool(
    store: MemoryStore | AsyncMemoryStore, *, scope: str = "", k: int = 5, name: str = "recall", **filters: Any
) -> FunctionTool:
    """Return a tool that finds what was said in a scope before, in any session.

    `filters` are further arguments of `MemoryStore.recall`. Without `roles`, only turns of users and assistants are
    found: outputs of tools, this one included, would look like something that was said.
    """
    recalled, pools = with_pools(store)
    ask = partial(recalled.recall, k=k, scope=scope, **{"roles": ("user", "assistant"), **filters})

    async def recall(query: str) -> str:
        """Find what was said in earlier conversations. Use it before you answer about anything discussed before.

        Args:
            query: What to look for: a question, or words that were used.
        """
        found = await pools.recall(partial(ask, query))
        return "\n".join(map(_line, found.hits)) or "Nothing was found."

    return function_tool(recall, name_override=name)


def memory_tools(memory: Memory, *names: str) -> list[FunctionTool]:
    """Return the tools of a memory with these names, or all: remember, recall, working memory, checkpoints ...

    They are the tools of the MCP server, and answer in text. Raises `InvalidInput` for an unknown name.
    """
    there = offered(read_only=memory.read_only, proposes=memory.proposes)
    if unknown := set(names) - there.keys():
        raise InvalidInput("names", f"there is no tool {', '.join(sorted(unknown))}; there are {', '.join(there)}")
    return [
        FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=tool.input_schema,
            on_invoke_tool=partial(_ask, memory, tool),
            strict_json_schema=False,  # Arguments are optional.
        )
        for tool in (there[name] for name in names or there)
    ]


async def _ask(memory: Memory, tool: Tool, _context: Any, arguments: str) -> str:
    try:
        given = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError as error:
        return f"InvalidArguments: {error}"
    return str(await tool.ask(memory, given))


def _line(hit: Hit) -> str:
    text = hit.text if len(hit.text) <= SHOWN_MAX else f"{hit.text[:SHOWN_MAX]}…"
    place = f"session {hit.session}, position {hit.position}"
    return f"[{hit.said_at:%Y-%m-%d}, {place}, relevance {hit.relevance:.2f}] {hit.role}: {text}"
