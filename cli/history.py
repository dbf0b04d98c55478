"""Commands on the history: replay, diff, export."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mnemolog.audit.results import Diff, LogExport, SessionDiff
from mnemolog.audit.subject import SubjectFile
from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import WHEN, AsOf, Full, given_time, open_store, position_or_time, session_called
from mnemolog.cli.progress import bar
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, dated, named, one_line, visible_json
from mnemolog.domain.encoding import to_json
from mnemolog.domain.limits import checked_whole
from mnemolog.projections.history.replay import Replay, descent
from mnemolog.projections.history.timeline import Moment, describe, signed
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
                answer = opened.replay(to=last, session=chosen, progress=progress)
            (output.print_json if as_json else _show_held)(answer)


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
        answer = opened.audit.diff(before, after, turns_max=turns_max, progress=progress)
    output.answer(answer, partial(_show_diff, full=full), as_json=as_json)


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
        answer = opened.audit.export(
            target, after=checked_whole("after", after, least=1) - 1, upto=upto, replace=replace, progress=progress
        )
    if file != STANDARD_OUTPUT:
        output.answer(answer, lambda answer: _show_export(answer, file), as_json=as_json)


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
    output.answer(made, lambda made: _show_subject(made, file), as_json=as_json)


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
    out = output.console()
    for item in moments:
        position, at, who, what = item.columns()
        what = signed(describe(item.event, characters_max=None), item.event) if full else what
        out.line((position, "cyan"), " ", (at, "dim"), " ", (who, "bold"), f" {what}")


def _show_held(answer: Replay) -> None:
    """Print the final state of the sessions; their turns are in the timeline."""
    out = output.console()
    heading, *sessions, digest = answer.held()
    out.line(heading, style="bold")
    for line in sessions:
        out.line(line)
    out.line(digest, style="dim")


def _show_diff(answer: Diff, *, full: bool) -> None:
    """Print what changed, session by session. Long texts are cut, unless `full`."""
    out = output.console()
    before, after = answer.before.position, answer.after.position
    out.line(f"from position {before} ({dated(answer.before_at)}) to {after} ({dated(answer.after_at)})", style="bold")
    for item in answer.sessions:
        out.line(_title(item), style="bold")
        for sign, line in _lines(item, None if full else LINE_CHARACTERS_MAX):
            out.line(f"  {sign} {line}", style=_STYLES[sign])
    for change in answer.facts:
        sign, line = _change("fact", change, partial(one_line, characters_max=None if full else LINE_CHARACTERS_MAX))
        out.line(f"{sign} {line} in {change.scope or '/'}, see @{change.position}", style=_STYLES[sign])
    for switch in answer.switches:
        came = f"{switch.from_ or 'no session'} to {switch.to}"
        out.line(f"@{switch.position} {switch.agent} switched from {came} ({switch.reason})")
    for activation in answer.activations:
        out.line(f"@{activation.position} model {activation} answers from here on")
    if answer.turns_left_out:
        out.line(f"... and {counted(answer.turns_left_out, 'recorded turn')} not listed")
    kinds = ", ".join(f"{number:,} {topic}" for topic, number in answer.topics.items())
    out.line(f"{counted(sum(answer.topics.values()), 'event')}{kinds and ': '}{kinds}", style="dim")


def _title(item: SessionDiff) -> str:
    facts = []
    if item.started:
        facts.append(descent(item.parent, item.branched_at) if item.parent else "started")
    if item.ended_before != item.ended_after:
        facts.append("ended" if item.ended_after else "resumed")
    return f"{named(item.session, item.title)} in {item.scope or '/'}{(facts and ': ') or ''}{', '.join(facts)}"


def _lines(item: SessionDiff, most: int | None) -> Iterable[tuple[str, str]]:
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


def _show_export(answer: LogExport, file: Path) -> None:
    """Print what was exported, and the head to verify it with."""
    out = output.console()
    out.line(f"{counted(answer.events, 'event')} of log {answer.log_id} in {file}, {counted(answer.bytes, 'byte')}")
    out.line(f"head {answer.head}")


def _show_subject(made: SubjectFile, file: Path) -> None:
    """Print what the file of a person has, and the head to verify it with."""
    out, kinds = output.console(), ", ".join(f"{number:,} {kind}" for kind, number in made.records.items())
    out.line(f"{', '.join(made.scopes)} in {file}: {kinds}")
    out.line(f"head {made.head}")
