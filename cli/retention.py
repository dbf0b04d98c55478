"""Commands on retention: how long what is said is kept, holds, and the run that forgets what is too old."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemolog.cli.app import EXIT_FAILED, AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import DryRun, open_store
from mnemolog.cli.output import answer, console
from mnemolog.cli.progress import bar
from mnemolog.domain.display import counted
from mnemolog.domain.retention import Retention
from mnemolog.forgetting.retention import RetentionReport

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="A scope with all below it; '' for the whole store.")]
Reason = Annotated[str, typer.Option(help="Why; it stays readable.")]
Age = Annotated[str | None, typer.Option(metavar="AGE", help="Such as 180d, 12h or 90m.")]


@app.command("retention", cls=StoreCommand)
def retention(
    store: Store,
    rules: Annotated[bool, typer.Option("--list", help="List the rules and the holds, and forget nothing.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is older than its scope allows. The next run continues one that was interrupted.

    Example: mnemolog retention memory/ --dry-run
    """
    with open_store(store, create=False) as opened, bar("forgetting", of="turns") as progress:
        if rules:
            answer(opened.admin.retention(), _show_rules, as_json=as_json)
            return
        report = opened.admin.apply_retention(dry_run=dry_run, progress=progress)
    answer(report, _show_report, as_json=as_json)
    if not all(request.complete for request in report.requests):
        raise typer.Exit(EXIT_FAILED)


@app.command("set-retention", cls=StoreCommand)
def set_retention(
    store: Store,
    scope: Scope,
    max_age: Age = None,
    min_age: Age = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Count the maximum from when turns were recorded, not said.")
    ] = False,
    keep_facts: Annotated[bool, typer.Option("--keep-facts", help="Keep facts that hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set how long what is said in a scope is kept. Without an age, take the rule of the scope away.

    Example: mnemolog set-retention memory/ acme/alice --max-age 180d --min-age 30d
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.set_retention(
            scope,
            max_age=max_age,
            min_age=min_age,
            by="recorded" if recorded else "said",
            keep_facts=keep_facts,
        )
    answer(found, _show_rules, as_json=as_json)


@app.command("hold", cls=StoreCommand)
def hold(store: Store, scope: Scope, reason: Reason, as_json: AsJson = False) -> None:
    """Forget nothing of a scope until the hold is lifted.

    Example: mnemolog hold memory/ acme/alice --reason "case 4711"
    """
    with open_store(store, create=False) as opened:
        placed = opened.admin.hold(scope, reason=reason)
    answer(placed, f"hold on {placed.scope or '/'} at position {placed.position}", as_json=as_json)


@app.command("lift-hold", cls=StoreCommand)
def lift_hold(
    store: Store,
    position: Annotated[int, typer.Argument(metavar="POSITION", help="Of the hold, as in `retention --list`.")],
    reason: Reason,
    as_json: AsJson = False,
) -> None:
    """End a hold.

    Example: mnemolog lift-hold memory/ 10 --reason "case 4711 is closed"
    """
    with open_store(store, create=False) as opened:
        lifted = opened.admin.lift_hold(position, reason=reason)
    answer(lifted, f"the hold on {lifted.scope or '/'} is lifted", as_json=as_json)


def _show_rules(found: Retention) -> None:
    for rule in found.rules:
        most = f"at most {rule.max_age} since it was {rule.by}, " if rule.max_age else ""
        kept = ", facts that hold stay" if rule.keep_facts else ""
        console().line(f"@{rule.position} {rule.scope or '/'}: {most}at least {rule.min_age or '0m'}{kept}")
    for hold in found.holds:
        console().line(f"@{hold.position} {hold.scope or '/'}: hold: {hold.reason}")
    console().line(f"{counted(len(found.rules), 'rule')}, {counted(len(found.holds), 'hold')}", style="dim")


def _show_report(report: RetentionReport) -> None:
    would = "would be " if report.dry_run else ""
    what = f"{counted(report.turns, 'turn')} {would}forgotten, {counted(report.sessions_ended, 'session')} {would}ended"
    console().line(what + (f"; {counted(report.held, 'turn')} under a hold" if report.held else ""))
    for request in report.requests:
        if request.request is not None:
            console().line(f"request {request.request} at position {request.position}", style="dim")
