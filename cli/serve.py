"""Commands that serve a store: to a team over HTTP, with its tokens; to agents over MCP; as the memory of Hermes."""

import asyncio
import getpass
import logging
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from mnemolog.adapters.extras import require
from mnemolog.adapters.hermes import config
from mnemolog.adapters.support.agent_tools import Toolset
from mnemolog.adapters.support.agent_tools.tool import opened
from mnemolog.adapters.support.mcp_hosts import McpHost, adding, removing
from mnemolog.cli.app import (
    AsJson,
    Command,
    Group,
    ModelName,
    Receipts,
    Store,
    StoreCommand,
    UsageError,
    WitnessFile,
    app,
    chosen_model,
    fail,
)
from mnemolog.cli.command import DryRun, answer, note, open_store, out, print_list
from mnemolog.cli.hints import for_all_commands, is_typed, shown
from mnemolog.defaults import BODY_MAX, DEFAULT_AGENT, DEFAULT_MODEL, DEFAULT_PORT
from mnemolog.domain.display import counted, dated
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.request import acting_as
from mnemolog.domain.structured_log import ROOT
from mnemolog.domain.tokens import VALID_FOR, VERBS, CreatedToken
from mnemolog.domain.values import checked_label, parse_duration, to_datetime
from mnemolog.infra.runtime.clock import SystemClock

PACKAGES = ("starlette", "uvicorn", "jinja2", "prometheus_client")
"""Of the extra `server`."""

Host = Annotated[str, typer.Option("--host", help="Address to listen at.")]
Port = Annotated[int, typer.Option("--port", help="Port; 0 for any free one.")]
AllowHost = Annotated[list[str] | None, typer.Option("--allow-host", help="Another name of this server, on any port.")]
AllowOrigin = Annotated[list[str] | None, typer.Option("--allow-origin", help="An allowed origin of other web pages.")]


@app.command("serve", cls=StoreCommand)
def serve(
    store: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder of the store, or URL of the PostgreSQL database of its log.")
    ],
    log: Annotated[str | None, typer.Option("--log", help="In a database: the name of the log.")] = None,
    local: Annotated[
        Path | None, typer.Option("--local", help="With --log: the store's folder on this machine.")
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key, in PEM.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A reverse proxy terminates TLS: believe its headers.")
    ] = False,
    proxy_address: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy-address", metavar="ADDRESS", help="Address or network of the proxy; by default this machine."
        ),
    ] = None,
    trust_header: Annotated[
        str,
        typer.Option(
            "--trust-header",
            metavar="NAME",
            help="Header in which the proxies of --proxy-address name who has logged in.",
        ),
    ] = "",
    users: Annotated[
        Path | None,
        typer.Option("--users", metavar="FILE", help="With --trust-header: what each user may do, in TOML."),
    ] = None,
    require_token: Annotated[
        bool, typer.Option("--require-token", help="Ask this machine's requests for a token, too.")
    ] = False,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the console change the store. API and MCP may anyway.")
    ] = False,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Refuse every write, of console, API and MCP.")
    ] = False,
    own_proposals: Annotated[
        bool, typer.Option("--own-proposals", help="Where tokens are needed: let callers approve what they proposed.")
    ] = False,
    receipts: Receipts = False,
    witness: WitnessFile = None,
    audit_reads: Annotated[
        Path | None,
        typer.Option("--audit-reads", metavar="FILE", help="Append a line for each read: who, what, where."),
    ] = None,
    model: ModelName = DEFAULT_MODEL,
    backups: Annotated[
        Path | None, typer.Option("--backups", metavar="FOLDER", help="Make backups that callers ask for in here.")
    ] = None,
    backup_keys: Annotated[
        Path | None,
        typer.Option("--backup-keys", metavar="FOLDER", help="Copy the keys of the content there with each backup."),
    ] = None,
    no_keys: Annotated[
        bool, typer.Option("--no-keys", help="Make backups without keys, which nobody can read without a copy of them.")
    ] = False,
    body_max: Annotated[int, typer.Option("--body-max", metavar="BYTES", help="Largest request body.")] = BODY_MAX,
) -> None:
    """Serve the store to a team: API, console and MCP at one URL. Create it if it does not exist.

    Needs the extra 'server'. Tokens are made with `mnemolog token create`. On this machine, none is needed.

    Example: mnemolog serve memory/

    Example: mnemolog serve memory/ --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --allow-host memory.example.org

    Example: mnemolog serve memory/ --behind-proxy --allow-host memory.example.org
    """
    if write and read_only:
        raise UsageError("use --write without --read-only")
    if backup_keys is not None and no_keys:
        raise UsageError("use --backup-keys without --no-keys")
    if trust_header and not proxy_address:
        raise UsageError("use --trust-header with --proxy-address, the address of the proxy that may send it")
    require("server", *PACKAGES)
    from mnemolog.server.application import serve_store
    from mnemolog.server.http.config import LOOPBACK_ADDRESSES, Folders, ServerConfig

    config = ServerConfig(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        proxies=tuple(proxy_address or LOOPBACK_ADDRESSES),
        trust_header=trust_header,
        users=users,
        require_token=require_token,
        hosts=tuple(allow_host or ()),
        origins=tuple(allow_origin or ()),
        write=write,
        folders=Folders(backups=backups, backup_keys=backup_keys, without_keys=no_keys),
        body_max=body_max,
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
            receipts=receipts and not read_only,
            four_eyes=config.needs_token and not own_proposals,
            audit_reads=audit_reads,
            witness=witness or for_all_commands("witness"),
            **how,
        )
    )


