"""Commands that build projections: project, rebuild."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from mnemolog.cli import output
from mnemolog.cli.app import EXIT_FAILED, AsJson, ModelName, Store, StoreCommand, app, chosen_model
from mnemolog.cli.arguments import store_with_model
from mnemolog.cli.output import console
from mnemolog.cli.progress import bar, phases
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.display import counted
from mnemolog.domain.errors import ModelUnavailable
from mnemolog.operations.rebuild import Rebuildable
from mnemolog.projections.maintenance.results import RebuildReport


@app.command("project", cls=StoreCommand)
def project(
    store: Store,
    model: ModelName = DEFAULT_MODEL,
    as_json: AsJson = False,
) -> None:
    """Embed all turns that have no vector yet.

    Example: mnemolog project memory/
    """
    if chosen_model(model) is None:
        raise ModelUnavailable(None, "without a model there is nothing to embed with (`--model none`)")
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
