"""The MCP server: the tools of a memory."""

from __future__ import annotations

import logging
from importlib.metadata import version
from time import monotonic
from typing import Any

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from mnemolog.adapters.mcp.opening import OpeningMemory
from mnemolog.adapters.support.agent_tools import (
    INSTRUCTIONS,
    TOOLS,
    Answer,
    Memory,
    Refusal,
    Tool,
    Toolset,
    offered,
)
from mnemolog.domain.encoding import printable
from mnemolog.domain.errors import MnemologError

_log = logging.getLogger(__name__)


def make_server(memory: Memory | OpeningMemory, *, tools: Toolset = "core") -> Any:
    """Return a server of the SDK (`mcp.server.lowlevel.Server`) for any of its transports."""
    requests = _Requests(memory, offered(tools, read_only=memory.read_only))
    return Server(
        "mnemolog",
        version=version("mnemolog"),
        title="Memory by mnemolog",
        instructions=INSTRUCTIONS.format(folder=printable(str(memory.folder))),
        on_list_tools=requests.list_tools,
        on_call_tool=requests.call_tool,
        get_tool_input_schema=requests.input_schema,
    )


async def serve_stdio(memory: Memory | OpeningMemory, *, tools: Toolset = "core") -> None:
    """Serve one client over standard input and output until it disconnects. Everything else printed goes to stderr.

    An error at opening the memory is the answer to every call, which tries again. It is raised after the client has
    disconnected.
    """
    server = make_server(memory, tools=tools)
    try:
        service = memory if isinstance(memory, OpeningMemory) else memory.loading()
        async with service, stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* (ConnectionError, BrokenResourceError, ClosedResourceError):
        _log.info("the client disconnected before it read its answer")


class _Requests:
    """Answers requests; those that need the memory wait until it is open."""

    def __init__(self, memory: Memory | OpeningMemory, tools: dict[str, Tool]) -> None:
        self._memory, self._tools = memory, tools

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return self._tools[name].input_schema if name in self._tools else None

    async def list_tools(self, _ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def call_tool(self, _ctx: Any, params: Any) -> Any:
        tool = self._tools.get(params.name)
        answer = self._unknown(params.name) if tool is None else await self._ask(tool, params.arguments or {})
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=printable(str(answer)))], is_error=isinstance(answer, Refusal)
        )

    def _unknown(self, name: str) -> Refusal:
        why = "this server does not offer it" if name in TOOLS else "there is no such tool"
        hint = "nothing here erases; the user can, with `mnemolog forget`"
        return Refusal(what=f"{name}: {why}; it has {', '.join(self._tools)}", hint=hint)

    async def _ask(self, tool: Tool, arguments: dict[str, Any]) -> Answer[Any] | Refusal:
        began = monotonic()
        try:
            memory = await self._memory.memory()
        except MnemologError as error:
            return Refusal.of(error)
        answer = await tool.ask(memory, arguments)
        if isinstance(answer, Refusal):
            await memory.before_refusal(began)
        return answer


def _described(tool: Tool) -> Any:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.effect == "reads",
            destructive_hint=tool.effect == "hides",
            idempotent_hint=tool.effect in ("reads", "settles"),
            open_world_hint=False,
        ),
    )