@app.command("mcp", cls=StoreCommand)
def mcp(
    context: typer.Context,
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
    install: Annotated[McpHost | None, typer.Option("--install", help="Print how to add it to this program.")] = None,
    uninstall: Annotated[McpHost | None, typer.Option("--uninstall", help="Print how to remove it from there.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Run that program's own command, instead of printing it.")] = False,
) -> None:
    """Serve the store to agents as an MCP server, and create it if it does not exist. Needs the extra 'mcp'.

    With --http it is `mnemolog serve` with MCP alone, for this machine. There, a token of the store may be sent.
    With --install nothing is served: that program will start the server, with the other options given here.

    Example: mnemolog mcp memory/ --install claude --run

    Example: mnemolog mcp memory/ --read-only --install cursor
    """
    from mnemolog.adapters.mcp import OpeningMemory, serve_stdio

    if tools not in get_args(Toolset):
        raise InvalidInput("tools", f"{tools!r} is none of {', '.join(get_args(Toolset))}")
    toolset = cast(Toolset, tools)
    if install or uninstall or run:
        if http or bool(install) is bool(uninstall):
            raise UsageError("use one of --install and --uninstall, without --http")
        words = ["-m", "mnemolog", *_typed(context.parent), "mcp", str(store.absolute()), *_typed(context)]
        _tell(adding(install, [sys.executable, *words]) if install else removing(cast(McpHost, uninstall)), run=run)
        return
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


def _typed(context: Any) -> list[str]:
    """Return the options of a command line that its program has to be given again, with whole paths."""
    words = list[str]()
    for option in context.command.params:
        if is_typed(context, option.name) and option.name not in ("store", "install", "run"):
            values = context.params[option.name]
            for value in values if isinstance(values, list | tuple) else [values]:
                words.append(shown(option))
                if value is not True:
                    is_path = option.metavar == "FILE" or (option.name == "model" and Path(value).is_dir())
                    words.append(str(Path(value).absolute() if is_path else value))
    return words


def _tell(found: list[str] | str, *, run: bool) -> None:
    """Print the command of another program, or run it; print what its user edits where it has none."""
    if not run or isinstance(found, str):
        if run:
            raise UsageError("this program has no command for it: leave out --run to print what you edit")
        typer.echo(found if isinstance(found, str) else shlex.join(found))
        return
    try:
        raise typer.Exit(subprocess.run(found).returncode)
    except OSError as error:
        fail(
            f"{found[0]} cannot be run: {error.strerror}", hint="leave out --run, and run the printed command yourself"
        )


tokens = typer.Typer(cls=Group, help="Create, list and revoke the tokens of a server.")
app.add_typer(tokens, name="token")


