"""Commands that read a store: sessions, status, head."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli import output, status_output
from mnemolog.cli.app import AsCsv, AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.times import given_time
from mnemolog.projections.history.session_tree import tree
from mnemolog.projections.read_models import SessionSummary


@app.command("sessions", cls=StoreCommand)
def sessions(
    store: Store,
    scope: Annotated[str, typer.Option(help="Only at or below this scope.")] = "",
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    title: Annotated[str | None, typer.Option(help="Only with this in the title, in any case.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="Only started at this time or later."),
    ] = None,
    as_tree: Annotated[bool, typer.Option("--tree", help="Show branches below their origin.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the sessions.

    Example: mnemolog sessions memory/ --scope acme/support --tree
    """
    with open_store(store, create=False) as opened:
        found = opened.sessions(scope=scope, agent=agent, title=title, since=since)
    if as_json:
        output.print_json(tree(found) if as_tree else found)
    elif as_csv:
        output.print_csv(SessionSummary, found)
    elif as_tree:
        output.show_tree(tree(found))
    else:
        output.show_sessions(found)


@app.command("scopes", cls=StoreCommand)
def scopes(store: Store, as_json: AsJson = False) -> None:
    """List the scopes that sessions were started in, with their sessions and turns.

    Example: mnemolog scopes memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.scopes()
    output.answer(found, output.show_scopes, as_json=as_json)


@app.command("agents", cls=StoreCommand)
def agents(store: Store, as_json: AsJson = False) -> None:
    """List the agents that started sessions, with their sessions and turns, and the session each is in.

    Example: mnemolog agents memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.agents()
    output.answer(found, output.show_agents, as_json=as_json)


@app.command("status", cls=StoreCommand)
def status(store: Store, as_json: AsJson = False) -> None:
    """Print the head of the log and how far each projection has followed it.

    Example: mnemolog status memory/
    """
    with open_store(store, create=False) as opened:
        answer = opened.status()
    output.answer(answer, status_output.show_status, as_json=as_json)


@app.command("head", cls=StoreCommand)
def head(
    store: Store,
    append: Annotated[
        Path | None,
        typer.Option(
            "--append",
            metavar="FILE",
            help="Append the head to this file, unless the file's last head contradicts the log.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print position and digest of the log's last event, to keep elsewhere as a witness.

    Example: mnemolog head memory/ --append /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened:
        answer = opened.head() if append is None else opened.audit.append_head(append)
    output.answer(answer, print, as_json=as_json)
