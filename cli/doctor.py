"""Commands that check a store: doctor, quarantine, verify."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mnemolog.cli import output
from mnemolog.cli.app import (
    EXIT_DAMAGED,
    EXIT_FAILED,
    AsJson,
    Group,
    Store,
    StoreCommand,
    app,
    chosen_model,
    fail,
    typed,
)
from mnemolog.cli.arguments import DryRun, Yes, open_store
from mnemolog.cli.output import answer, console, print_list
from mnemolog.cli.progress import bar
from mnemolog.domain import errors
from mnemolog.domain.display import counted, dated
from mnemolog.domain.hints import Hint
from mnemolog.domain.request import acting_as, as_it_is
from mnemolog.operations.doctor import DoctorReport, missing_keys, unopened, usual_model
from mnemolog.operations.doctor import doctor as examine
from mnemolog.operations.known_backups import after_findings
from mnemolog.projections.history.verify import Verification
from mnemolog.projections.maintenance.context import Issue
from mnemolog.projections.quarantine import QuarantinedItem
from mnemolog.store import MemoryStore

quarantine = typer.Typer(cls=Group, help="Inspect and purge unusable files, which are kept with the reason.")
app.add_typer(quarantine, name="quarantine")

_STYLES: Final = {"note": "dim", "problem": "yellow", "log": "bold red"}


@app.command("doctor", cls=StoreCommand)
def doctor(
    store: Store,
    fix: Annotated[bool, typer.Option("--fix", help="Fix what can be fixed. The log is never changed.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="Read every byte, and compare the views with the log.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --fix would do; change nothing.")] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Go on with a log that has lost events; an event says so.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="With --accept-loss: why.")] = "",
    actor: Annotated[
        str, typer.Option("--actor", metavar="NAME", help="With --accept-loss: who decides it.")
    ] = "operator",
    model: Annotated[
        str | None,
        typer.Option("--model", help="The model of the vectors that --fix updates; by default the one the store uses."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the problems of a store, with consequence and remedy. Exit 0: none, 1: problems, 3: log or keys damaged.

    Example: mnemolog doctor memory/ --deep --dry-run

    Example: mnemolog doctor memory/ --accept-loss --actor ada --reason "the disk of the 3rd of May is gone"
    """
    try:
        with _opened(store, model) as opened, bar("examining") as progress, acting_as(actor):
            parts = opened.parts
            if accept_loss and not dry_run:
                opened.admin.doctor(accept_loss=True, reason=reason)
            found = examine(
                *(parts.layout, parts.log, parts.projections),
                deep=deep,
                fix=fix and not dry_run,
                progress=progress,
                model_given=model is not None,
            )
    except (errors.LogDamaged, errors.LogUnreachable) as error:
        found = unopened(store, error, deep=deep)
    answer(found, partial(_show_report, dry_run=dry_run), as_json=as_json)
    if not found.healthy:
        raise typer.Exit(EXIT_DAMAGED if found.log_damaged else EXIT_FAILED)


def _opened(store: Path, model: str | None) -> MemoryStore:
    """Open a store with the model that was given, or else with the one that it uses."""
    if model is None:
        with open_store(store, create=False) as opened:
            parts = opened.parts
            model = usual_model(parts.layout, parts.log, parts.projections)
    return open_store(store, model=chosen_model(model or "none"), create=False, background=False)


@quarantine.command("list", cls=StoreCommand)
def list_(store: Store, as_json: AsJson = False) -> None:
    """List the items in quarantine: what they were, why and when they were moved there.

    Example: mnemolog quarantine list memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.quarantine().items()
    columns = {
        "name": lambda item: item.name,
        "was": lambda item: item.was,
        "state": lambda item: item.state,
        "since": lambda item: "" if item.when is None else dated(item.when),
        "bytes": lambda item: f"{item.bytes:,}",
        "reason": lambda item: item.reason,
    }
    print_list(found, columns, as_json=as_json, last=_size(found))


@quarantine.command("purge", cls=StoreCommand)
def purge(
    store: Store,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete all items in quarantine. A segment ahead of the log is evidence of lost events: list before you purge.

    Example: mnemolog quarantine purge memory/ --yes
    """
    looking = dry_run or not yes
    with open_store(store, create=False) as opened:
        items = opened.admin.quarantine().purge(dry_run=looking)
    answer({"dry_run": looking, "items": items}, _show_purged, as_json=as_json)
    if not yes and not dry_run:
        fail("nothing was deleted", hint="add --yes to delete, or --dry-run to only list")


