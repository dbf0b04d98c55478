"""The MCP server: the tools and the resources of a memory."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from time import monotonic
from typing import Any, Final
from urllib.parse import quote, unquote

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

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
from mnemolog.adapters.support.agent_tools.answers import TURNS_MAX, session_whole
from mnemolog.domain.display import counted
from mnemolog.domain.encoding import printable, to_json
from mnemolog.domain.errors import MnemologError, SessionError
from mnemolog.domain.limits import INTEGER_MAX

RESOURCES: Final = "mnemolog://sessions"
RESOURCES_PER_PAGE: Final = 100

_log = logging.getLogger(__name__)


def make_server(memory: Memory | OpeningMemory, *, tools: Toolset = "core") -> Any:
    """Return a server of the SDK (`mcp.server.lowlevel.Server`) for any of its transports."""
    requests = _Requests(memory, offered(memory, tools))
    return Server(
        "mnemolog",
        version=version("mnemolog"),
        title="Memory by mnemolog",
        instructions=INSTRUCTIONS.format(folder=printable(str(memory.folder))),
        on_list_tools=requests.list_tools,
        on_call_tool=requests.call_tool,
        on_list_resources=requests.list_resources,
        on_list_resource_templates=requests.list_templates,
        on_read_resource=requests.read_resource,
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
        self._memory: Callable[[], Awaitable[Memory]]
        if isinstance(memory, OpeningMemory):
            self._memory = memory.memory
        else:

            async def present() -> Memory:
                return memory

            self._memory = present
        self._tools = tools

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
            memory = await self._memory()
        except MnemologError as error:
            return Refusal.of(error)
        answer = await tool.ask(memory, arguments)
        if isinstance(answer, Refusal):
            await memory.before_refusal(began)
        return answer

    async def list_resources(self, _ctx: Any, params: Any) -> Any:
        after = _position(params.cursor) if params is not None and params.cursor is not None else 0
        memory = await self._opened()
        found = [item for item in await memory.store.sessions() if item.started_position > after]
        page = found[:RESOURCES_PER_PAGE]
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{RESOURCES}/{quote(item.session, safe='')}",
                    name=item.title or item.session,
                    description=f"{counted(item.turns, 'turn')}, agent {item.agent}, scope {item.scope or '/'}",
                    mime_type="application/json",
                )
                for item in page
            ],
            next_cursor=str(page[-1].started_position) if len(found) > len(page) else None,
        )

    async def _opened(self) -> Memory:
        try:
            return await self._memory()
        except MnemologError as error:
            raise MCPError(code=types.INTERNAL_ERROR, message=printable(f"{error}; {error.hint}")) from error

    async def list_templates(self, _ctx: Any, _params: Any) -> Any:
        about = f"A session: the newest {TURNS_MAX} turns that it sees, and its working memory"
        shapes = {"session": ("{session}", about), "session_at": ("{session}/at/{position}", f"{about}, at a position")}
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=f"{RESOURCES}/{shape}", name=name, description=text, mime_type="application/json"
                )
                for name, (shape, text) in shapes.items()
            ]
        )

    async def read_resource(self, _ctx: Any, params: Any) -> Any:
        uri, began = str(params.uri), monotonic()
        try:
            made = await self._read(uri)
        except MnemologError as error:
            with suppress(MnemologError):  # It may be the memory that cannot be opened.
                await (await self._memory()).before_refusal(began)
            code = types.INVALID_PARAMS if isinstance(error, SessionError) else types.INTERNAL_ERROR
            message = printable(f"{error}; {Refusal.of(error).hint}")
            raise MCPError(code=code, message=message, data={"uri": uri}) from error
        text = to_json(made).decode()
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, mime_type="application/json", text=text)]
        )

    async def _read(self, uri: str) -> dict[str, Any]:
        match uri.removeprefix(f"{RESOURCES}/").split("/"):
            case [name] if uri.startswith(f"{RESOURCES}/"):
                as_of = None
            case [name, "at", at] if uri.startswith(f"{RESOURCES}/"):
                as_of = _position(at)
            case _:
                why = f"there is no resource {uri}; resources/list lists the resources"
                raise MCPError(code=types.INVALID_PARAMS, message=why)
        memory = await self._memory()
        return await session_whole(memory, unquote(name), as_of)


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


def _position(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < len(str(INTEGER_MAX))):
        raise MCPError(code=types.INVALID_PARAMS, message=f"{text!r} is not a log position")
    return int(text)
