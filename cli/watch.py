"""The command that records transcripts of coding agents."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import given_time, open_store
from mnemolog.cli.progress import bar
from mnemolog.domain.display import counted, visible
from mnemolog.domain.errors import InvalidInput

if TYPE_CHECKING:
    from mnemolog.adapters.watch import Report


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
    raise InvalidInput("folder", "no transcripts of Claude Code or Codex in their usual folders; name a folder")


def _stop_at_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set; they interrupt nothing."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _tell(report: Report, *, as_json: bool) -> None:
    if as_json:
        output.print_json(report, indent=-1)
    else:
        sys.stdout.write(_line(report) + "\n")
        for refusal in report.refusals:
            print(f"refused: {visible(str(refusal))}", file=sys.stderr)
    sys.stdout.flush()


def _line(report: Report) -> str:
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
