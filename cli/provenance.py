"""Commands on provenance: what a turn led to, what is not trusted, which answers were good, who read what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.application.distrust import Distrust
from mnemolog.application.read_audit import Read
from mnemolog.audit.effects import Effects
from mnemolog.audit.judgements import Judgement, receipt_at
from mnemolog.cli.app import AsJson, Command, Store, StoreCommand, app, fail
from mnemolog.cli.arguments import AsOf, Yes, open_store, session_called
from mnemolog.cli.output import Columns, answer, console, print_list
from mnemolog.domain import errors
from mnemolog.domain.display import counted, dated, one_line
from mnemolog.domain.encoding import UNDECODABLE
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.domain.position import parse_time, to_micros
from mnemolog.domain.scope import covers, parse_scope
from mnemolog.infra.runtime.files import mapped_to_store_errors, open_file
from mnemolog.projections.history.timeline import describe, signed

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
    as_of: AsOf = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print rows for a spreadsheet; no cell is a formula.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a turn led to: who was shown it, what they answered, which facts rest on it, and what came after.

    Example: mnemolog effects memory/ @2 --csv
    """
    with open_store(store, create=False) as opened:
        found = opened.audit.effects(position, as_of=as_of)
    answer(found, (lambda found: print(found.to_csv(), end="")) if as_csv else _show_effects, as_json=as_json)


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
    yes: Yes = False,
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
        fail("nothing was changed", hint="add --yes to do it")


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
        out.line(f"    @{item.position} {dated(item.served_at)} {item.kind}{where}{through}: {one_line(item.query)}")
        if item.answer is not None:
            out.line(f"        answered @{item.answer.position}: {one_line(item.answer.text)}")
    out.line(f"{counted(len(found.rests_on), 'fact rests', 'facts rest')} on it")
    for fact in found.rests_on:
        out.line(f"    @{fact.position} {fact.key} ({fact.state})")
    out.line("came after, possibly because of it")
    for after in found.came_after:
        out.line(f"    {counted(len(after.turns), 'turn')} of {after.session} after @{after.after}")
    since = "there are no receipts" if found.receipts_since is None else f"receipts since {dated(found.receipts_since)}"
    gone = f"; {found.forgotten_receipts:,} were forgotten" if found.forgotten_receipts else ""
    out.line(f"{since}{gone}", style="dim")


_DECODER: Final = msgspec.json.Decoder(Read)
_COLUMNS: Final[Columns[Read]] = {
    "at": lambda read: dated(read.at, seconds=True),
    "actor": lambda read: read.actor,
    "operation": lambda read: read.operation,
    "scope": lambda read: ", ".join(read.scope),
    "positions": lambda read: ", ".join(f"@{a}" if a == b else f"@{a}-{b}" for a, b in read.positions),
    "refused": lambda read: read.refused,
}


@app.command("reads", cls=Command)
def reads(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What --audit-reads has written.")],
    actor: Annotated[str | None, typer.Option(help="Only reads of this actor.")] = None,
    operation: Annotated[str | None, typer.Option(help="Only this operation, such as recall.")] = None,
    scope: Annotated[str | None, typer.Option(help="Only reads that this scope was part of.")] = None,
    position: Annotated[int | None, typer.Option(metavar="N", help="Only reads that showed this position.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only reads at this time or later.")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only reads that were refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print who read what: one line for each read that fits.

    Example: mnemolog reads reads.jsonl --position 7146
    """
    begin = None if since is None else parse_time("since", since)
    within = None if scope is None else parse_scope(scope)
    found = [
        read
        for read in _lines(file)
        if (actor is None or read.actor == actor)
        and (operation is None or read.operation == operation)
        and (within is None or not read.scope or any(covers(parse_scope(item), within) for item in read.scope))
        and (position is None or any(first <= position <= last for first, last in read.positions))
        and (begin is None or to_micros("at", read.at) >= begin)
        and (not refused or read.refused)
    ]
    print_list(found, _COLUMNS, as_json=as_json, last=counted(len(found), "read"))


def _lines(file: Path) -> Iterator[Read]:
    """Yield the lines of a file. Raises `InvalidInput` for one that is no read, with its number."""
    with mapped_to_store_errors(file, access="read"), open_file(file, follow=True) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _DECODER.decode(line)
            except UNDECODABLE as error:
                raise InvalidInput("file", f"line {number} is no read: {error}") from error


@app.command("judge", cls=StoreCommand)
def judge(
    store: Store,
    receipt: Annotated[
        int,
        typer.Argument(
            metavar="RECEIPT", help="Position of the receipt, as recall and context print it with --receipt."
        ),
    ],
    good: Annotated[
        list[int] | None,
        typer.Option(metavar="RANK", help="A hit that answers the question, by its number in the answer, from 1."),
    ] = None,
    bad: Annotated[
        list[int] | None,
        typer.Option(metavar="RANK", help="A hit that does not answer it, by its number in the answer."),
    ] = None,
    good_turn: Annotated[
        list[int] | None,
        typer.Option(metavar="POSITION", help="A turn that answers it, by its position: of a context, or not found."),
    ] = None,
    nothing: Annotated[bool, typer.Option("--nothing", help="No turn of the store answers it.")] = False,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who judges.")] = "",
    as_json: AsJson = False,
) -> None:
    """Judge the answer of a receipt: which hits were good, which were bad. Options for hits may be repeated.

    Judgements are events in the log; the last one of a receipt counts.

    Example: mnemolog judge memory/ 9 --good 3 --bad 1
    """
    with open_store(store, create=False) as opened:
        served = receipt_at(log_of(opened), receipt)
        judged = opened.audit.judge(
            receipt,
            good=[*_ranked(served, "good", good or ()), *(good_turn or ())],
            bad=[*_ranked(served, "bad", bad or ())],
            nothing=nothing,
            by=by,
        )
    answer(judged, _show_judgement, as_json=as_json)


def _ranked(served: RecallServed | ContextServed, option: str, ranks: Sequence[int]) -> Iterator[int]:
    """Yield the positions of hits by their numbers in the answer. Raises `InvalidInput` for a number without a hit."""
    for rank in ranks:
        if isinstance(served, ContextServed):
            raise errors.InvalidInput(
                option, "the turns of a context have no numbers: name one by --good-turn POSITION"
            )
        if not 1 <= rank <= len(served.hits):
            raise errors.InvalidInput(option, f"there is no hit {rank}: the answer has {len(served.hits)}")
        yield served.hits[rank - 1]


def _show_judgement(judgement: Judgement) -> None:
    """Print what was recorded about an answer."""
    out = console()
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {', '.join(f'@{turn}' for turn in turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])
