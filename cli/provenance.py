"""Commands on where things come from: what a turn led to, and what is not trusted."""

from __future__ import annotations

from typing import Annotated

import typer

from mnemolog.application.distrust import Distrust
from mnemolog.audit.effects import Effects
from mnemolog.cli.app import EXIT_FAILED, AsJson, Store, StoreCommand, app, remark
from mnemolog.cli.arguments import open_store, session_called
from mnemolog.cli.output import Columns, answer, console, print_list
from mnemolog.domain.display import counted, dated, one_line
from mnemolog.projections.history.event_descriptions import describe, signed

COLUMNS: Columns[Distrust] = {
    "position": lambda item: str(item.position),
    "at": lambda item: dated(item.at),
    "what": lambda item: signed(describe(item.source), item.source),
    "covers": lambda item: f"{item.covers:,}",
    "ended": lambda item: "" if item.undone is None else f"at {item.undone}",
}


def _position(given: str) -> int:
    if not given.removeprefix("@").isdecimal():
        raise typer.BadParameter(f"{given!r} is no position; write it like 7146 or @7146")
    return int(given.removeprefix("@"))


@app.command("effects", cls=StoreCommand)
def effects(
    store: Store,
    position: Annotated[int, typer.Argument(parser=_position, metavar="POSITION", help="A turn: 7146 or @7146.")],
    as_json: AsJson = False,
) -> None:
    """Print what a turn led to: who was shown it, which facts rest on it, and what came after.

    Example: mnemolog effects memory/ @2
    """
    with open_store(store, create=False) as opened:
        answer(opened.audit.effects(position), _show_effects, as_json=as_json)


@app.command("distrust", cls=StoreCommand)
def distrust(
    store: Store,
    positions: Annotated[
        list[int] | None, typer.Argument(parser=_position, metavar="[POSITION]...", help="Turns: 7146 or @7146.")
    ] = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", metavar="SESSION", help="A session. May be repeated.")
    ] = None,
    actor: Annotated[str, typer.Option(help="What this actor appended and will append.")] = "",
    maker: Annotated[str, typer.Option(help="The facts that this program found and will find.")] = "",
    undo: Annotated[int | None, typer.Option(metavar="POSITION", help="End the distrust at this position.")] = None,
    reason: Annotated[str, typer.Option(help="The reason; it stays readable.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it nothing is distrusted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show nothing of a source as an answer, until --undo. Without --yes, only count what it covers.

    Example: mnemolog distrust memory/ @2 @3 --reason "a forged page" --yes
    """
    if undo is not None and (positions or session or actor or maker):
        raise typer.BadParameter("use --undo alone, with a reason if there is one")
    with open_store(store, create=False) as opened:
        if undo is not None:
            made, done = opened.trust_again(undo, reason=reason), "trusted again"
        else:
            sessions = [session_called(opened, given).id for given in session or ()]
            made = opened.distrust(
                positions=positions or (), session=sessions, actor=actor, maker=maker, reason=reason, dry_run=not yes
            )
            done = "covered" if made.position is None else "distrusted"
    covers = counted(made.covers, "turn or fact", "turns and facts")
    answer(made, f"{describe(made.source)}: {covers} {done}", as_json=as_json)
    if made.position is None:
        remark("nothing was changed", hint="add --yes to do it")
        raise typer.Exit(EXIT_FAILED)


@app.command("distrusted", cls=StoreCommand)
def distrusted(store: Store, as_json: AsJson = False) -> None:
    """List what was distrusted, why, and whether that has ended.

    Example: mnemolog distrusted memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.distrusts()
    print_list(found, COLUMNS, as_json=as_json, last="" if found else "nothing is distrusted")


def _show_effects(found: Effects) -> None:
    """Print what a turn led to."""
    out, turn = console(), found.turn
    out.line(f"@{turn.position} {turn.speaker or turn.role.value}: {one_line(turn.text)}", style="bold")
    out.line(f"shown by {counted(len(found.shown_in), 'answer')}")
    for item in found.shown_in:
        through = "" if item.fact is None else f", through the fact at @{item.fact}"
        where = f" in {item.session}" if item.session else ""
        out.line(f"    @{item.position} {dated(item.at)} {item.kind}{where}{through}: {one_line(item.query)}")
    out.line(f"{counted(len(found.rests_on), 'fact rests', 'facts rest')} on it")
    for fact in found.rests_on:
        out.line(f"    @{fact.position} {fact.key} ({fact.state})")
    out.line("came after, possibly because of it")
    for after in found.came_after:
        out.line(f"    {counted(len(after.turns), 'turn')} of {after.session} after @{after.after}")
    since = "there are no receipts" if found.receipts_since is None else f"receipts since {dated(found.receipts_since)}"
    gone = f"; {found.forgotten_receipts:,} were forgotten" if found.forgotten_receipts else ""
    out.line(f"{since}{gone}", style="dim")
