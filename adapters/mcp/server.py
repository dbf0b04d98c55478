"""The MCP server: the tools of a memory, which may still be opened."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from getpass import getuser
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

import mcp_types as types
import msgspec
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

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
from mnemolog.adapters.support.agent_tools.catalogue import ProposedFact
from mnemolog.domain.encoding import printable
from mnemolog.domain.errors import MnemologError
from mnemolog.domain.request import acting_as

_log = logging.getLogger(__name__)
_FORM: Final = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve", "default": False}},
    "required": ["approve"],
}
"""What a person is asked about a proposed fact. Whatever else is answered leaves it open."""
_ASKS: Final = types.ClientCapabilities(elicitation=types.ElicitationCapability())


class OpeningMemory:
    """A memory that is opened when this is entered, and closed when it is left.

    `open_memory` returns the context manager that opens it. An error at opening is raised by `memory`, whose next call
    tries again; if the memory was never opened, leaving raises the last error.
    """

    def __init__(
        self, folder: Path, open_memory: Callable[[], AbstractAsyncContextManager[Memory]], *, read_only: bool
    ) -> None:
        self.folder = folder
        self.read_only = read_only
        self.proposes = not read_only
        self._open_memory = open_memory
        self._stack = AsyncExitStack()
        self._opening: asyncio.Task[Memory] | None = None

    async def __aenter__(self) -> Self:
        self._opening = asyncio.create_task(self._open())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opening is not None
        await asyncio.wait([self._opening])
        await self._stack.aclose()
        if (failed := self._opening.exception()) is not None:
            raise failed

    async def memory(self) -> Memory:
        """Return the memory, waiting until it is open. Raises the error that prevents it from being opened."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Memory:
        try:
            memory = await self._stack.enter_async_context(self._open_memory())
        except MnemologError as error:
            _log.error("%s: %s; %s", type(error).__name__, error, error.hint)
            raise
        except Exception:
            _log.exception("the store could not be opened")
            raise
        await self._stack.enter_async_context(memory.loading())
        return memory


def make_server(memory: Memory | OpeningMemory, *, tools: Toolset = "core") -> Any:
    """Return a server of the SDK (`mcp.server.lowlevel.Server`) for any of its transports."""
    requests = _Requests(memory, offered(tools, read_only=memory.read_only, proposes=memory.proposes))
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
        return types.ListToolsResult(
            tools=[
                types.Tool(
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
                for tool in self._tools.values()
            ]
        )

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        tool = self._tools.get(params.name)
        answer = self._unknown(params.name) if tool is None else await self._ask(tool, params.arguments or {})
        if isinstance(answer, Answer) and isinstance(answer.result, ProposedFact):
            answer = await self._decided(ctx, answer)
        text = str(answer)
        is_json = isinstance(answer, Answer) and not isinstance(answer.result, str)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=printable(text))],
            structured_content=msgspec.json.decode(text) if is_json else None,
            is_error=isinstance(answer, Refusal),
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

    async def _decided(self, ctx: Any, answer: Answer[ProposedFact]) -> Answer[ProposedFact]:
        """Ask the person at the client whether a fact holds, where one person may decide that. Else it stays open."""
        memory = await self._memory.memory()
        if not (memory.one_person_approves and ctx.session.check_client_capability(_ASKS)):
            return answer
        with suppress(MCPError, MnemologError, OSError, KeyError, ImportError):
            (item,) = await memory.store.proposals(after=answer.result.proposal - 1, limit=1)
            asked = f"{getattr(item.act, 'key', '')} = {item.then!r}, which is now {item.now!r}. {item.why}"
            said = await ctx.session.elicit_form(printable(asked), _FORM, ctx.request_id)
            if said.action == "accept" and (said.content or {}).get("approve") is True:
                with acting_as(f"{getuser()} (asked over MCP)"):
                    (done,) = await memory.store.approve(item)
                return Answer(position=answer.position, result=msgspec.structs.replace(answer.result, state=done.state))
        return answer
