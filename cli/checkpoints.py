"""Commands on checkpoints: create, list, restore, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from mnemolog.cli import memory_output as show
from mnemolog.cli.app import AsCsv, AsJson, Group, Store, StoreCommand, app
from mnemolog.cli.arguments import At, DryRun, Full, Named, as_of, opened_session
from mnemolog.cli.output import answer
from mnemolog.domain import errors
from mnemolog.results import Checkpoint

checkpoints = typer.Typer(cls=Group, help="Create checkpoints of a session and restore them.")
app.add_typer(checkpoints, name="checkpoint")

CheckpointName = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the checkpoint.")]


@checkpoints.command("create", cls=StoreCommand)
def create(
    store: Store,
    session: Named,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the checkpoint.")],
    description: Annotated[str, typer.Option(help="What the checkpoint is for.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a checkpoint of a session. Its cost does not depend on the size of the memory.

    Example: mnemolog checkpoint create memory/ trip before-booking --description "nothing is paid yet"
    """
    with opened_session(store, session) as opened:
        created = opened.checkpoint(name, description)
    answer(created, show.show_created, as_json=as_json)


@checkpoints.command("list", cls=StoreCommand)
def list_(
    store: Store,
    session: Named,
    at: At = None,
    full: Full = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the checkpoints of a session, inherited ones included, oldest first.

    Example: mnemolog checkpoint list memory/ trip
    """
    with opened_session(store, session) as opened:
        found = as_of(opened, at).checkpoints()
    answer(found, partial(show.show_checkpoints, full=full), as_json=as_json, csv_of=Checkpoint if as_csv else None)


@checkpoints.command("restore", cls=StoreCommand)
def restore(
    store: Store, session: Named, checkpoint: CheckpointName, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Restore values, task and notes from a checkpoint, and hide the turns after it.

    Example: mnemolog checkpoint restore memory/ trip before-booking --dry-run
    """
    with opened_session(store, session) as opened:
        changes = opened.restore(checkpoint, dry_run=True)
        if not dry_run:
            opened.restore(changes.checkpoint.id)
    answer(show.Restored(dry_run=dry_run, changes=changes), show.show_restored, as_json=as_json)


@checkpoints.command("delete", cls=StoreCommand)
def delete(store: Store, session: Named, checkpoint: CheckpointName, as_json: AsJson = False) -> None:
    """Delete a checkpoint. Its events stay in the log; `show --at` still prints that state.

    Example: mnemolog checkpoint delete memory/ trip before-booking
    """
    with opened_session(store, session) as opened:
        found = [item for item in opened.checkpoints() if checkpoint in (item.id, item.name)]
        if not found:
            raise errors.UnknownCheckpoint(opened.id, checkpoint)
        opened.delete_checkpoint(found[0].id)
    answer(show.CheckpointDeleted(deleted=found[0]), show.show_checkpoint_deleted, as_json=as_json)
