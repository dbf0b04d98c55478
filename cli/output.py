"""Terminal output of results. JSON and CSV output are the same structs, encoded."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from mnemolog.cli.hints import as_commands, as_text
from mnemolog.domain.display import TEXT_CHARACTERS_SHOWN, counted, dated, visible, visible_json
from mnemolog.domain.encoding import to_printable_json
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.health.verify import Verification
from mnemolog.projections.history.session_tree import SessionNode
from mnemolog.projections.maintenance.results import RebuildReport
from mnemolog.projections.projector_status import ProjectorStatus
from mnemolog.projections.read_models import AgentSummary, ScopeSummary, SessionSummary, Turn

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from mnemolog.adapters.importers.import_files import ImportReport
    from mnemolog.adapters.importers.preview import FilePreview
    from mnemolog.cli.terminal import Terminal

Answer = TypeVar("Answer")

_NOT_MAPPED: Final = {
    "text": "nothing",
    "role": "user, unless the speaker names a role",
    "session": "the name of the file",
    "time": "none; the time of the import",
}
"""Where parts of a turn come from if no field holds them."""
_REFUSED_SHOWN: Final = 20
_PREVIEW_MARGIN: Final = "   │ "
NO_SESSIONS: Final = "no sessions"


def print_json(answer: Any) -> None:
    """Print a result as one JSON document."""
    print_json_line(answer, indent=2)


def print_json_line(answer: Any, *, indent: int = -1) -> None:
    """Print a result as JSON, on one line without `indent`, and at once."""
    document = msgspec.json.format(to_printable_json(answer, enc_hook=as_text), indent=indent).decode()
    sys.stdout.write(visible_json(document) + "\n")
    sys.stdout.flush()


def print_csv(kind: type[Result], rows: Iterable[Result]) -> None:
    """Print results of one kind as CSV: a column for each field, lists and dictionaries as JSON, times in ISO 8601.

    What would steer a terminal is printed as escapes; line breaks and tabs stay.
    """
    names = [field.name for field in msgspec.structs.fields(kind)]
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write([field.encode_name for field in msgspec.structs.fields(kind)])
    for row in rows:
        write([_csv_cell(getattr(row, name)) for name in names])
    sys.stdout.flush()


def answer(value: Answer, show: Callable[[Answer], None], *, as_json: bool, csv_of: type[Result] | None = None) -> None:
    """Print a result as JSON, as CSV where it is a list of results of the kind `csv_of`, or with `show`."""
    if as_json:
        print_json(value)
    elif csv_of is not None:
        print_csv(csv_of, cast("Iterable[Result]", value))
    else:
        show(value)


def _csv_cell(value: Any) -> str:
    match msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=as_text):
        case None:
            return ""
        case str() as text:
            return "\t".join("\n".join(map(visible, part.split("\n"))) for part in text.split("\t"))
        case datetime() as moment:
            return moment.isoformat()
        case other:
            return visible_json(to_printable_json(other).decode())


def console() -> Terminal:
    """Return the console for results. Rich is imported here, because JSON does without it."""
    from mnemolog.cli.terminal import Terminal

    return Terminal()


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"note: {visible(as_commands(text))}", file=sys.stderr)


def show_sessions(sessions: list[SessionSummary]) -> None:
    """Print a table of sessions."""
    rows = [
        (
            item.session,
            item.title,
            item.scope,
            item.agent,
            f"{item.turns:,}",
            dated(item.started_at),
            "" if item.ended_at is None else dated(item.ended_at),
        )
        for item in sessions
    ]
    if not rows:
        console().line(NO_SESSIONS, style="dim")
        return
    console().rows(("session", "title", "scope", "agent", "turns", "started", "ended"), rows)


def show_scopes(scopes: Sequence[ScopeSummary]) -> None:
    """Print a table of scopes."""
    rows = [(item.scope or "/", f"{item.sessions:,}", f"{item.turns:,}") for item in scopes]
    console().rows(("scope", "sessions", "turns"), rows)


def show_agents(agents: Sequence[AgentSummary]) -> None:
    """Print a table of agents."""
    rows = [(item.agent, f"{item.sessions:,}", f"{item.turns:,}", item.current or "") for item in agents]
    console().rows(("agent", "sessions", "turns", "current session"), rows)


def show_tree(roots: list[SessionNode]) -> None:
    """Print sessions as a tree, branches below their origin."""
    from rich.tree import Tree

    out = console()
    if not roots:
        out.line(NO_SESSIONS, style="dim")
    for root in roots:
        shown = Tree(_node(root, parent=root.parent))
        _grow(shown, root)
        out.tree(shown)


def _grow(branch: Tree, node: SessionNode) -> None:
    for child in node.children:
        _grow(branch.add(_node(child)), child)


def _node(node: SessionNode, *, parent: str | None = None) -> Text:
    """Return a session on one line. `parent` is given if it is not printed above."""
    from mnemolog.cli.terminal import styled

    facts = [counted(node.turns, "turn")]
    if node.branched_at is not None:
        facts.append(f"branched at {node.branched_at}" + (f" of {parent}" if parent else ""))
    elif parent:
        facts.append(f"for {parent}")
    facts.append(node.reason)
    if node.ended_at is not None:
        facts.append(f"ended {dated(node.ended_at)}")
    return styled((node.session, "bold"), f" ({node.title})" if node.title else "", "  ", (", ".join(facts), "dim"))


def show_turns(turns: list[Turn], *, full: bool, seen: Container[Position] | None = None) -> None:
    """Print turns as a timeline. With `seen`, turns at other positions are marked as hidden."""
    out = console()
    if not turns:
        out.line("no turns", style="dim")
    for turn in turns:
        hidden = ("", "") if seen is None or turn.position in seen else ("hidden ", "yellow")
        place = (f"@{turn.position}", "cyan"), " ", (dated(turn.said_at), "dim")
        out.text(hidden, *place, " ", (f"{turn.speaker or turn.role.value}: ", "bold"), text=turn.text, full=full)


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
    text = f"{counted(report.turns, 'turn')} read from {counted(report.files, 'file')}, {report.recorded:,} recorded, "
    text += f"{report.already_there:,} already there, {counted(report.sessions, 'session')}"
    text += f", {report.forgotten:,} forgotten and left so" if report.forgotten else ""
    console().line(text)
    for line in report.refused:
        print(f"refused: {visible(line)}", file=sys.stderr)


def show_import_preview(preview: FilePreview) -> None:
    """Print what an import of one file would record; refused lines go to stderr."""
    out = console()
    counts = f"{counted(preview.turns, 'turn')} in {counted(preview.sessions, 'session')}"
    out.line((preview.path, "bold"), f": {preview.kind}; {counts}")
    for target, described in (_NOT_MAPPED | preview.mapping if preview.mapping else {}).items():
        out.line(f"    {target:<14} ", described)
    if preview.unread:
        out.line(f"    {'not read':<14} ", ", ".join(preview.unread))
    for number, turn in enumerate(preview.first, start=1):
        who = f"{turn.role} {turn.speaker}" if turn.speaker else turn.role
        session = f"{turn.session} ({turn.session_title})" if turn.session_title else turn.session
        scope = f"scope {turn.scope}" if turn.scope else ""
        about = [session, who, dated(turn.said_at) if turn.said_at else "no time", scope, turn.where]
        out.line(f"{number}. ", (", ".join(part for part in about if part), "dim"))
        rest = "…" if len(turn.text) > TEXT_CHARACTERS_SHOWN else ""
        text = turn.text[:TEXT_CHARACTERS_SHOWN] + rest
        out.text(_PREVIEW_MARGIN, text=text, full=True, margin=_PREVIEW_MARGIN)
    for line in preview.refused[:_REFUSED_SHOWN]:
        print(f"refused: {visible(line)}", file=sys.stderr)
    if len(preview.refused) > _REFUSED_SHOWN:
        note(f"{len(preview.refused) - _REFUSED_SHOWN:,} more are refused")


def show_rebuild(reports: list[RebuildReport]) -> None:
    """Print how much was built of what was expected."""
    out = console()
    for item in reports:
        embedded = counted(item.encoded_texts, "text")
        if item.dry_run:
            text = f"{counted(item.expected_turns, 'turn')} to read, {embedded} to embed; nothing was changed"
        else:
            rate = item.built_turns / item.seconds if item.seconds else 0.0
            text = f"expected {item.expected_turns:,}, built {counted(item.built_turns, 'turn')} up to {item.upto}"
            text += f" in {item.seconds:.1f} s ({rate:,.0f}/s), {embedded} embedded"
            text += f", {counted(item.skipped_turns, 'turn')} skipped" if item.skipped_turns else ""
        out.line((item.projection, "bold"), f": {text}")


def show_verification(answer: Verification) -> None:
    """Print the verdict, and every finding with its position."""
    out = console()
    for item in answer.findings:
        stream = item.stream or "the log"
        out.line(f"position {item.position}, {stream}: {item.kind.value}: {item.detail}", style="red")
    if answer.findings_left_out:
        out.line(f"... and {answer.findings_left_out:,} more")
    verdict = ("sound", "green") if answer.sound else ("DAMAGED" if answer.damaged else "NOT SOUND", "red")
    if answer.unfit:
        out.line(f"{counted(answer.unfit, 'event')} of this log did not come from mnemolog")
    looked = f"{counted(answer.events, 'event')} in {counted(answer.streams, 'stream')}"
    out.line(verdict, f": {looked}, {counted(answer.witnesses, 'witness', 'witnesses')} checked")
    out.line(f"head {answer.head}:{answer.digest}")
