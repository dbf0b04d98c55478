"""Terminal output of sessions, switches and rewinds."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from mnemolog.cli import memory_output, output
from mnemolog.domain.display import counted
from mnemolog.domain.encoding import to_json
from mnemolog.domain.moments import When
from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Turn
from mnemolog.results import Checkpoint, Note, SwitchPreview, Task
from mnemolog.session import Session


class Page(TypedDict):
    """Which turns of a session to print."""

    after: When
    before: When | None
    limit: int
    newest_first: bool


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a command ended in."""

    session: str
    title: str
    agent: str
    """Who started it."""
    scope: str
    lineage: list[str]
    """Its ancestors, root first, and itself."""


class Rewound(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns were hidden, or with `dry_run` would be."""

    session: str
    hidden: int
    dry_run: bool


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a transcript that were missing and are now recorded."""

    session: str
    messages: int
    added: list[Turn]


class SessionThen(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session at a log position."""

    session: str
    position: Position
    ended: bool
    lineage: list[str]
    turns: list[Turn]
    task: Task | None
    values: dict[str, Any]
    notes: list[Note]
    checkpoints: list[Checkpoint]


def answer_of(session: Session) -> SessionAnswer:
    """Return the result of commands that end in a session."""
    return SessionAnswer(
        session=session.id, title=session.title, agent=session.agent, scope=session.scope, lineage=session.lineage()
    )


def show_session(item: SessionAnswer) -> None:
    """Print a session on one line, its id first."""
    comes = f", from {item.lineage[-2]}" if len(item.lineage) > 1 else ""
    title = f" ({item.title})" if item.title else ""
    text = f"{item.session}{title} in {item.scope or '/'}, agent {item.agent}{comes}"
    output.console().line(text)


def show_switch_preview(preview: SwitchPreview) -> None:
    """Print the events that a switch would append."""
    out = output.console()
    out.line(f"would switch from {preview.left or 'no session'} to {preview.to}; nothing was written")
    for item in preview.events:
        fields = to_json(item.event).decode()
        out.line(f"  {item.topic} to {item.stream}: {fields}", style="dim")
    if not preview.events:
        out.line("  nothing to append: this switch has already been made", style="dim")


def show_rewound(item: Rewound) -> None:
    """Print how many turns a rewind hid."""
    turns = counted(item.hidden, "turn")
    if not item.hidden:
        text = "no turn to hide; nothing was written" if item.dry_run else "no turn to hide"
    else:
        text = f"would hide {turns}; nothing was written" if item.dry_run else f"hid {turns}; they stay in the log"
    output.console().line(text)


def show_reconciled(item: Reconciled) -> None:
    """Print how many messages were missing."""
    read, added = counted(item.messages, "message"), len(item.added)
    rest = "" if added == item.messages else f", {item.messages - added:,} already recorded"
    output.console().line(f"{read} read, {added:,} added{rest}")


def show_turns(turns: list[Turn], *, full: bool, seen: list[Turn] | None) -> None:
    """Print turns as a timeline. Turns that are not among `seen` are marked as hidden."""
    output.show_turns(turns, full=full, seen=None if seen is None else {turn.position for turn in seen})


def show_then(then: SessionThen, *, full: bool) -> None:
    """Print the state of a session: its turns, then its working memory. Long texts are cut, unless `full`."""
    out = output.console()
    state = ", ended" if then.ended else ""
    out.line(f"{' > '.join(then.lineage)} at position {then.position}{state}", style="bold")
    output.show_turns(then.turns, full=full)
    memory_output.show_task(then.task, full=full)
    if then.values:
        out.line("values", style="dim")
        memory_output.show_values(then.values, full=full)
    if then.notes:
        out.line("notes", style="dim")
        memory_output.show_notes(then.notes, full=full)
    if then.checkpoints:
        out.line("checkpoints", style="dim")
        memory_output.show_checkpoints(then.checkpoints, full=full)
