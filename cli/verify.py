"""The command that verifies the log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli.app import (
    EXIT_DAMAGED,
    AsJson,
    Store,
    StoreCommand,
    app,
    remark,
    typed,
)
from mnemolog.cli.arguments import open_store
from mnemolog.cli.output import console
from mnemolog.cli.progress import bar
from mnemolog.domain.display import counted
from mnemolog.operations.doctor.checks import missing_keys
from mnemolog.operations.known_backups import after_findings
from mnemolog.projections.health.verify import Verification


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
    """Verify the whole history of a store. Exit status 3 if it is damaged.

    Example: mnemolog verify memory/ --heads /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened, bar("verifying") as progress:
        answer = opened.verify(expect_head=expect_head, heads=heads, contents=contents, progress=progress)
        keys = missing_keys(opened.parts.log)
    output.answer(answer, _show_verification, as_json=as_json)
    if answer.moved_to:
        output.note(f"the log takes no more events: it was moved to {answer.moved_to}")
    if keys is not None:
        output.note(f"the content cannot be read: {keys}; {typed('doctor', store)} says what to do")
    if not answer.sound:
        remark("the history does not verify", hint=after_findings(store, answer.findings))
        raise typer.Exit(EXIT_DAMAGED)


def _show_verification(answer: Verification) -> None:
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
    if answer.confirmable:
        keys = counted(answer.confirmable, "idempotency key")
        out.line(f"{keys} of an earlier server tell of content: a guess can be confirmed, also after it is forgotten")
    looked = f"{counted(answer.events, 'event')} in {counted(answer.streams, 'stream')}"
    out.line(verdict, f": {looked}, {counted(answer.witnesses, 'witness', 'witnesses')} checked")
    out.line(f"head {answer.head}:{answer.digest}")
