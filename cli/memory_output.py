"""Terminal output of working memory: values, the task, notes, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mnemolog.cli import output
from mnemolog.domain.display import counted, cut, dated, one_line, visible_json, visible_lines
from mnemolog.domain.encoding import to_json
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
    print(visible_lines(value) if isinstance(value, str) else _json(value))


def show_values(values: Mapping[str, Any], *, full: bool) -> None:
    """Print keys with their values as JSON, one a line. Long ones are cut, unless `full`."""
    out = output.console()
    if not values:
        out.line("no values", style="dim")
    for key, value in values.items():
        out.line((key, "cyan"), f" {cut(_json(value), full=full)}")


def show_written(item: ValueWritten) -> None:
    """Print that a value was set."""
    lives = "" if item.ttl is None else f"; it expires in {item.ttl:g} s"
    output.console().line(f"set {item.key} of session {item.session}{lives}")


def show_deleted(item: ValueDeleted) -> None:
    """Print whether a value was deleted."""
    done = f"deleted {item.key} of session {item.session}"
    nothing = f"session {item.session} has no value {item.key}; nothing was deleted"
    output.console().line(done if item.deleted else nothing)


def show_task(task: Task | None, *, full: bool) -> None:
    """Print the task on one line, with a bar if its progress is known."""
    if task is None:
        output.console().line("no task", style="dim")
        return
    facts: list[str] = []
    percent = _percent(task)
    if percent is not None:
        facts += [_bar(percent), f"{percent:.3g} %"]
    if task.step is not None:
        facts.append(f"step {task.step:,}" + ("" if task.total is None else f" of {task.total:,}"))
    since = (f"  since {dated(task.changed_at)}", "dim")
    described = (cut(task.description, full=full), "bold")
    output.console().line(described, *(f"  {fact}" for fact in facts), f"  {task.status}", since)


def _bar(percent: float) -> str:
    done = round(BAR_WIDTH * min(max(percent, 0.0), 100.0) / 100)
    return "━" * done + "─" * (BAR_WIDTH - done)


def show_notes(notes: list[Note], *, full: bool) -> None:
    """Print notes in order. Long ones are cut, unless `full`."""
    out = output.console()
    if not notes:
        out.line("no notes", style="dim")
    for number, note in enumerate(notes, 1):
        place = (f"{number}.", "bold"), " ", (f"{dated(note.added_at)} ", "dim")
        out.text(*place, text=note.text, full=full)


def show_notes_written(item: NotesWritten) -> None:
    """Print what was done to the notes."""
    done = "added a note" if item.added else f"cleared {counted(item.cleared, 'note')}"
    output.console().line(f"{done}; session {item.session} has {counted(item.notes, 'note')} now")


def show_checkpoints(checkpoints: list[Checkpoint], *, full: bool) -> None:
    """Print checkpoints, oldest first."""
    out = output.console()
    if not checkpoints:
        out.line("no checkpoints", style="dim")
    for item in checkpoints:
        place = (f"@{item.position}", "cyan"), " ", (dated(item.created_at), "dim"), " "
        whose = (f" {item.id} of {item.session}", "dim")
        out.line(
            *place, (item.name, "bold"), whose, f"  {cut(item.description, full=full)}" if item.description else ""
        )


def show_created(item: Checkpoint) -> None:
    """Print a checkpoint that was created."""
    text = f"checkpoint {item.name} ({item.id}) of session {item.session} at position {item.position}"
    output.console().line(text)


def show_checkpoint_deleted(item: CheckpointDeleted) -> None:
    """Print which checkpoint was deleted."""
    gone = item.deleted
    text = f"deleted checkpoint {gone.name} ({gone.id}), which was at position {gone.position}"
    output.console().line(text)


def show_restored(item: Restored) -> None:
    """Print what a restore changed, or would change."""
    out, changes = output.console(), item.changes
    done = "would restore" if item.dry_run else "restored"
    out.line(f"{done} checkpoint {changes.checkpoint.name} of position {changes.checkpoint.position}")
    for value in changes.values:
        out.line(f"  value {value.key} {_change(value)}")
    if changes.task_changes:
        out.line(f"  task {_task(changes.task_before)} -> {_task(changes.task_after)}")
    for sign, notes in (("-", changes.notes_removed), ("+", changes.notes_added)):
        for note in notes:
            out.line(f"  note {sign} {one_line(note.text)}")
    written = "; nothing was written" if item.dry_run else ""
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
    percent = _percent(task)
    return f"{task.description} ({task.status}{'' if percent is None else f', {percent:.3g} %'})"


def _percent(task: Task) -> float | None:
    if task.percent is not None or task.step is None or not task.total:
        return task.percent
    return min(100.0, 100 * task.step / task.total)


def _short(value: Any) -> str:
    return one_line(_json(value))


def _json(value: Any) -> str:
    return visible_json(to_json(value).decode())
