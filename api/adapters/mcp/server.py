"""The server: the tools and the resources of a memory, said in the words of the protocol."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from anyio import BrokenResourceError, ClosedResourceError

from mnemolog.adapters.mcp.sdk import MCPError, Server, stdio_server, types
from mnemolog.domain.errors import MnemologError, SessionError
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.tools import INSTRUCTIONS, TOOLS, Memory, Refusal, Tool, offered
from mnemolog.tools.answers import TURNS_MAX, session_whole

RESOURCES: Final = "mnemolog://sessions"
RESOURCES_PER_PAGE: Final = 100

_log = logging.getLogger(__name__)


def make_server(memory: Memory) -> Any:
    """Return a server of the SDK (`mcp.server.lowlevel.Server`) for any of its transports."""
    speaker = _Speaker(memory)
    return Server(
        "mnemolog",
        title="mnemolog memory",
        instructions=INSTRUCTIONS,
        on_list_tools=speaker.list_tools,
        on_call_tool=speaker.call_tool,
        on_list_resources=speaker.list_resources,
        on_list_resource_templates=speaker.list_templates,
        on_read_resource=speaker.read_resource,
        get_tool_input_schema=speaker.input_schema,
    )


async def serve_stdio(memory: Memory) -> None:
    """Serve one client over standard input and output until it hangs up. All else that prints goes to stderr."""
    server = make_server(memory)
    try:
        async with memory.loading(), stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* (ConnectionError, BrokenResourceError, ClosedResourceError):
        _log.info("the client has gone before it read its answer")


class _Speaker:
    """Answers requests."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tools = offered(memory)

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return self._tools[name].input_schema if name in self._tools else None

    async def list_tools(self, _ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def call_tool(self, _ctx: Any, params: Any) -> Any:
        tool = self._tools.get(params.name)
        if tool is None:
            why = "this server is read-only" if params.name in TOOLS else "there is no such tool"
            raise MCPError(code=types.INVALID_PARAMS, message=f"{params.name}: {why}; tools/list shows what there is")
        answer = await tool.ask(self._memory, params.arguments or {})
        failed = isinstance(answer, Refusal)
        text = str(answer) if failed else msgspec.json.encode(answer).decode()
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=None if failed else msgspec.to_builtins(answer),
            is_error=failed,
        )

    async def list_resources(self, _ctx: Any, params: Any) -> Any:
        after = _position(params.cursor) if params is not None and params.cursor is not None else 0
        found = [item for item in await self._memory.store.sessions() if item.started_position > after]
        page = found[:RESOURCES_PER_PAGE]
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{RESOURCES}/{quote(item.session, safe='')}",
                    name=item.name,
                    description=f"{item.turns} turns, agent {item.agent}, scope {item.scope or '/'}",
                    mime_type="application/json",
                )
                for item in page
            ],
            next_cursor=str(page[-1].started_position) if len(found) > len(page) else None,
        )

    async def list_templates(self, _ctx: Any, _params: Any) -> Any:
        about = f"A session: what it sees of its turns (the newest {TURNS_MAX}), and its working memory"
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
        uri = str(params.uri)
        try:
            made = await self._read(uri)
        except MnemologError as error:
            code = types.INVALID_PARAMS if isinstance(error, SessionError) else types.INTERNAL_ERROR
            raise MCPError(code=code, message=f"{error}; {error.hint}", data={"uri": uri}) from error
        text = msgspec.json.encode(made).decode()
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
                why = f"there is no resource {uri}; resources/list shows what there is"
                raise MCPError(code=types.INVALID_PARAMS, message=why)
        return await session_whole(self._memory, unquote(name), as_of)


def _described(tool: Tool) -> Any:
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.effect == "reads",
            destructive_hint=tool.effect == "hides",
            idempotent_hint=tool.effect in ("reads", "settles"),
            open_world_hint=False,
        ),
    )


def _position(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < len(str(INTEGER_MAX))):
        raise MCPError(code=types.INVALID_PARAMS, message=f"{text!r} is no position of the log")
    return int(text)
