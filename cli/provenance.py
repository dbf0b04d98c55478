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

COLUMNS: Columns[Distrust] = {
    "position": lambda item: str(item.position),
    "at": lambda item: dated(item.at),
    "what": lambda item: _sources(item),
    "covers": lambda item: f"{item.covers:,}",
    "reason": lambda item: item.reason,
    "by": lambda item: item.by,
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
    scope: Annotated[str, typer.Option(metavar="PATH", help="Only what is at or below this scope.")] = "",
    undo: Annotated[int | None, typer.Option(metavar="POSITION", help="End the distrust at this position.")] = None,
    reason: Annotated[str, typer.Option(help="The reason; it stays readable.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what it covers; change nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it nothing is changed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show nothing of a source as an answer, until that is undone. Without --yes, only count what it covers.

    Example: mnemolog distrust memory/ @2 @3 --reason "a forged page" --yes
    """
    named = bool(positions or session or actor or maker or scope)
    if undo is not None and named:
        raise typer.BadParameter("use --undo alone, with a reason if there is one")
    does = yes and not dry_run
    with open_store(store, create=False) as opened:
        if undo is not None and does:
            made = opened.trust_again(undo, reason=reason)
        elif undo is not None:
            found = [item for item in opened.distrusts() if item.position == undo]
            made = found[0] if found else opened.trust_again(undo)  # Refused.
        else:
            made = opened.distrust(
                positions=positions or (),
                session=[session_called(opened, given).id for given in session or ()],
                actor=actor,
                maker=maker,
                scope=scope,
                reason=reason,
                dry_run=not does,
            )
    what = f"{_sources(made)}: {counted(made.covers, 'turn or fact', 'turns and facts')}"
    said = "trusted again" if undo is not None else f"distrusted at position {made.position}"
    would = f"would be {'trusted again' if undo is not None else 'distrusted'}"
    answer(made, f"{what} {said if does else would}", as_json=as_json)
    if not does and not dry_run:
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


def _sources(item: Distrust) -> str:
    named = {"turn": ", ".join(f"@{at}" for at in item.positions), "session": ", ".join(item.sessions)}
    named |= {"actor": item.actor, "maker": item.maker, "in": ", ".join(item.scopes)}
    return " ".join(f"{kind} {name}" for kind, name in named.items() if name)


def _show_effects(found: Effects) -> None:
    """Print what a turn led to."""
    out, turn = console(), found.turn
    trust = "" if turn.distrusted is None else f"distrusted at {turn.distrusted}: "
    out.line(f"@{turn.position} {turn.speaker or turn.role.value}: {trust}{one_line(turn.text)}", style="bold")
    out.line(f"shown by {counted(len(found.shown_in), 'answer')}")
    for item in found.shown_in:
        through = "" if item.fact is None else f", through the fact at @{item.fact}"
        who = f" by {item.actor}" if item.actor else ""
        where = f" in {item.session}" if item.session else ""
        out.line(f"    @{item.position} {dated(item.at)} {item.kind}{who}{where}{through}: {one_line(item.query)}")
    out.line(f"{counted(len(found.rests_on), 'fact rests', 'facts rest')} on it")
    for fact in found.rests_on:
        out.line(f"    @{fact.position} {fact.key} ({fact.state})")
    out.line("came after, possibly because of it")
    for after in found.came_after:
        out.line(f"    {counted(len(after.turns), 'turn')} of {after.session} after @{after.after}")
    since = "" if found.receipts_since is None else f" since {dated(found.receipts_since)}"
    gone = f"; {found.forgotten_receipts:,} were forgotten" if found.forgotten_receipts else ""
    kept = f"{counted(found.recalls, 'recall')} and {counted(found.contexts, 'context')}"
    out.line(f"known from the receipts of {kept}{since}{gone}", style="dim")
