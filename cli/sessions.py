"""Commands that list: sessions, scopes, agents."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import print_list
from mnemolog.cli.times import given_time
from mnemolog.domain.display import dated
from mnemolog.projections.read_models import SessionSummary


@app.command("sessions", cls=StoreCommand)
def sessions(
    store: Store,
    scope: Annotated[list[str] | None, typer.Option(help="Only at or below this scope; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    title: Annotated[str | None, typer.Option(help="Only with this in the title, in any case.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="Only started at this time or later."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions.

    Example: mnemolog sessions memory/ --scope acme/support
    """
    with open_store(store, create=False) as opened:
        found = opened.sessions(scope=scope or "", agent=agent, title=title, since=since)
    none = "" if found else "no sessions"
    columns = {
        "session": lambda item: item.session,
        "title": lambda item: item.title,
        "scope": lambda item: item.scope,
        "agent": lambda item: item.agent,
        **({"parent": lambda item: item.parent or ""} if any(item.parent for item in found) else {}),
        "turns": lambda item: f"{item.turns:,}",
        **({"said": _said} if any(item.is_of_the_past for item in found) else {}),
        "started": lambda item: dated(item.started_at),
        "ended": lambda item: "" if item.ended_at is None else dated(item.ended_at),
    }
    print_list(found, columns, as_json=as_json, last=none)


@app.command("scopes", cls=StoreCommand)
def scopes(store: Store, as_json: AsJson = False) -> None:
    """List the scopes that sessions were started in, with their sessions and turns.

    Example: mnemolog scopes memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.scopes()
    columns = {
        "scope": lambda item: item.scope or "/",
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
    }
    print_list(found, columns, as_json=as_json)


@app.command("agents", cls=StoreCommand)
def agents(store: Store, as_json: AsJson = False) -> None:
    """List the agents that started sessions, with their sessions and turns, and the session each is in.

    Example: mnemolog agents memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.agents()
    columns = {
        "agent": lambda item: item.agent,
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
        "current session": lambda item: item.current or "",
    }
    print_list(found, columns, as_json=as_json)


def _said(item: SessionSummary) -> str:
    if item.said_from is None or item.said_until is None:
        return ""
    return " to ".join(dict.fromkeys((dated(item.said_from), dated(item.said_until))))
