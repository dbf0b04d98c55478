"""Commands on the history: what happened and changed, what a turn led to, what is not trusted, who read what."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from mnemolog.adapters.support.store_access import log_of
from mnemolog.application.facts import Distrust
from mnemolog.application.visible_events import Read
from mnemolog.audit.diff import Diff, SessionDiff
from mnemolog.audit.effects import Effects
from mnemolog.audit.exports import LogExport
from mnemolog.audit.receipt_audit import Judgement, receipt_at
from mnemolog.audit.subject import SubjectFile
from mnemolog.cli.app import AsJson, Command, Refused, Store, StoreCommand, app, fail
from mnemolog.cli.command import (
    WHEN,
    AsOf,
    Columns,
    Full,
    Yes,
    answer,
    bar,
    given_time,
    open_store,
    out,
    position_or_time,
    print_json,
    print_list,
    session_called,
)
from mnemolog.domain import errors
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, dated, named, one_line, visible_json
from mnemolog.domain.encoding import UNDECODABLE, to_json
from mnemolog.domain.events import ContextServed, RecallServed
from mnemolog.domain.scope import covers, parse_scope
from mnemolog.domain.values import checked_whole
from mnemolog.infra.runtime.files import mapped_to_store_errors, open_file
from mnemolog.projections.history.timeline import Moment, Replay, descent, describe, signed
from mnemolog.projections.read_models import FactChange
from mnemolog.results import Task, ValueChange

LINES_PER_WRITE: Final = 500
_STYLES: Final = {"+": "green", "-": "red", "~": "yellow"}


From = Annotated[int, typer.Option("--from", metavar="N", help="The first position.")]
To = Annotated[
    Any,
    typer.Option(
        "--to",
        metavar=WHEN,
        parser=position_or_time,
        help="The last position, or a time of recording; now by default.",
    ),
]
STANDARD_OUTPUT: Final = Path("-")


@app.command("replay", cls=StoreCommand)
def replay(
    store: Store,
    after: From = 1,
    upto: To = None,
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="Print only events of this time or later; see --by."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="The events and the state up to this time; see --by."),
    ] = None,
    by: Annotated[
        Any,
        typer.Option(
            "--by",
            metavar="said|recorded",
            parser=str,
            help="Whether --since and --until are times of saying or of recording.",
        ),
    ] = "recorded",
    full: Full = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print only the timeline, as JSON Lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the final state, as JSON.")] = False,
) -> None:
    """Print the events up to a position or time, and the state of the store then, from the log alone.

    Times are those of recording. With --by said they are those when turns were said, and no state is printed.

    Example: mnemolog replay memory/ --until "2026-03-16 14:00" --session trip
    """
    said = by == "said"
    if as_json and (as_lines or after != 1 or since or by != "recorded"):
        raise typer.BadParameter("use --json without --jsonl, --from, --since and --by: it prints only the final state")
    if upto is not None and until is not None and not said:
        raise typer.BadParameter("give --to or --until, not both: each says where the replay ends")
    last = upto if until is None or said else until
    with open_store(store, create=False) as opened:
        chosen = None if session is None else session_called(opened, session).id
        if not as_json:
            moments = opened.audit.timeline(
                after=checked_whole("after", after, least=1) - 1,
                upto=last,
                session=chosen,
                since=since,
                until=until if said else None,
                by=by,
            )
            if as_lines:
                _print_lines(moments)
            else:
                _show_timeline(moments, full=full)
        if not (as_lines or said):  # No position has the state of what was said by a time.
            with bar("replaying") as progress:
                found = opened.replay(to=last, session=chosen, progress=progress)
            (print_json if as_json else _show_held)(found)


@app.command("diff", cls=StoreCommand)
def diff(
    store: Store,
    before: Annotated[
        Any, typer.Argument(metavar="A", parser=position_or_time, help="The earlier position or time of recording.")
    ],
    after: Annotated[
        Any, typer.Argument(metavar="[B]", parser=position_or_time, help="The later one; the head by default.")
    ] = None,
    turns_max: Annotated[int, typer.Option("--limit", metavar="N", help="How many recorded turns to list.")] = 1_000,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print what changed between two positions or times: sessions, turns, values, tasks, notes, facts, models.

    Example: mnemolog diff memory/ yesterday now
    """
    with open_store(store, create=False) as opened, bar("comparing") as progress:
        found = opened.audit.diff(before, after, turns_max=turns_max, progress=progress)
    answer(found, partial(_show_diff, full=full), as_json=as_json)


