"""The command that serves a store to agents, as an MCP server."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Final, cast, get_args

import typer

from mnemolog.cli.address import ADDRESS, AllowHost, AllowOrigin, Host, Port
from mnemolog.cli.app import ModelName, Receipts, Store, StoreCommand, app, chosen_model
from mnemolog.defaults import DEFAULT_AGENT, DEFAULT_MODEL
from mnemolog.domain.errors import InvalidInput

if TYPE_CHECKING:
    from mnemolog.adapters.support.agent_tools import Memory

TOKEN_VARIABLE: Final = "MNEMOLOG_MCP_TOKEN"

Http = Annotated[
    bool, typer.Option("--http", help="Serve streamable HTTP at --host and --port instead of stdin and stdout.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        envvar=TOKEN_VARIABLE,
        help="Bearer token of clients. Required for other machines; the variable keeps it out of `ps`.",
        rich_help_panel=ADDRESS,
    ),
]
Tools = Annotated[
    str, typer.Option("--tools", metavar="core|full", help="core: the six that a model needs. full: all.")
]


@app.command("mcp", cls=StoreCommand)
def mcp(
    store: Store,
    http: Http = False,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    token: Token = None,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    agent: Annotated[
        str, typer.Option("--agent", help="Agent whose sessions are used if a call names none.")
    ] = DEFAULT_AGENT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no tool that writes to the log.")] = False,
    receipts: Receipts = False,
    tools: Tools = "core",
    scope: Annotated[str, typer.Option("--scope", help="Serve only this scope: nothing outside of it.")] = "",
    model: ModelName = DEFAULT_MODEL,
) -> None:
    """Serve the store to agents as an MCP server, and create it if it does not exist. Needs the extra 'mcp'.

    Example: claude mcp add memory -- mnemolog mcp memory/
    """
    from mnemolog.adapters.mcp import OpeningMemory, serve_stdio
    from mnemolog.adapters.support.agent_tools import Toolset
    from mnemolog.adapters.support.agent_tools.memory import opened
    from mnemolog.server.mcp_bind import BindConfig
    from mnemolog.server.mcp_http import serve_http

    def memory() -> AbstractAsyncContextManager[Memory]:
        kept = receipts and not read_only
        return opened(store, agent=agent, read_only=read_only, model=chosen_model(model), receipts=kept, scope=scope)

    async def serve() -> None:
        if not http:
            return await serve_stdio(OpeningMemory(store, memory, read_only=read_only), tools=toolset)
        async with memory() as served:
            return await serve_http(served, bind, tools=toolset)

    if tools not in get_args(Toolset):
        raise InvalidInput("tools", f"{tools!r} is none of {', '.join(get_args(Toolset))}")
    toolset = cast(Toolset, tools)
    bind = BindConfig(host=host, port=port, token=token, hosts=allow_host or (), origins=allow_origin or ())
    if http:
        bind.check()
    logging.basicConfig(level=logging.WARNING)  # To stderr: stdout carries the protocol.
    asyncio.run(serve())
