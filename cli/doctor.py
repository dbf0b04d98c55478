"""Commands that diagnose and repair a store: doctor, quarantine."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from mnemolog.cli import status_output as show
from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    AsCsv,
    AsJson,
    Group,
    Store,
    StoreCommand,
    app,
    chosen_model,
    remark,
)
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import answer
from mnemolog.cli.progress import bar
from mnemolog.domain import errors
from mnemolog.operations.doctor.run import doctor as examine
from mnemolog.operations.doctor.run import unopened, usual_model
from mnemolog.projections.quarantine import QuarantinedItem
from mnemolog.store import MemoryStore

quarantine = typer.Typer(cls=Group, help="Inspect and purge unusable files, which are kept with the reason.")
app.add_typer(quarantine, name="quarantine")

DAYS_MAX: Final = 36_500


@app.command("doctor", cls=StoreCommand)
def doctor(
    store: Store,
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed. The log is never changed.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte, and compare the views with the log.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --fix would do; change nothing.")] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model of the vectors that --fix updates; by default the one the store uses."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the problems of a store, with consequence and remedy. Exit 0: none, 1: problems, 3: log or keys damaged.

    Example: mnemolog doctor memory/ --deep --dry-run
    """
    try:
        with _opened(store, model) as opened, bar("examining") as progress:
            parts = opened.parts
            found = examine(
                *(parts.layout, parts.log, parts.projections, parts.snapshots),
                deep=deep,
                fix=fix and not dry_run,
                progress=progress,
                model_given=model is not None,
            )
    except (errors.LogDamaged, errors.LogUnreachable) as error:
        found = unopened(store, error, deep=deep)
    answer(found, lambda found: show.show_doctor_report(found, dry_run=dry_run), as_json=as_json)
    if not found.healthy:
        raise typer.Exit(EXIT_DAMAGED if found.log_damaged else EXIT_FAILED)


def _opened(store: Path, model: str | None) -> MemoryStore:
    """Open a store with the model that was given, or else with the one that it uses."""
    if model is None:
        with open_store(store, create=False) as opened:
            parts = opened.parts
            model = usual_model(parts.layout, parts.log, parts.projections, parts.snapshots)
    return open_store(store, model=chosen_model(model or "none"), create=False, background=False)


@quarantine.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False, as_csv: AsCsv = False) -> None:
    """List the items in quarantine: what they were, why and when they were moved there.

    Example: mnemolog quarantine list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.quarantine().items()
    answer(found, show.show_quarantine, as_json=as_json, csv_of=QuarantinedItem if as_csv else None)


@quarantine.command("purge", cls=StoreCommand)
def purge(
    store: Store,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names, as `list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All items.")] = False,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, max=DAYS_MAX, help="Items older than this.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it nothing is deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete items from quarantine. A segment ahead of the log is evidence of lost events: list before you purge.

    Example: mnemolog quarantine purge memory/ --older-than 30 --yes
    """
    if not names and not everything and older_than is None:
        raise errors.InvalidInput("names", "give names, --all or --older-than")
    if older_than is not None and math.isnan(older_than):
        raise errors.InvalidInput("older_than", "expected a number of days, got nan")
    looking, age = dry_run or not yes, None if older_than is None else timedelta(days=older_than)
    with open_store(store, create=False) as opened:
        chosen = opened.admin.quarantine().purge(names or (), older_than=age, everything=everything, dry_run=looking)
    answer(show.Purged(dry_run=looking, items=tuple(chosen)), show.show_purged, as_json=as_json)
    if not yes and not dry_run:
        remark("nothing was deleted", hint="add --yes to delete, or --dry-run to only list")
        raise typer.Exit(EXIT_FAILED)