@app.command("export", cls=StoreCommand)
def export(
    store: Store,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE]", allow_dash=True, dir_okay=False, help="File to write; '-' is standard output."
        ),
    ] = STANDARD_OUTPUT,
    after: From = 1,
    upto: To = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the log as JSON Lines with all digests, to verify without mnemolog or to import again.

    Example: mnemolog export memory/ log.jsonl
    """
    if file != STANDARD_OUTPUT:
        _require_free(file, replace=replace)
    with open_store(store, create=False) as opened, bar("exporting") as progress:
        target = sys.stdout.buffer if file == STANDARD_OUTPUT else file
        found = opened.audit.export(
            target, after=checked_whole("after", after, least=1) - 1, upto=upto, replace=replace, progress=progress
        )
    if file != STANDARD_OUTPUT:
        answer(found, lambda found: _show_export(found, file), as_json=as_json)


@app.command("subject", cls=StoreCommand)
def subject(
    store: Store,
    scope: Annotated[list[str], typer.Option("--scope", metavar="SCOPE", help="The person's. May be repeated.")],
    file: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The zip archive to write.")],
    as_of: AsOf = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write all that is stored of a person to one file: a page to read, and JSON Lines to import.

    Nothing of other scopes is in it. docs/subject.md says what is.

    Example: mnemolog subject memory/ --scope acme/alice -o alice.zip
    """
    _require_free(file, replace=replace)
    with open_store(store, create=False) as opened, bar("exporting", "writing the page") as progress:
        made = opened.audit.subject(file, scope=scope, as_of=as_of, replace=replace, progress=progress)
    answer(made, lambda made: _show_subject(made, file), as_json=as_json)


def _require_free(file: Path, *, replace: bool) -> None:
    """Raise `Refused` if a file exists and is not to be replaced."""
    if file.exists() and not replace:
        raise Refused(f"{file} exists", hint="choose another name, or add --replace")


def _print_lines(moments: Iterator[Moment]) -> None:
    """Print each event as one JSON object on a line of its own."""
    while page := list(islice(moments, LINES_PER_WRITE)):
        sys.stdout.write("".join(visible_json(to_json(moment).decode()) + "\n" for moment in page))


def _show_timeline(moments: Iterator[Moment], *, full: bool) -> None:
    """Print each event on a line: position, time, session, what happened. Long texts are cut, unless `full`."""
    for item in moments:
        position, at, who, what = item.columns()
        what = signed(describe(item.event, characters_max=None), item.event) if full else what
        out.line((position, "cyan"), " ", (at, "dim"), " ", (who, "bold"), f" {what}")


def _show_held(found: Replay) -> None:
    """Print the final state of the sessions; their turns are in the timeline."""
    heading, *sessions, digest = found.held()
    out.line(heading, style="bold")
    for line in sessions:
        out.line(line)
    out.line(digest, style="dim")


def _show_diff(found: Diff, *, full: bool) -> None:
    """Print what changed, session by session. Long texts are cut, unless `full`."""
    begin = f"from position {found.before.position} ({dated(found.before_at)})"
    out.line(f"{begin} to {found.after.position} ({dated(found.after_at)})", style="bold")
    for item in found.sessions:
        out.line(_title(item), style="bold")
        for sign, line in _changes(item, None if full else LINE_CHARACTERS_MAX):
            out.line(f"  {sign} {line}", style=_STYLES[sign])
    for change in found.facts:
        sign, line = _change("fact", change, partial(one_line, characters_max=None if full else LINE_CHARACTERS_MAX))
        out.line(f"{sign} {line} in {change.scope or '/'}, see @{change.position}", style=_STYLES[sign])
    for switch in found.switches:
        came = f"{switch.from_ or 'no session'} to {switch.to}"
        out.line(f"@{switch.position} {switch.agent} switched from {came} ({switch.reason})")
    for activation in found.activations:
        out.line(f"@{activation.position} model {activation} answers from here on")
    if found.turns_left_out:
        out.line(f"... and {counted(found.turns_left_out, 'recorded turn')} not listed")
    kinds = ", ".join(f"{number:,} {topic}" for topic, number in found.topics.items())
    out.line(f"{counted(sum(found.topics.values()), 'event')}{kinds and ': '}{kinds}", style="dim")


def _title(item: SessionDiff) -> str:
    facts = []
    if item.started:
        facts.append(descent(item.parent, item.branched_at) if item.parent else "started")
    if item.ended_before != item.ended_after:
        facts.append("ended" if item.ended_after else "resumed")
    return f"{named(item.session, item.title)} in {item.scope or '/'}{(facts and ': ') or ''}{', '.join(facts)}"


