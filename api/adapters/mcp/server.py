"""The server: the tools and the resources of a memory, said in the words of the protocol."""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec
from anyio import BrokenResourceError, ClosedResourceError

from mnemolog.adapters.mcp import tools
from mnemolog.adapters.mcp.catalogue import TOOLS
from mnemolog.adapters.mcp.memory import Memory
from mnemolog.adapters.mcp.sdk import MCPError, Server, stdio_server, types
from mnemolog.adapters.mcp.tool import Tool
from mnemolog.domain.errors import MnemologError, SessionError
from mnemolog.domain.limits import INTEGER_MAX

RESOURCES: Final = "mnemolog://sessions"
RESOURCES_PER_PAGE: Final = 100
TURNS_PER_RESOURCE: Final = 50
INSTRUCTIONS: Final = """\
A memory that keeps every turn for ever, and can tell what was known at any position of its log. Begin with
session_current or session_start. Record every turn as it is said. Recall before you answer what may have been talked
about before. Positions in answers are places in the log: give one as `as_of` to ask again as of then.\
"""
NOTHING_DONE: Final = "nothing was written; correct the arguments and call again"

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
    """Answers requests. Whatever goes wrong is an answer too: no call of one client ends the service of others."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._tools = {name: tool for name, tool in TOOLS.items() if tool.effect == "reads" or not memory.read_only}

    def input_schema(self, name: str) -> dict[str, Any] | None:
        return self._tools[name].input_schema if name in self._tools else None

    async def list_tools(self, _ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def call_tool(self, _ctx: Any, params: Any) -> Any:
        tool = self._tools.get(params.name)
        if tool is None:
            why = "this server is read-only" if params.name in TOOLS else "there is no such tool"
            raise MCPError(code=types.INVALID_PARAMS, message=f"{params.name}: {why}; tools/list shows what there is")
        try:
            answer = await tool.call(self._memory, params.arguments or {})
        except msgspec.ValidationError as error:
            return _failed(f"InvalidArguments: {error}", NOTHING_DONE)
        except MnemologError as error:
            return _failed(f"{type(error).__name__}: {error}", error.hint)
        except Exception as error:
            _log.exception("tool %s failed", params.name)
            return _failed(f"internal error: {error!r}", "timeline shows what was written; the server's log has more")
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=msgspec.json.encode(answer).decode())],
            structured_content=msgspec.to_builtins(answer),
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
        about = "A session: what it sees of its turns (the newest 50), and its working memory"
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
        position = (await self._memory.store.head()).position
        session = await self._memory.store.session(unquote(name))
        view = session if as_of is None else await session.at(as_of)
        turns = await view.turns(newest_first=True, limit=TURNS_PER_RESOURCE)
        mind = await tools.memory_read(self._memory, session=session.id, as_of=as_of)
        about: dict[str, Any] = msgspec.to_builtins(await tools.session_now(session)) | msgspec.to_builtins(mind)
        return about | {"position": position if as_of is None else as_of, "turns": turns[::-1]}


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


def _failed(what: str, hint: str) -> Any:
    text = f"{what}\nhint: {hint}" if hint else what
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def _position(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < len(str(INTEGER_MAX))):
        raise MCPError(code=types.INVALID_PARAMS, message=f"{text!r} is no position of the log")
    return int(text)