def _show_report(answer: DoctorReport, *, dry_run: bool) -> None:
    """Print every finding, and the verdict."""
    out = console()
    shown = [(item, item.matters, _done(item, dry_run=dry_run)) for item in answer.findings]
    for (item, matters, done), following in zip_longest(shown, shown[1:]):
        out.line((f"{item.where}: {item.state}", _STYLES[item.severity]), f" ({item.severity}) ", item.why)
        if following is None or following[1:] != (matters, done):  # Once for findings of which the same is true.
            out.line(f"  {matters}", style="dim")
            out.advice(Hint("  ", done))
    out.line(_verdict(answer), f"; head {answer.head}")
    if answer.checked:
        out.line(f"checked: {'; '.join(answer.checked)}", style="dim")
    if answer.not_checked:
        how = (": ", answer.full_check, " checks all of it") if answer.full_check else ()
        out.advice(Hint(f"not checked: {'; '.join(answer.not_checked)}", *how), style="dim")


def _verdict(answer: DoctorReport) -> tuple[str, str]:
    if answer.log_damaged:
        keys = all(item.what == "keys" for item in answer.findings if item.severity == "log")
        if keys:
            return "THE KEYS OF THE LOG cannot be used", "red"
        return "THE LOG IS DAMAGED, or a witness contradicts it", "red"
    if answer.healthy:
        fixed = any(item.fixed for item in answer.findings)
        return f"no problems {'left' if fixed else 'found'} in what was checked", "green"
    left = sum(1 for item in answer.findings if item.severity == "problem" and not item.fixed)
    return counted(left, "problem"), "yellow"


def _done(item: Issue, *, dry_run: bool) -> str:
    if item.outcome:
        return Hint("fixed: " if item.fixed else "not fixed: ", item.outcome)
    if dry_run:
        return "--fix would fix this" if item.fixable else Hint("--fix cannot fix this: ", item.action)
    return item.action


def _show_purged(done: dict[str, Any]) -> None:
    for item in done["items"]:
        console().line(f"{item.name}  ({item.was}: {item.state})")
    console().line(f"{'would delete' if done['dry_run'] else 'deleted'} {_size(done['items'])}")


def _size(items: Sequence[QuarantinedItem]) -> str:
    return f"{counted(len(items), 'item')}, {counted(sum(item.bytes for item in items), 'byte')}"


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
    """Verify the whole history of a store. Exit status 3 if it is damaged, or the key of its keys is missing.

    Example: mnemolog verify memory/ --heads /mnt/elsewhere/heads.jsonl
    """
    with open_store(store, create=False) as opened, bar("verifying") as progress:
        answer = opened.verify(expect_head=expect_head, heads=heads, contents=contents, progress=progress)
        with as_it_is():
            keys = missing_keys(opened.parts.log)
    output.answer(answer, _show_verification, as_json=as_json)
    if answer.moved_to:
        output.note(f"the log takes no more events: it was moved to {answer.moved_to}")
    if keys is not None:
        output.note(f"the content cannot be read: {keys}; {typed('doctor', store)} says what to do")
    if keys is not None and keys.wrapped and answer.sound:
        fail("the content was not verified", hint=keys.hint, status=EXIT_DAMAGED)
    if not answer.sound:
        fail("the history does not verify", hint=after_findings(store, answer.findings), status=EXIT_DAMAGED)


def _show_verification(answer: Verification) -> None:
    """Print the verdict, and every finding with its position."""
    out = console()
    for item in answer.findings:
        stream = item.stream or "the log"
        out.line(f"position {item.position}, {stream}: {item.kind.value}: {item.detail}", style="red")
    for loss in answer.accepted:
        out.line(loss)
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
