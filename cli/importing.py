"""Commands that record what other programs wrote: import files and exported logs, follow transcripts of agents."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mnemolog.adapters.importers.import_files import FilePreview, ImportReport, holds_turns, import_files, preview_files
from mnemolog.audit.exports import LogImport, import_log, is_log_export
from mnemolog.cli.app import AsJson, ModelName, Refused, Store, StoreCommand, app, chosen_model, fail
from mnemolog.cli.command import (
    TEXT_INDENT,
    DryRun,
    Phase,
    answer,
    bar,
    given_time,
    note,
    open_store,
    out,
    phases,
    print_json,
    store_with_model,
)
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.display import TEXT_CHARACTERS_SHOWN, counted, dated, visible
from mnemolog.infra.runtime.files import ScratchFolder, write_pieces
from mnemolog.store import MemoryStore

if TYPE_CHECKING:
    from mnemolog.adapters.watch import Report

FORMAT_NAMES: Final = (
    "jsonl, json, csv, claude-code, codex, chatgpt, claude-ai, zep, mem0, chroma, langgraph, letta, mnemolog or openai"
)
_NO_TURNS_HINT: Final = "check the file; `mnemolog import --help` names the formats"
_NOT_MAPPED: Final = {
    "text": "nothing",
    "role": "user, unless the speaker names a role",
    "session": "the name of the file",
    "time": "none; the time of the import",
}
"""Where parts of a turn come from if no field holds them."""
_REFUSED_SHOWN: Final = 20
_REASONS_SHOWN: Final = 12


def _existing(given: str) -> Path:
    """Return the path of a file or a folder; `-` is the standard input. Raises `typer.BadParameter`."""
    if given != "-" and not Path(given).exists():
        raise typer.BadParameter(f"path {given!r} does not exist")
    return Path(given)


@app.command("import", cls=StoreCommand)
def import_(
    store: Store,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            parser=_existing,
            help="Files, zip archives, folders, or - for the standard input.",
        ),
    ],
    format: Annotated[  # noqa: A002
        str | None, typer.Option(help=f"The format, if it is not detected: {FORMAT_NAMES}.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(help="Which field of the file is what, such as text=body,session=room+day. May be repeated."),
    ] = None,
    scope: Annotated[str | None, typer.Option(help="Scope if the file names none.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent if the file names none.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip invalid lines and list them.")] = False,
    dry_run: DryRun = False,
    vectors: Annotated[bool, typer.Option(help="Embed what was imported.")] = True,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FOLDER", help="Keys of an exported log: a copy, or the store it is from."),
    ] = None,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Import conversations of other programs, or an exported log. Creates the store if there is none.

    The format is detected. Importing again records nothing twice.

    Example: mnemolog import memory/ conversations.json --dry-run

    Example: mnemolog import copy/ exported.jsonl --keys memory/

    Example: mnemolog import memory/ chats.csv --field text=body,session=room,time=date+clock --scope acme/support
    """
    scratch = ScratchFolder() if Path("-") in files else None
    files = [file if scratch is None or file != Path("-") else _saved_input(scratch.path) for file in files]
    if any(is_log_export(file) for file in files if file.is_file()):
        _import_log(store, files, keys=keys, dry_run=dry_run, as_json=as_json)
        return
    if keys is not None:
        raise typer.BadParameter("--keys needs an exported log among the files")
    fields = field or []
    if dry_run:
        with bar("reading") as progress:
            previews = preview_files(files, format=format, fields=fields, scope=scope, agent=agent, progress=progress)
        _answer_preview(previews, skip_bad=skip_bad, as_json=as_json)
        return
    with (
        _store(store, files, format=format, fields=fields, skip_bad=skip_bad, model=model) as opened,
        phases() as phase,
    ):
        report = import_files(
            opened,
            files,
            format=format,
            fields=fields,
            scope=scope,
            agent=agent,
            skip_bad=skip_bad,
            progress=phase("reading"),
        )
        try:
            _catch_up(opened, phase, vectors=vectors and chosen_model(model) is not None)
        except KeyboardInterrupt as stop:
            stop.add_note(report.so_far)
            raise
    answer(report, _show_report, as_json=as_json)
    if not report.turns:
        fail(_no_turns(report.empty), hint=_NO_TURNS_HINT)
    for path in report.empty:
        note(f"no turns in {path}")


