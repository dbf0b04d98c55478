"""Terminal output of working memory: values, the task, notes, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mnemolog.cli import output
from mnemolog.results import Checkpoint, Note, RestorePreview, Task, ValueChange

BAR_WIDTH = 30


class ValueWritten(msgspec.Struct, frozen=True, kw_only=True):
    """A value that was set. `ttl` is in seconds, None for one that never expires."""

    session: str
    key: str
    value: Any
    ttl: float | None


class ValueDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """Whether deleting a key deleted a value."""

    session: str
    key: str
    deleted: bool


class NotesWritten(msgspec.Struct, frozen=True, kw_only=True):
    """Notes that were added or cleared, and how many there are now."""

    session: str
    added: int
    cleared: int
    notes: int


class CheckpointDeleted(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that was deleted. Its events are still in the log."""

    deleted: Checkpoint


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore changed, or with `dry_run` would change."""

    dry_run: bool
    changes: RestorePreview


def show_value(value: Any) -> None:
    """Print a value: text unchanged, anything else as JSON."""
    print(value if isinstance(value, str) else _json(value))


def show_values(values: Mapping[str, Any]) -> None:
    """Print keys with their values as JSON, one a line."""
    out = output.console()
    for key, value in values.items():
        out.print(key, style="cyan", markup=False, end=" ")
        out.print(_json(value), markup=False)


def show_written(item: ValueWritten) -> None:
    """Print that a value was set."""
    lives = "" if item.ttl is None else f"; it expires in {item.ttl:g} s"
    output.console().print(f"set {item.key} of session {item.session}{lives}", markup=False)


def show_deleted(item: ValueDeleted) -> None:
    """Print whether a value was deleted."""
    done = f"deleted {item.key} of session {item.session}"
    nothing = f"session {item.session} has no value {item.key}; nothing was deleted"
    output.console().print(done if item.deleted else nothing, markup=False)


def show_task(task: Task | None) -> None:
    """Print the task on one line, with a bar if its progress is known."""
    if task is None:
        output.console().print("no task", style="dim")
        return
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2))
    cells: list[Text | ProgressBar] = [Text(task.description, style="bold")]
    percent = _percent(task)
    if percent is not None:
        cells += [ProgressBar(total=100, completed=percent, width=BAR_WIDTH), Text(f"{percent:.3g} %")]
    if task.step is not None:
        cells.append(Text(f"step {task.step}" + ("" if task.total is None else f" of {task.total}")))
    cells += [Text(task.status), Text(f"since {output.dated(task.changed_at)}", style="dim")]
    line.add_row(*cells)
    output.console().print(line)


def show_notes(notes: list[Note]) -> None:
    """Print notes in order."""
    out = output.console()
    for number, note in enumerate(notes, 1):
        out.print(f"[bold]{number}.[/bold] [dim]{output.dated(note.added_at)}[/dim] ", end="")
        out.print(note.text, markup=False)


def show_notes_written(item: NotesWritten) -> None:
    """Print what was done to the notes."""
    done = "added a note" if item.added else f"cleared {output.counted(item.cleared, 'note')}"
    output.console().print(f"{done}; session {item.session} has {output.counted(item.notes, 'note')} now", markup=False)


def show_checkpoints(checkpoints: list[Checkpoint]) -> None:
    """Print checkpoints, oldest first."""
    out = output.console()
    for item in checkpoints:
        out.print(f"[cyan]@{item.position}[/cyan] [dim]{output.dated(item.created_at)}[/dim] ", end="")
        out.print(item.name, style="bold", markup=False, end=" ")
        out.print(f"{item.id} of {item.session}", style="dim", markup=False, end="")
        out.print(f"  {item.description}" if item.description else "", markup=False)


def show_created(item: Checkpoint) -> None:
    """Print a checkpoint that was created."""
    text = f"checkpoint {item.name} ({item.id}) of session {item.session} at position {item.position}"
    output.console().print(text, markup=False)


def show_checkpoint_deleted(item: CheckpointDeleted) -> None:
    """Print which checkpoint was deleted."""
    gone = item.deleted
    text = f"deleted checkpoint {gone.name} ({gone.id}), which was at position {gone.position}"
    output.console().print(text, markup=False)


def show_restored(item: Restored) -> None:
    """Print what a restore changed, or would change."""
    out, changes = output.console(), item.changes
    done = "would restore" if item.dry_run else "restored"
    out.print(f"{done} checkpoint {changes.checkpoint.name} of position {changes.checkpoint.position}", markup=False)
    for value in changes.values:
        out.print(f"  value {value.key} {_change(value)}", markup=False)
    if changes.task_changes:
        out.print(f"  task {_task(changes.task_before)} -> {_task(changes.task_after)}", markup=False)
    for sign, notes in (("-", changes.notes_removed), ("+", changes.notes_added)):
        for note in notes:
            out.print(f"  note {sign} {note.text}", markup=False)
    written = "; nothing was written" if item.dry_run else ""
    out.print(f"  turns hidden: {changes.turns_hidden}{written}", markup=False)


def _change(value: ValueChange) -> str:
    match value.change:
        case "added":
            return f"+ {_json(value.after)}"
        case "removed":
            return f"- {_json(value.before)}"
        case "changed" if value.before == value.after:
            return f"{_json(value.after)}, with another expiry"
        case _:
            return f"{_json(value.before)} -> {_json(value.after)}"


def _task(task: Task | None) -> str:
    if task is None:
        return "none"
    percent = _percent(task)
    return f"{task.description} ({task.status}{'' if percent is None else f', {percent:.3g} %'})"


def _percent(task: Task) -> float | None:
    if task.percent is not None or task.step is None or not task.total:
        return task.percent
    return min(100.0, 100 * task.step / task.total)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
