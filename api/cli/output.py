"""Terminal output of results. JSON output is the same structs, encoded."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mnemolog.projections.health.verify import Verification
from mnemolog.projections.history.session_tree import SessionNode
from mnemolog.projections.projector_status import ProjectorStatus
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.registry.results import RebuildReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

    from mnemolog.adapters.importers.import_files import ImportReport

FORGOTTEN: Final = "(forgotten)"
"""Shown in place of a forgotten name."""

_NUMBERS: Final = ("turns", "to", "behind", "bytes")


def print_json(answer: Any) -> None:
    """Print a result as one JSON document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode() + "\n")


def console() -> Console:
    """Return the console for results."""
    from rich.console import Console

    piped = not sys.stdout.isatty()  # A pipe has no width: do not fold ids to the usual 80 columns.
    return Console(highlight=False, soft_wrap=True, width=200 if piped else None)


def show_sessions(sessions: list[SessionSummary]) -> None:
    """Print a table of sessions."""
    table = table_of("session", "name", "scope", "agent", "turns", "started", "state")
    for item in sessions:
        state = "open" if item.ended_at is None else f"ended {dated(item.ended_at)}"
        started = dated(item.started_at)
        table.add_row(item.session, item.name or FORGOTTEN, item.scope, item.agent, str(item.turns), started, state)
    console().print(table)


def show_tree(roots: list[SessionNode]) -> None:
    """Print sessions as a tree, branches below their origin."""
    from rich.tree import Tree

    out = console()
    for root in roots:
        shown = Tree(_node(root, parent=root.parent))
        _grow(shown, root)
        out.print(shown)


def _grow(branch: Tree, node: SessionNode) -> None:
    for child in node.children:
        _grow(branch.add(_node(child)), child)


def _node(node: SessionNode, *, parent: str | None = None) -> Text:
    """Return a session on one line. `parent` is given if it is not printed above."""
    from rich.text import Text

    facts = [counted(node.turns, "turn")]
    if node.branched_at is not None:
        facts.append(f"branched at {node.branched_at}" + (f" of {parent}" if parent else ""))
    elif parent:
        facts.append(f"for {parent}")
    facts.append(node.reason)
    if node.ended_at is not None:
        facts.append(f"ended {dated(node.ended_at)}")
    return Text.assemble((node.name or FORGOTTEN, "bold"), f" ({node.session})  ", (", ".join(facts), "dim"))


def show_turns(turns: list[Turn]) -> None:
    """Print turns as a timeline."""
    out = console()
    for turn in turns:
        who = turn.speaker or turn.role.value
        out.print(f"[cyan]@{turn.position}[/cyan] [dim]{dated(turn.said_at)}[/dim] ", end="")
        out.print(f"{who}:", style="bold", markup=False, end=" ")
        out.print(turn.text, markup=False)


def projector_line(status: ProjectorStatus) -> str:
    """Return the state of a projector on one line."""
    line = status.state if status.position is None else f"{status.state} at position {status.position}"
    if status.waits_for is not None:
        line += f": {status.waits_for} embeds"
    if status.error is not None:
        line += f": {status.error}"
    if status.failures:
        line += f"; failed {counted(status.failures, 'time')}"
    if status.retry_in_s is not None:
        line += f", tries again in {status.retry_in_s:.0f} s"
    return line if status.pid is None else f"{line} (process {status.pid} on {status.host})"


def show_import(report: ImportReport) -> None:
    """Print what an import did; refused lines go to stderr."""
    text = f"{report.turns} turns read from {report.files} files, {report.recorded} recorded, "
    text += f"{report.already_there} already there, {report.sessions} sessions"
    text += f", {report.forgotten} forgotten and left so" if report.forgotten else ""
    console().print(text)
    for line in report.refused:
        print(f"refused: {line}", file=sys.stderr)


def show_rebuild(reports: list[RebuildReport]) -> None:
    """Print how much was built of what was expected."""
    out = console()
    for item in reports:
        if item.dry_run:
            text = f"{item.expected_turns} turns to read, {item.encoded_texts} texts to embed; nothing was changed"
        else:
            rate = item.built_turns / item.seconds if item.seconds else 0.0
            text = f"expected {item.expected_turns}, built {item.built_turns} turns up to {item.upto}"
            text += f" in {item.seconds:.1f} s ({rate:,.0f}/s), {item.encoded_texts} texts embedded"
            text += f", {item.skipped_turns} turns skipped" if item.skipped_turns else ""
        out.print(f"[bold]{item.projection}[/bold]: {text}")


def show_verification(answer: Verification) -> None:
    """Print the verdict, and every finding with its position."""
    out = console()
    for item in answer.findings:
        stream = item.stream or "the log"
        out.print(f"position {item.position}, {stream}: {item.kind.value}: {item.detail}", style="red", markup=False)
    if answer.findings_left_out:
        out.print(f"... and {answer.findings_left_out} more")
    verdict = "[green]sound[/green]" if answer.sound else "[red]DAMAGED[/red]"
    out.print(f"{verdict}: {answer.events} events in {answer.streams} streams, {answer.witnesses} witnesses checked")
    out.print(f"head {answer.head}:{answer.digest}")


def table_of(*columns: str) -> Table:
    """Return an empty table with these columns; numbers are right-aligned."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _NUMBERS else "left", overflow="fold")
    return table


def counted(number: int, thing: str) -> str:
    """Return a count with its noun, such as `2 turns`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def dated(moment: datetime) -> str:
    """Return a time to the minute."""
    return moment.strftime("%Y-%m-%d %H:%M")
