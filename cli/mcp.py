"""The command that serves a store to agents, as an MCP server."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Annotated, Any, cast, get_args

import typer

from mnemolog.adapters.extras import require
from mnemolog.adapters.support.agent_tools import Toolset
from mnemolog.adapters.support.agent_tools.memory import opened
from mnemolog.cli.app import ModelName, Receipts, Store, StoreCommand, app, chosen_model
from mnemolog.cli.serve import AllowHost, AllowOrigin, Host, Port
from mnemolog.defaults import DEFAULT_AGENT, DEFAULT_MODEL
from mnemolog.domain.errors import InvalidInput


@app.command("mcp", cls=StoreCommand)
def mcp(
    store: Store,
    http: Annotated[
        bool, typer.Option("--http", help="Serve HTTP to programs of this machine instead of stdin and stdout.")
    ] = False,
    host: Host = "127.0.0.1",
    port: Port = 8765,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    agent: Annotated[
        str, typer.Option("--agent", help="Agent whose sessions are used if a call names none.")
    ] = DEFAULT_AGENT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Offer no tool that writes to the log.")] = False,
    receipts: Receipts = False,
    tools: Annotated[
        str, typer.Option("--tools", metavar="core|full", help="core: the seven that a model needs. full: all.")
    ] = "core",
    scope: Annotated[list[str] | None, typer.Option("--scope", help="Serve only this scope; may be repeated.")] = None,
    model: ModelName = DEFAULT_MODEL,
) -> None:
    """Serve the store to agents as an MCP server, and create it if it does not exist. Needs the extra 'mcp'.

    With --http it is `mnemolog serve` with MCP alone, for this machine. There, a token of the store may be sent.

    Example: claude mcp add memory -- mnemolog mcp memory/
    """
    from mnemolog.adapters.mcp import OpeningMemory, serve_stdio

    if tools not in get_args(Toolset):
        raise InvalidInput("tools", f"{tools!r} is none of {', '.join(get_args(Toolset))}")
    toolset = cast(Toolset, tools)
    how: dict[str, Any] = {"model": chosen_model(model), "receipts": receipts and not read_only, "scope": scope or ""}
    logging.basicConfig(level=logging.WARNING)  # To stderr: stdout carries the protocol.
    if http:
        require("mcp", "prometheus_client", "starlette", "uvicorn")
        from mnemolog.server.application import serve_store
        from mnemolog.server.http.config import ServerConfig, is_loopback

        if not is_loopback(host):
            raise InvalidInput(
                "host", f"{host} is not a loopback address; other machines use the /mcp of `mnemolog serve`"
            )
        config = ServerConfig(
            host=host,
            port=port,
            hosts=allow_host or (),
            origins=allow_origin or (),
            mcp_only=True,
            agent=agent,
            tools=toolset,
        )
        how |= {"read_only": read_only, "create": not read_only}
        asyncio.run(serve_store(store, config, started=lambda url: typer.echo(f"serving at {url}mcp"), **how))
        return
    memory = partial(opened, store, agent=agent, read_only=read_only, **how)
    asyncio.run(serve_stdio(OpeningMemory(store, memory, read_only=read_only), tools=toolset))
