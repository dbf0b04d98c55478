"""The command that copies a store to another folder or database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.output import answer
from mnemolog.cli.progress import bar
from mnemolog.domain.display import counted
from mnemolog.operations.moving import CopyReport, copy_store


@app.command("copy", cls=StoreCommand)
def copy(
    store: Store,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A new folder, that of an earlier copy, or the URL of a database.")
    ],
    log: Annotated[str | None, typer.Option(help="In a database: the name of the log.")] = None,
    local: Annotated[
        Path | None, typer.Option(help="With --log: the folder of the copy on this machine, for other commands.")
    ] = None,
    keys: Annotated[str | None, typer.Option(metavar="URL", help="Another database, for the keys of the copy.")] = None,
    without_keys: Annotated[bool, typer.Option("--without-keys", help="Do not copy the content keys.")] = False,
    move: Annotated[
        bool, typer.Option("--move", help="Close DIR for events once it is copied. Stop its writers first.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what there is to copy; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a store to a folder or into PostgreSQL, with the same digests. Run it again to copy what came later.

    Example: mnemolog copy memory/ /mnt/elsewhere/memory
    """
    with bar("copying and verifying") as progress:
        report = copy_store(
            store,
            target,
            log=log,
            local=local,
            keys=keys,
            with_keys=not without_keys,
            move=move,
            dry_run=dry_run,
            progress=progress,
        )
    answer(report, _show_copy, as_json=as_json)


def _show_copy(report: CopyReport) -> None:
    out = output.console()
    done = f"would copy to {report.target}" if report.dry_run else f"copied to {report.target}"
    where = f", {report.database}" if report.database else ""
    out.line(f"{done}{where}: {counted(report.copied, 'event')} in {report.seconds:.1f} s")
    out.line(f"log {report.log_id}, head {report.head}:{report.digest}")
    if report.moved:
        out.line(f"{report.source} takes no more events")
    for note in report.notes:
        out.line(note)