def _saved_input(folder: Path) -> Path:
    """Save the standard input in a folder: files are read more than once."""
    write_pieces(folder / "stdin", iter(lambda: sys.stdin.buffer.read(1 << 20), b""))
    return folder / "stdin"


def _import_log(folder: Path, files: list[Path], *, keys: Path | None, dry_run: bool, as_json: bool) -> None:
    if len(files) > 1:
        raise typer.BadParameter("one of these files is an exported log; import it alone")
    if dry_run:
        raise typer.BadParameter("an exported log is imported as it is: --dry-run is for conversations")
    with bar("importing") as progress:
        found = import_log(files[0], folder, keys=keys, progress=progress)
    answer(found, _show_log, as_json=as_json)


def _store(
    folder: Path,
    files: list[Path],
    *,
    format: str | None,  # noqa: A002
    fields: list[str],
    skip_bad: bool,
    model: str,
) -> MemoryStore:
    """Open the store. If there is none, create it once a file is known to hold a turn."""
    try:
        return store_with_model(folder, model)
    except errors.StoreNotFound:
        if not holds_turns(files, format=format, fields=fields, skip_bad=skip_bad):
            raise Refused(_no_turns(map(str, files)), hint=_NO_TURNS_HINT) from None
        opened = open_store(folder, model=chosen_model(model), background=False)
        note(f"created the store {folder}")
        return opened


def _catch_up(store: MemoryStore, phase: Phase, *, vectors: bool) -> None:
    """Update the projections. The turns are already recorded, so a missing model is only a note."""
    store.admin.catch_up_views(progress=phase("indexing"))
    if vectors:
        try:
            store.admin.catch_up_vectors(progress=phase("embedding"))
        except errors.ModelError as error:
            note(errors.Hint(f"nothing was embedded: {error}; ", error.hint))


def _answer_preview(previews: list[FilePreview], *, skip_bad: bool, as_json: bool) -> None:
    if as_json:
        print_json(previews)
    else:
        for preview in previews:
            _show_preview(preview)
        refused = sum(len(preview.refused) for preview in previews)
        if refused and not skip_bad:
            skipped = counted(refused, "line")
            note(f"the import would stop at the first bad line; with --skip-bad it leaves out {skipped}")
        again = shlex.join(["mnemolog", *(word for word in sys.argv[1:] if word != "--dry-run")])
        note(f"nothing was written; to import: `{again}`")
    if not any(preview.turns for preview in previews):
        fail(_no_turns(preview.path for preview in previews), hint=_NO_TURNS_HINT)


def _no_turns(paths: Iterable[str]) -> str:
    return f"no turns in {', '.join(paths)}"


def _show_report(report: ImportReport) -> None:
    """Print what an import did; refused lines go to stderr."""
    text = f"{counted(report.turns, 'turn')} read from {counted(report.files, 'file')}, {report.recorded:,} recorded, "
    text += f"{report.already_there:,} already there, {counted(report.sessions, 'session')}"
    text += f", {report.forgotten:,} forgotten and left so" if report.forgotten else ""
    out.line(text)
    _show_left_out(report.left_out)
    for path in report.skipped:
        note(f"skipped {path}: no conversations")
    for line in report.refused:
        print(f"refused: {visible(line)}", file=sys.stderr)


def _show_left_out(left_out: dict[str, int]) -> None:
    if left_out:
        reasons = [f"{count:,} {reason}" for reason, count in left_out.items()]
        more = f" and {len(reasons) - _REASONS_SHOWN:,} more" if len(reasons) > _REASONS_SHOWN else ""
        out.line("left out: ", ", ".join(reasons[:_REASONS_SHOWN]), more)