@tokens.command("create", cls=StoreCommand)
def create(
    store: Store,
    actor: Annotated[
        str, typer.Option("--actor", metavar="NAME", help="Who acts with it: recorded in every event it appends.")
    ],
    verb: Annotated[
        list[str],
        typer.Option("--verb", metavar="VERB", help=f"What it allows: {', '.join(VERBS)}. Repeatable."),
    ] = ["read", "record"],  # noqa: B006
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope", metavar="SCOPE", help="Allow it within this scope only. Repeatable; by default everywhere."
        ),
    ] = None,
    expires: Annotated[
        str,
        typer.Option("--expires", metavar="AGE", help="When it ends, such as 12h, 30d or 8w, or `never`."),
    ] = f"{VALID_FOR.days}d",
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown once: the store keeps only a digest of it.

    Example: mnemolog token create memory/ --actor alice --scope acme/alice --verb read --verb record --expires 30d
    """
    with open_store(store, create=False) as opened, acting_as(_user()):
        created = opened.admin.create_token(
            actor,
            verbs=verb,
            scopes=scope or (),
            expires_in=None if expires == "never" else parse_duration("expires", expires),
        )
    _show_token(created, as_json=as_json)


@tokens.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False) -> None:
    """List the tokens: who acts with them, what they allow, and until when. Revoked and expired ones are included.

    Example: mnemolog token list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.tokens()
    now = to_datetime(SystemClock().now())
    columns = {
        "id": lambda item: item.id,
        "actor": lambda item: item.actor,
        "verbs": lambda item: ", ".join(item.verbs),
        "scopes": lambda item: ", ".join(item.scopes) or "everywhere",
        "created": lambda item: dated(item.created_at),
        "last used": lambda item: "never" if item.last_used_at is None else dated(item.last_used_at),
        "expires": lambda item: "never" if item.expires_at is None else dated(item.expires_at),
        "state": lambda item: "revoked" if item.revoked_at else "valid" if item.is_valid(now) else "expired",
    }
    valid = sum(item.is_valid(now) for item in found)
    print_list(found, columns, as_json=as_json, last=counted(valid, "valid token"))


Named = Annotated[
    str, typer.Argument(metavar="NAME", help="The id of the token, as in `token list`, or an actor with one token.")
]


@tokens.command("rotate", cls=StoreCommand)
def rotate(
    store: Store,
    token: Named,
    revoke_old_after: Annotated[
        str,
        typer.Option(metavar="AGE", help="How long the old one is still valid, such as 30m or 2d; 0m for no longer."),
    ] = "1h",
    as_json: AsJson = False,
) -> None:
    """Print a new token that may do what the old one may, and revoke the old one after a time.

    Example: mnemolog token rotate memory/ alice --revoke-old-after 1h
    """
    after = parse_duration("revoke_old_after", revoke_old_after)
    with open_store(store, create=False) as opened, acting_as(_user()):
        _show_token(opened.admin.rotate_token(token, revoke_old_after=after), as_json=as_json)


@tokens.command("revoke", cls=StoreCommand)
def revoke(
    store: Store,
    token: Named,
    as_json: AsJson = False,
) -> None:
    """Revoke a token. Every server refuses it from the next request on.

    Example: mnemolog token revoke memory/ 0a1b2c3d4e5f
    """
    with open_store(store, create=False) as opened, acting_as(_user()):
        revoked = opened.admin.revoke_token(token)
    answer(revoked, f"token {revoked.id} of {revoked.actor} is revoked", as_json=as_json)


def _show_token(created: CreatedToken, *, as_json: bool) -> None:
    answer(created, created.secret, as_json=as_json)
    if not as_json:
        note(f"token {created.token.id} of {created.token.actor}; keep it now, because it cannot be shown again")
        if (old := created.replaces) is not None:
            ends = "is revoked" if old.expires_at is None or old.revoked_at else f"ends {dated(old.expires_at)}"
            note(f"the token {old.id}, which it replaces, {ends}")


def _user() -> str:
    """Return the name of the user of this process, or `local` if it has none that can be an actor."""
    try:
        return checked_label("actor", getpass.getuser())
    except (InvalidInput, OSError, KeyError, ImportError):  # What `getuser` raises depends on the version of Python.
        return "local"


hermes = typer.Typer(cls=Group, help="Use mnemolog as the memory of Hermes. Needs the extra 'hermes'.")
app.add_typer(hermes, name="hermes")


@hermes.callback()
def _commands() -> None:  # With a callback, Typer expects a command name even if there is only one.
    pass


@hermes.command("install", cls=Command)
def install(
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Hermes' home folder; by default the one that Hermes uses."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files of the plugin even if they were changed.")
    ] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Install the plugin in Hermes' home. A second run changes nothing. Run it in Hermes' Python environment.

    Example: mnemolog hermes install --dry-run
    """
    answer(config.install(home or config.hermes_home(), force=force, dry_run=dry_run), _show_installed, as_json=as_json)


def _show_installed(done: config.Installed) -> None:
    for name, action in done.files.items():
        told = "unchanged" if action == "unchanged" else f"would be {action}" if done.dry_run else action
        out.line(f"{done.folder}/{name}  {told}")
    out.line("next: hermes memory setup mnemolog")
