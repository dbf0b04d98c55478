"""The command that serves a store over HTTP."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli.app import RECEIPTS_VARIABLE, ModelName, StoreCommand, app, chosen_model
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.structured_log import ROOT

REACH, LIMITS = "Address and access", "Limits"
PORT_MAX = 65_535

Served = Annotated[
    str, typer.Argument(metavar="DIR", help="Folder of the store, or URL of the PostgreSQL database of its log.")
]
Log = Annotated[str | None, typer.Option("--log", help="In a database: the name of the log.")]
Local = Annotated[Path | None, typer.Option("--local", help="With --log: the store's folder on this machine.")]
Host = Annotated[str, typer.Option("--host", help="Address to listen at.", rich_help_panel=REACH)]
Port = Annotated[
    int, typer.Option("--port", min=0, max=PORT_MAX, help="Port; 0 for any free one.", rich_help_panel=REACH)
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, in PEM.", rich_help_panel=REACH)
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, in PEM.", rich_help_panel=REACH)
]
BehindProxy = Annotated[
    bool,
    typer.Option("--behind-proxy", help="A reverse proxy terminates TLS: believe its headers.", rich_help_panel=REACH),
]
Proxies = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy-address",
        metavar="ADDRESS",
        help="Address or network of the proxy; by default this machine.",
        rich_help_panel=REACH,
    ),
]
RequireToken = Annotated[
    bool, typer.Option("--require-token", help="Ask this machine's requests for a token, too.", rich_help_panel=REACH)
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="Another allowed host name, with port or ':*'.", rich_help_panel=REACH),
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--allow-origin", help="An allowed origin of other web pages.", rich_help_panel=REACH),
]
Backups = Annotated[
    Path | None, typer.Option("--backups", metavar="FOLDER", help="Make backups that callers ask for in here.")
]
BackupKeys = Annotated[
    Path | None,
    typer.Option("--backup-keys", metavar="FOLDER", help="Copy the keys of the content there with each backup."),
]
OpenTelemetry = Annotated[
    bool, typer.Option("--opentelemetry", help="Report spans and metrics to OpenTelemetry (extra 'otel').")
]
BodyMax = Annotated[
    int, typer.Option("--body-max", metavar="BYTES", min=1024, help="Largest request body.", rich_help_panel=LIMITS)
]
Rate = Annotated[
    int | None,
    typer.Option(
        "--requests-per-minute",
        min=1,
        help="Requests of one token in a minute; any number if not given.",
        rich_help_panel=LIMITS,
    ),
]


@app.command("serve", cls=StoreCommand)
def serve(
    store: Served,
    log: Log = None,
    local: Local = None,
    host: Host = "127.0.0.1",
    port: Port = 8900,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    behind_proxy: BehindProxy = False,
    proxy_address: Proxies = None,
    require_token: RequireToken = False,
    allow_host: Hosts = None,
    allow_origin: Origins = None,
    write: Annotated[bool, typer.Option("--write", help="Let the console change the store.")] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Open the store read-only.")] = False,
    receipts: Annotated[
        bool,
        typer.Option("--receipts", envvar=RECEIPTS_VARIABLE, help="Record every recall in the log."),
    ] = False,
    model: ModelName = DEFAULT_MODEL,
    backups: Backups = None,
    backup_keys: BackupKeys = None,
    opentelemetry: OpenTelemetry = False,
    body_max: BodyMax = 16_777_216,
    requests_per_minute: Rate = None,
) -> None:
    """Serve the store to a team: API, console and MCP at one URL. Create it if it does not exist.

    Needs the extra 'server'. Tokens are made with `mnemolog token create`. On this machine, none is needed.

    Example: mnemolog serve memory/

    Example: mnemolog serve memory/ --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --allow-host memory.example.org

    Example: mnemolog serve memory/ --behind-proxy --allow-host memory.example.org
    """
    from mnemolog.adapters.http.calls import Folders
    from mnemolog.adapters.http.config import LOOPBACK_ADDRESSES, ServerConfig
    from mnemolog.adapters.server import serve_store

    config = ServerConfig(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        proxies=tuple(proxy_address or LOOPBACK_ADDRESSES),
        require_token=require_token,
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        write=write,
        folders=Folders(backups=backups, backup_keys=backup_keys),
        body_max=body_max,
        requests_per_minute=requests_per_minute,
    )
    logging.basicConfig(level=logging.WARNING)
    ours = logging.getLogger(ROOT)
    # With --verbose or MNEMOLOG_LOG it has a handler of its own; then each line would come twice.
    ours.propagate = not any(isinstance(handler, logging.StreamHandler) for handler in ours.handlers)
    how = {"log": log, "local": local, "model": chosen_model(model), "read_only": read_only, "create": not read_only}
    asyncio.run(
        serve_store(
            store,
            config,
            started=lambda url: typer.echo(f"console {url}  API {url}v1"),
            opentelemetry=opentelemetry,
            receipts=receipts and not read_only,
            **how,
        )
    )
