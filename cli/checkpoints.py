"""Commands on checkpoints: create, list, restore, delete."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from mnemolog.cli.app import AsJson, Group, Store, StoreCommand, app
from mnemolog.cli.arguments import At, DryRun, Full, Named, as_of, opened_session
from mnemolog.cli.memory import as_shown, percent_of
from mnemolog.cli.output import answer, console
from mnemolog.domain import errors
from mnemolog.domain.display import cut, dated, one_line
from mnemolog.results import Checkpoint, RestorePreview, Task, ValueChange

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
    line = f"checkpoint {created.name} ({created.id}) of session {created.session} at position {created.position}"
    answer(created, line, as_json=as_json)


@checkpoints.command("list", cls=StoreCommand)
def list_(
    store: Store,
    session: Named,
    at: At = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a session, inherited ones included, oldest first.

    Example: mnemolog checkpoint list memory/ trip
    """
    with opened_session(store, session) as opened:
        found = as_of(opened, at).checkpoints()
    answer(found, partial(show_checkpoints, full=full), as_json=as_json)


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
    answer(
        {"dry_run": dry_run, "changes": changes}, lambda _: _show_restored(changes, dry_run=dry_run), as_json=as_json
    )


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
    gone = found[0]
    line = f"deleted checkpoint {gone.name} ({gone.id}), which was at position {gone.position}"
    answer({"deleted": gone}, line, as_json=as_json)


def show_checkpoints(checkpoints: list[Checkpoint], *, full: bool) -> None:
    """Print checkpoints, oldest first."""
    out = console()
    if not checkpoints:
        out.line("no checkpoints", style="dim")
    for item in checkpoints:
        place = (f"@{item.position}", "cyan"), " ", (dated(item.created_at), "dim"), " "
        whose = (f" {item.id} of {item.session}", "dim")
        out.line(
            *place, (item.name, "bold"), whose, f"  {cut(item.description, full=full)}" if item.description else ""
        )


def _show_restored(changes: RestorePreview, *, dry_run: bool) -> None:
    """Print what a restore changed, or would change."""
    out = console()
    done = "would restore" if dry_run else "restored"
    out.line(f"{done} checkpoint {changes.checkpoint.name} of position {changes.checkpoint.position}")
    for value in changes.values:
        out.line(f"  value {value.key} {_change(value)}")
    if changes.task_changes:
        out.line(f"  task {_task(changes.task_before)} -> {_task(changes.task_after)}")
    for sign, notes in (("-", changes.notes_removed), ("+", changes.notes_added)):
        for note in notes:
            out.line(f"  note {sign} {one_line(note.text)}")
    written = "; nothing was written" if dry_run else ""
    out.line(f"  turns hidden: {changes.turns_hidden:,}{written}")


def _change(value: ValueChange) -> str:
    match value.change:
        case "added":
            return f"+ {_short(value.after)}"
        case "removed":
            return f"- {_short(value.before)}"
        case "changed" if value.before == value.after:
            return f"{_short(value.after)}, with another expiry"
        case _:
            return f"{_short(value.before)} -> {_short(value.after)}"


def _task(task: Task | None) -> str:
    if task is None:
        return "none"
    percent = percent_of(task)
    return f"{task.description} ({task.status}{'' if percent is None else f', {percent:.3g} %'})"


def _short(value: Any) -> str:
    return one_line(as_shown(value))
