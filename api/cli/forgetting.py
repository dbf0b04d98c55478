"""Commands that erase content permanently, and list what was erased."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemolog.cli import completion_values as known
from mnemolog.cli import output
from mnemolog.cli.app import EXIT_FAILED, AsCsv, AsJson, Store, StoreCommand, app, remark, typed
from mnemolog.cli.arguments import session_called
from mnemolog.cli.forgetting_output import show_forget, show_forgotten
from mnemolog.cli.progress import bar
from mnemolog.forgetting.results import ForgottenEvent
from mnemolog.store import MemoryStore

Sessions = Annotated[
    list[str] | None,
    typer.Option("--session", metavar="SESSION", autocompletion=known.sessions, help="A session. May be repeated."),
]
Positions = Annotated[list[int] | None, typer.Option("--position", metavar="N", help="One event. May be repeated.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope", metavar="SCOPE", autocompletion=known.scopes, help="All sessions in a scope. May be repeated."
    ),
]


@app.command("forget", cls=StoreCommand)
def forget(
    store: Store,
    session: Sessions = None,
    position: Positions = None,
    scope: Scopes = None,
    reason: Annotated[str, typer.Option(help="The reason; it stays readable.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be forgotten; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it nothing is changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget sessions, scopes or single events permanently. Without --yes, only print what would be forgotten.

    Example: mnemolog forget memory/ --scope acme/support/alice --reason "asked for on 3 May" --yes
    """
    rehearsal = dry_run or not yes
    with MemoryStore.open(store, model=None, create=False) as opened, bar("forgetting") as progress:
        chosen = [session_called(opened, given).id for given in session or ()]
        report = opened.forget(
            session=chosen,
            positions=position or (),
            scope=scope or (),
            reason=reason,
            dry_run=rehearsal,
            progress=progress,
        )
    output.print_json(report) if as_json else show_forget(report)
    if rehearsal and not dry_run:
        if report.events:
            remark("nothing was forgotten", hint="add --yes to do it")
        else:
            remark("nothing to forget", hint=f"{typed('sessions', store)} lists the sessions and their scopes")
    if (rehearsal and not dry_run) or not report.complete:
        raise typer.Exit(EXIT_FAILED)


@app.command("forgotten", cls=StoreCommand)
def forgotten(
    store: Store,
    erasures: Annotated[
        bool,
        typer.Option("--erasures", help="Print the requests as JSON, to keep elsewhere for `mnemolog restore`."),
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List what was forgotten: positions, kinds of events, when and why.

    Example: mnemolog forgotten memory/ --erasures > /mnt/elsewhere/erasures.json
    """
    with MemoryStore.open(store, model=None, create=False) as opened:
        requests, found = opened.audit.erasures(), opened.audit.forgotten()
    if erasures:
        output.print_json(requests)
    elif as_json:
        output.print_json(found)
    elif as_csv:
        output.print_csv(ForgottenEvent, found)
    else:
        show_forgotten(found)
