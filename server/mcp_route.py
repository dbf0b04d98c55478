"""MCP over HTTP: without sessions, so that nothing is shared between callers."""

import asyncio
from pathlib import Path
from time import monotonic
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from mnemolog.adapters.mcp.server import make_server
from mnemolog.adapters.support.agent_tools import Memory, Toolset
from mnemolog.server.http.authentication import Caller, until_refusal_s
from mnemolog.server.http.guard import Bodies
from mnemolog.server.http.routes import MCP_PATH


def mcp_route(served: Memory, bodies: Bodies, *, tools: Toolset = "core") -> Route:
    """Return the route of MCP, for an application that sets `request.state.caller`.

    A caller gets those of `tools` that its verbs allow, on its part of the memory; `?tools=full` offers all of them.
    There are no sessions, so that a stream (GET) would be silent, and there is none to end (DELETE): both are 405.
    """
    return Route(MCP_PATH, endpoint=_Endpoint(served, bodies, tools), methods=["GET", "POST", "DELETE"])


class _Endpoint:
    def __init__(self, served: Memory, bodies: Bodies, tools: Toolset) -> None:
        self._served = served
        self._bodies = bodies
        self._tools = tools

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        caller: Caller = request.state.caller
        if scope["method"] != "POST":
            raise HTTPException(405, headers={"Allow": "POST"})
        caller.require("read", "MCP")
        memory = _Part(self._served, caller)
        tools: Toolset = "full" if request.query_params.get("tools") == "full" else self._tools
        # One for each request: whatever it keeps ends with it.
        manager = StreamableHTTPSessionManager(make_server(memory, tools=tools), stateless=True)
        async with self._bodies.read(request, caller, large=True) as body, manager.run():
            read: Any = iter([{"type": "http.request", "body": bytes(body), "more_body": False}])

            async def again() -> Any:
                return next(read, None) or await receive()

            await manager.handle_request(scope, again, send)


class _Part(Memory):
    """The memory as a caller may see it."""

    def __init__(self, served: Memory, caller: Caller) -> None:
        super().__init__(caller.store, agent=served.agent, read_only=served.read_only or not caller.may("record"))
        self.model = served.model
        self.proposes = served.proposes and caller.may("propose")
        self.one_person_approves = False
        self._is_bound = bool(caller.scopes)

    async def before_refusal(self, began: float) -> None:
        """Wait so that a refusal comes at a fixed time after the call, or a multiple of it."""
        if self._is_bound:
            await asyncio.sleep(until_refusal_s(began, monotonic()))

    @property
    def folder(self) -> Path:
        """What models are shown in place of the folder, which is on another machine."""
        return Path("DIR")
