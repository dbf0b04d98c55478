"""Commands that erase content permanently, and list what was erased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer

from mnemolog.cli import output
from mnemolog.cli.app import EXIT_FAILED, AsCsv, AsJson, Store, StoreCommand, app, remark
from mnemolog.cli.arguments import open_store, session_called
from mnemolog.cli.forgetting_output import Preview, show_forget, show_forgotten, show_pending
from mnemolog.cli.progress import bar
from mnemolog.forgetting.results import ForgetReport, ForgottenEvent, PendingErasure
from mnemolog.projections.history.event_descriptions import describe
from mnemolog.store import MemoryStore

PREVIEWED_MAX: Final = 10
"""Sessions and events that a preview describes; the rest is counted."""
Sessions = Annotated[
    list[str] | None,
    typer.Option("--session", metavar="SESSION", help="A session. May be repeated."),
]
Positions = Annotated[list[int] | None, typer.Option("--position", metavar="N", help="One event. May be repeated.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", metavar="SCOPE", help="All sessions in a scope. May be repeated."),
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
    with open_store(store, create=False) as opened, bar("forgetting") as progress:
        chosen = [session_called(opened, given).id for given in session or ()]
        for given in scope or ():
            opened.sessions(scope=given)  # A misspelled one is an error before anything is forgotten.
        report = opened.forget(
            session=chosen,
            positions=position or (),
            scope=scope or (),
            reason=reason,
            dry_run=rehearsal,
            progress=progress,
        )
        preview = _preview(opened, report, position or ())
    output.print_json(report) if as_json else show_forget(report, preview)
    if rehearsal and not dry_run and report.events:
        remark("nothing was forgotten", hint="add --yes to do it")
    if (rehearsal and not dry_run) or not report.complete:
        raise typer.Exit(EXIT_FAILED)


def _preview(store: MemoryStore, report: ForgetReport, positions: Sequence[int]) -> Preview:
    """Return titles and texts of what would be forgotten; nothing once it is forgotten."""
    if not report.dry_run or not report.events:
        return Preview((), ())
    chosen = set(report.sessions[:PREVIEWED_MAX])
    sessions = [item for item in store.sessions() if item.session in chosen]
    first = [(item, next(iter(store.turns(item.session, limit=1)), None)) for item in sessions]
    found = (store.audit.event(position) for position in positions[:PREVIEWED_MAX])
    return Preview(first, [(item.position, describe(item.event)) for item in found if item.event is not None])


@app.command("forgotten", cls=StoreCommand)
def forgotten(
    store: Store,
    erasures: Annotated[
        bool,
        typer.Option("--erasures", help="Print the requests as JSON, to keep elsewhere for `mnemolog restore`."),
    ] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="List the requests that not every node has confirmed, with these nodes.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List what was forgotten: positions, kinds of events, when and why.

    Example: mnemolog forgotten memory/ --erasures > /mnt/elsewhere/erasures.json
    """
    with open_store(store, create=False) as opened:
        if pending:
            requested = opened.audit.pending_erasures()
            output.answer(requested, show_pending, as_json=as_json, csv_of=PendingErasure if as_csv else None)
            return
        requests, found = opened.audit.erasures(), opened.audit.forgotten()
    if erasures:
        output.print_json(requests)
    else:
        output.answer(found, show_forgotten, as_json=as_json, csv_of=ForgottenEvent if as_csv else None)
