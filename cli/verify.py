"""Commands that rebuild projections and verify the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from mnemolog.audit.verification import verify_export
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
    remark,
    typed,
)
from mnemolog.cli.arguments import open_store, store_with_model
from mnemolog.cli.progress import bar, phases
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.operations.doctor.checks import missing_keys
from mnemolog.operations.rebuild import Rebuildable
from mnemolog.operations.recovery import after_findings
from mnemolog.projections.maintenance.results import RebuildReport


@app.command("rebuild", cls=StoreCommand)
def rebuild(
    store: Store,
    projection: Annotated[
        str,
        typer.Argument(metavar="[vectors|views|all]", help="What to rebuild; all by default."),
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
    """Verify the whole history of a store, or of an export. Exit status 3 if it is damaged.

    Example: mnemolog verify memory/ --heads /mnt/elsewhere/heads.jsonl
    """
    if store.is_file():
        if contents:
            raise Refused("--contents: an export has no keys", hint="leave it out: the digests need no keys")
        with bar("verifying") as progress:
            answer = verify_export(store, expect_head=expect_head, heads=heads, progress=progress)
        keys = None
    else:
        with open_store(store, create=False) as opened, bar("verifying") as progress:
            answer = opened.verify(expect_head=expect_head, heads=heads, contents=contents, progress=progress)
            keys = missing_keys(opened.parts.log)
    output.answer(answer, output.show_verification, as_json=as_json)
    if answer.moved_to:
        output.note(f"the log takes no more events: it was moved to {answer.moved_to}")
    if keys is not None:
        output.note(f"the content cannot be read: {keys}; {typed('doctor', store)} says what to do")
    if not answer.sound:
        hint = "keep the file as evidence, and export the log again"
        remark("the history does not verify", hint=hint if store.is_file() else after_findings(store, answer.findings))
        raise typer.Exit(EXIT_DAMAGED)
