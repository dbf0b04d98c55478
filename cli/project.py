"""The command that brings the vectors of a store up to date: once, or continuously."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import EXIT_FAILED, AsJson, ModelName, Refused, Store, StoreCommand, app, chosen_model
from mnemolog.cli.arguments import store_with_model
from mnemolog.cli.progress import bar
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.display import visible
from mnemolog.domain.errors import ModelUnavailable
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
    if as_json:
        output.print_json(report)
    else:
        output.show_rebuild([report])
    if not report.complete:
        raise typer.Exit(EXIT_FAILED)


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
        output.print_json_line(status)
    else:
        print(visible(output.projector_line(status)), flush=True)
