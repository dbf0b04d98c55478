"""Commands that rebuild projections and verify the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from mnemolog.cli import output
from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    AsJson,
    ModelName,
    Refused,
    Store,
    StoreCommand,
    app,
    typed,
)
from mnemolog.cli.arguments import open_store, store_with_model
from mnemolog.cli.progress import bar, phases
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.errors import ImportRefused
from mnemolog.operations.rebuild import Rebuildable
from mnemolog.projections.registry.results import RebuildReport


def _projections(incomplete: str) -> list[str]:
    return [name for name in get_args(Rebuildable) if name.startswith(incomplete)]


@app.command("rebuild", cls=StoreCommand)
def rebuild(
    store: Store,
    projection: Annotated[
        str,
        typer.Argument(
            metavar="[vectors|views|all]", autocompletion=_projections, help="What to rebuild; all by default."
        ),
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
    output.answer(reports, output.show_rebuild, as_json=as_json)
    if not all(report.complete for report in reports):
        raise typer.Exit(EXIT_FAILED)


def _is_export(path: Path) -> bool:
    from mnemolog.audit.export_reader import is_log_export

    try:
        return is_log_export(path)
    except ImportRefused:
        return False


@app.command("verify", cls=StoreCommand)
def verify(
    store: Store,
    expect_head: Annotated[
        str | None, typer.Option(metavar="POSITION:DIGEST", help="A head that `mnemolog head` printed earlier.")
    ] = None,
    heads: Annotated[Path | None, typer.Option(metavar="FILE", help="A file of heads; each one is checked.")] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Also decrypt all content, which takes longer.")] = False,
    as_json: AsJson = False,
) -> None:
    """Verify the whole history. Exit status 3 if the log is damaged.

    Example: mnemolog verify memory/ --heads /mnt/elsewhere/heads.jsonl
    """
    if store.is_file() and _is_export(store):
        command = typed("import", store.with_suffix(""), store)
        raise Refused(f"{store} is an export, not a store", hint=f"importing it into a new store checks it: {command}")
    with open_store(store, create=False) as opened, bar("verifying") as progress:
        answer = opened.verify(expect_head=expect_head, heads=heads, contents=contents, progress=progress)
    output.answer(answer, output.show_verification, as_json=as_json)
    if not answer.sound:
        raise typer.Exit(EXIT_DAMAGED)