def _changes(item: SessionDiff, most: int | None) -> Iterable[tuple[str, str]]:
    """Yield the changes of a session: a sign for added, removed or changed, and a line with texts cut at `most`."""
    shown = partial(one_line, characters_max=most)
    for turn in item.turns:
        yield "+", f"@{turn.position} {turn.speaker or turn.role.value}: {shown(turn.text)}"
    if item.hidden:
        yield "-", f"{counted(len(item.hidden), 'turn')} hidden: {_listed(item.hidden)}"
    if item.shown:
        yield "+", f"{counted(len(item.shown), 'turn')} shown again: {_listed(item.shown)}"
    yield from (_change("value", change, shown) for change in item.values)
    if item.task_before != item.task_after:
        yield "~", f"task: {_task(item.task_before, shown)} -> {_task(item.task_after, shown)}"
    yield from (("-", f"note: {shown(note.text)}") for note in item.notes_removed)
    yield from (("+", f"note: {shown(note.text)}") for note in item.notes_added)
    yield from (("+", f"checkpoint {found.name} ({found.id})") for found in item.checkpoints_created)
    yield from (("-", f"checkpoint {found.name} ({found.id})") for found in item.checkpoints_deleted)


def _change(what: str, item: ValueChange | FactChange, shown: Callable[[str], str]) -> tuple[str, str]:
    old, new = (shown(to_json(value).decode()) for value in (item.before, item.after))
    match item.change:
        case "added":
            return "+", f"{what} {item.key} = {new}"
        case "changed":
            return "~", f"{what} {item.key}: {old} -> {new}"
        case how:
            return "-", f"{what} {item.key} {how} (was {old})"


def _task(task: Task | None, shown: Callable[[str], str]) -> str:
    if task is None:
        return "none"
    step = "" if task.step is None else f", step {task.step}" + (f" of {task.total}" if task.total else "")
    return f"{shown(task.description)} ({task.status}{step})"


def _listed(positions: tuple[int, ...], *, most: int = 10) -> str:
    more = f" and {len(positions) - most} more" if len(positions) > most else ""
    return ", ".join(f"@{position}" for position in positions[:most]) + more


def _show_export(found: LogExport, file: Path) -> None:
    """Print what was exported, and the head to verify it with."""
    out.line(f"{counted(found.events, 'event')} of log {found.log_id} in {file}, {counted(found.bytes, 'byte')}")
    out.line(f"head {found.head}")


def _show_subject(made: SubjectFile, file: Path) -> None:
    """Print what the file of a person has, and the head to verify it with."""
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in made.records.items())
    out.line(f"{', '.join(made.scopes)} in {file}: {kinds}")
    out.line(f"head {made.head}")


DISTRUSTS: Columns[Distrust] = {
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
    print_list(found, DISTRUSTS, as_json=as_json, last="" if found else "nothing is distrusted")


def _show_effects(found: Effects) -> None:
    """Print what a turn led to."""
    turn = found.turn
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
READS: Final[Columns[Read]] = {
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
    scope: Annotated[str | None, typer.Option(help="Only reads of this scope, above it or below it.")] = None,
    position: Annotated[int | None, typer.Option(metavar="N", help="Only reads that showed this position.")] = None,
    since: Annotated[
        datetime | None, typer.Option(metavar="TIME", parser=given_time, help="Only reads at this time or later.")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only reads that were refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print who read what: one line for each read that fits.

    Example: mnemolog reads reads.jsonl --position 7146
    """
    within = None if scope is None else parse_scope(scope)
    found = [
        read
        for read in _reads(file)
        if (actor is None or read.actor == actor)
        and (operation is None or read.operation == operation)
        and (
            within is None
            or not read.scope
            or any(covers(at, within) or covers(within, at) for at in map(parse_scope, read.scope))
        )
        and (position is None or any(first <= position <= last for first, last in read.positions))
        and (since is None or read.at >= since)
        and (not refused or read.refused)
    ]
    print_list(found, READS, as_json=as_json, last=counted(len(found), "read"))


def _reads(file: Path) -> Iterator[Read]:
    """Yield the lines of a file. Raises `InvalidInput` for one that is no read, with its number."""
    with mapped_to_store_errors(file, access="read"), open_file(file, follow=True) as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield _DECODER.decode(line)
            except UNDECODABLE as error:
                raise errors.InvalidInput("file", f"line {number} is no read: {error}") from error


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
    by = f" by {judgement.by}" if judgement.by else ""
    out.line(f"receipt @{judgement.receipt} judged{by}: {_verdict(judgement)}")
    out.line(f"   {one_line(judgement.query)}", style="dim")


def _verdict(judgement: Judgement) -> str:
    sides = [("good", judgement.good), ("bad", judgement.bad)]
    found = [f"{word} {', '.join(f'@{turn}' for turn in turns)}" for word, turns in sides if turns]
    return "; ".join([*found, *(["nothing answers it"] if judgement.nothing else [])])
