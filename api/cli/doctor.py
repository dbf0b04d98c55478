"""Commands of the operator on what is broken: doctor, quarantine."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

import typer

from mnemolog.cli import status_output as show
from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    AsJson,
    Store,
    StoreCommand,
    app,
    chosen_model,
    refuse,
)
from mnemolog.cli.progress import bar
from mnemolog.cli.session_output import answer
from mnemolog.domain import errors
from mnemolog.store import MemoryStore

quarantine = typer.Typer(no_args_is_help=True, help="What could not be used: renamed, with the reason, never deleted.")
app.add_typer(quarantine, name="quarantine")

DAYS_MAX: Final = 36_500


@app.command("doctor", cls=StoreCommand)
def doctor(
    store: Store,
    fix: Annotated[bool, typer.Option("--fix", help="Mend what can be mended. The log is never touched.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte, and compare the views with the log.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what --fix would do; change nothing.")] = False,
    model: Annotated[str | None, typer.Option("--model", help="With it, --fix brings vectors to the head too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with a store, what it means, and what to do. Exit 0 nothing, 1 something, 3 the log.

    Example: mnemolog doctor memory/ --deep --dry-run
    """
    opened = MemoryStore.open(store, model=chosen_model(model or "none"), create=False)
    with opened, bar("examining") as progress:
        found = opened.admin.doctor(deep=deep, fix=fix and not dry_run, progress=progress)
    answer(found, lambda found: show.show_diagnosis(found, dry_run=dry_run), as_json=as_json)
    if not found.healthy:
        raise typer.Exit(EXIT_DAMAGED if found.log_damaged else EXIT_FAILED)


@quarantine.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False) -> None:
    """List what lies in quarantine: what it was, why it is there, since when.

    Example: mnemolog quarantine list memory/
    """
    with MemoryStore.open(store, model=None, create=False) as opened:
        answer(opened.admin.quarantine().items(), show.show_quarantine, as_json=as_json)


@quarantine.command("purge", cls=StoreCommand)
def purge(
    store: Store,
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Names, as `list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything that lies there.")] = False,
    older_than: Annotated[
        float | None, typer.Option(metavar="DAYS", min=0, max=DAYS_MAX, help="What lies there longer than this.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete. Without it nothing is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete from quarantine, for good. A segment that is ahead of the log is evidence: look before you purge.

    Example: mnemolog quarantine purge memory/ --older-than 30 --yes
    """
    if not names and not everything and older_than is None:
        raise errors.InvalidInput("names", "say what to delete: names, --all or --older-than")
    looking, age = dry_run or not yes, None if older_than is None else timedelta(days=older_than)
    with MemoryStore.open(store, model=None, create=False) as opened:
        chosen = opened.admin.quarantine().purge(names or (), older_than=age, everything=everything, dry_run=looking)
    answer(show.Purged(dry_run=looking, items=tuple(chosen)), show.show_purged, as_json=as_json)
    if not yes and not dry_run:
        refuse("nothing was deleted", hint="say --yes to delete, --dry-run to only look")
        raise typer.Exit(EXIT_FAILED)