def _show_preview(preview: FilePreview) -> None:
    """Print what an import of one file would record; refused lines go to stderr."""
    counts = f"{counted(preview.turns, 'turn')} in {counted(preview.sessions, 'session')}"
    out.line((preview.path, "bold"), f": {preview.kind}; {counts}")
    for target, described in (_NOT_MAPPED | preview.mapping if preview.mapping else {}).items():
        out.line(f"    {target:<14} ", described)
    for number, turn in enumerate(preview.first, start=1):
        who = f"{turn.role} {turn.speaker}" if turn.speaker else turn.role
        session = f"{turn.session} ({turn.session_title})" if turn.session_title else turn.session
        scope = f"scope {turn.scope}" if turn.scope else ""
        about = [session, who, dated(turn.said_at) if turn.said_at else "no time", scope, turn.where]
        out.line(f"{number}. ", (", ".join(part for part in about if part), "dim"))
        rest = "…" if len(turn.text) > TEXT_CHARACTERS_SHOWN else ""
        out.text(TEXT_INDENT, text=turn.text[:TEXT_CHARACTERS_SHOWN] + rest, full=True, margin=TEXT_INDENT)
    _show_left_out(preview.left_out)
    for line in preview.refused[:_REFUSED_SHOWN]:
        print(f"refused: {visible(line)}", file=sys.stderr)
    if len(preview.refused) > _REFUSED_SHOWN:
        note(f"{len(preview.refused) - _REFUSED_SHOWN:,} more are refused")


def _show_log(found: LogImport) -> None:
    """Print what an import did to the store."""
    out.line(f"{counted(found.events, 'event')} of log {found.log_id} imported into a new store")
    out.line(f"head {found.head}")
    if found.needs_keys:
        remedy = "import into another folder with `--keys FOLDER`, a copy of its keys or the store it is from"
        out.line(f"its content is encrypted, and cannot be read without its keys: {remedy}", style="yellow")


@app.command("watch", cls=StoreCommand)
def watch(
    store: Store,
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER...]", help="Folders of transcripts; by default those of Claude Code and Codex."
        ),
    ] = None,
    scope: Annotated[
        str | None, typer.Option(help="Scope of all sessions; by default each session's working folder.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--since", metavar="TIME", parser=given_time, help="Skip files last written before this time."),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="PATTERN", help="Skip matching paths, e.g. '*/secret-*'.")
    ] = None,
    format: Annotated[str | None, typer.Option(help="claude-code, codex or jsonl; else detected.")] = None,  # noqa: A002
    once: Annotated[bool, typer.Option("--once", help="Record the present transcripts and exit.")] = False,
    poll_s: Annotated[
        float | None,
        typer.Option("--poll", metavar="SECONDS", help="Poll at this interval, without the extra 'watch'."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record transcripts of coding agents while they are written. Secrets in them are recorded too.

    Example: mnemolog watch memory/ ~/.claude/projects --exclude '*/secret-*'
    """
    from mnemolog.adapters.watch import Watcher, ready_to_follow

    if not once:
        ready_to_follow(poll_s)
    with (
        open_store(store, background=False) as opened,
        Watcher(
            opened,
            folders or _default_folders(),
            format=format,
            scope=scope,
            since=since,
            exclude=exclude or (),
            stop=_stop_at_signals(),
        ) as watcher,
    ):
        with bar("reading") as progress:
            report = (watcher.catch_up if once else watcher.wait_and_catch_up)(progress=progress)
        _tell(report, as_json=as_json)
        if not once:
            watcher.follow(lambda news: _tell(news, as_json=as_json), poll_s=poll_s)


def _default_folders() -> list[Path]:
    from mnemolog.adapters.watch import default_folders

    if found := default_folders(os.environ, Path.home()):
        return found
    raise errors.InvalidInput("folder", "no transcripts of Claude Code or Codex in their usual folders; name a folder")


def _stop_at_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; they interrupt nothing."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(report, indent=-1)
    else:
        sys.stdout.write(_news(report) + "\n")
        for refusal in report.refusals:
            print(f"refused: {visible(str(refusal))}", file=sys.stderr)
    sys.stdout.flush()


def _news(report: Report) -> str:
    switches = ", ".join(f"{count} {reason}" for reason, count in sorted(report.switches.items()))
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(report.left_out.items()))
    facts = [
        f"recorded {counted(report.recorded, 'turn')}",
        f"{counted(report.sessions, 'session')} started",
        f"switches: {switches}" if switches else "",
        f"left out: {left_out}" if report.left_out else "",
        f"{counted(report.refused, 'line')} refused" if report.refused else "",
        f"{counted(report.files, 'file')} read",
    ]
    return ", ".join(fact for fact in facts if fact)
