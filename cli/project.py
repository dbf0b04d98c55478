"""Commands that build projections: project, rebuild."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from mnemolog.cli import output
from mnemolog.cli.app import EXIT_FAILED, AsJson, ModelName, Refused, Store, StoreCommand, app, chosen_model
from mnemolog.cli.arguments import store_with_model
from mnemolog.cli.output import console, print_json_line
from mnemolog.cli.progress import bar, phases
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.display import counted, visible
from mnemolog.domain.errors import ModelUnavailable
from mnemolog.operations.rebuild import Rebuildable
from mnemolog.projections.maintenance.results import RebuildReport
from mnemolog.projections.projector_status import ProjectorStatus

_ENDING = {signal.SIGINT, signal.SIGTERM}


@app.command("project", cls=StoreCommand)
def project(
    store: Store,
    follow: Annotated[bool, typer.Option("--follow", help="Keep embedding new turns until Ctrl-C.")] = False,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Embed all turns that have no vector yet. With --follow, print a line at every change of state.

    Example: mnemolog project memory/ --follow
    """
    if chosen_model(model) is None:
        raise ModelUnavailable(None, "without a model there is nothing to embed with (`--model none`)")
    if follow:
        _follow(store, model, as_json=as_json)
        return
    with store_with_model(store, model) as opened, bar("embedding") as progress:
        report = opened.admin.catch_up_vectors(progress=progress)
    print_build(report, [report], as_json=as_json)


@app.command("rebuild", cls=StoreCommand)
def rebuild(
    store: Store,
    projection: Annotated[
        str,
        typer.Argument(metavar="[vectors|views|all]", help="What to rebuild."),
    ] = "all",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the amount of work; change nothing.")] = False,
    scratch: Annotated[bool, typer.Option("--from-scratch", help="Embed every text again, without the cache.")] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip turns that the model refuses.")] = False,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Rebuild projections from the log. The old ones answer until the new ones are complete.

    Example: mnemolog rebuild memory/ vectors --dry-run
    """
    reports: list[RebuildReport] = []
    parts: tuple[Rebuildable, ...] = ("views", "vectors") if projection == "all" else (cast(Rebuildable, projection),)
    with store_with_model(store, model) as opened, phases() as phase:
        for part in parts:
            progress = phase(f"rebuilding {part}")
            reports += opened.rebuild(part, dry_run=dry_run, from_scratch=scratch, skip_bad=skip_bad, progress=progress)
    print_build(reports, reports, as_json=as_json)


def print_build(answer: Any, reports: list[RebuildReport], *, as_json: bool) -> None:
    """Print how much was built of what was expected. Exits with a failure if that is less."""
    output.answer(answer, lambda _: _show_reports(reports), as_json=as_json)
    if not all(report.complete for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _show_reports(reports: list[RebuildReport]) -> None:
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


def _follow(store: Path, model: str, *, as_json: bool) -> None:
    """Run until a signal ends it."""
    died: list[ProjectorStatus] = []

    def tell(status: ProjectorStatus) -> None:
        _print(status, as_json=as_json)
        if status.state == "dead":
            died.append(status)
            os.kill(os.getpid(), signal.SIGTERM)

    # Signals are blocked in all threads and received here, so they interrupt neither the model nor closing.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        with store_with_model(store, model, background=True) as opened:
            opened.admin.on_projector_change(tell)
            signal.sigwait(_ENDING)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if died:
        raise Refused(f"the projector died: {died[0].error}", hint="start it again; the turns are safe in the log")


def _print(status: ProjectorStatus, *, as_json: bool) -> None:
    if as_json:
        print_json_line(status)
    else:
        print(visible(_line(status)), flush=True)


def _line(status: ProjectorStatus) -> str:
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
