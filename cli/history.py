"""Commands on the history: replay, diff, export."""

from __future__ import annotations

import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mnemolog.cli import history_output as out
from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app
from mnemolog.cli.arguments import WHEN, ByTime, Full, open_store, session_called
from mnemolog.cli.progress import bar
from mnemolog.cli.times import given_time, position_or_time
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.projections.history.timeline import Moment

From = Annotated[int, typer.Option("--from", metavar="N", min=1, max=INTEGER_MAX, help="The first position.")]
To = Annotated[
    Any,
    typer.Option(
        "--to",
        metavar=WHEN,
        parser=position_or_time,
        help="The last position, or a time of recording; now by default.",
    ),
]
Target = Annotated[
    Path,
    typer.Argument(metavar="[FILE]", allow_dash=True, dir_okay=False, help="File to write; '-' is standard output."),
]
STANDARD_OUTPUT: Final = Path("-")


@app.command("replay", cls=StoreCommand)
def replay(
    store: Store,
    first: From = 1,
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
    by: ByTime = "recorded",
    full: Full = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print only the timeline, as JSON Lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the final state, as JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print only the timeline, as CSV.")] = False,
) -> None:
    """Print the events up to a position or time, and the state of the store then, from the log alone.

    Times are those of recording. With --by said they are those when turns were said, and no state is printed.

    Example: mnemolog replay memory/ --until "2026-03-16 14:00" --session trip
    """
    said = by == "said"
    if as_csv and (as_lines or as_json):
        raise typer.BadParameter("use one of --csv, --jsonl and --json")
    if as_json and (as_lines or first > 1 or since or said):
        raise typer.BadParameter("use --json without --jsonl, --from, --since and --by: it prints only the final state")
    if upto is not None and until is not None and not said:
        raise typer.BadParameter("give --to or --until, not both: each says where the replay ends")
    last = upto if until is None or said else until
    with open_store(store, create=False) as opened:
        chosen = None if session is None else session_called(opened, session).id
        if not as_json:
            moments = opened.audit.timeline(
                after=first - 1, upto=last, session=chosen, since=since, until=until if said else None, by=by
            )
            if as_csv:
                output.print_csv(Moment, moments)
            elif as_lines:
                out.print_lines(moments)
            else:
                out.show_timeline(moments, full=full)
        if not (as_lines or as_csv or said):  # No position has the state of what was said by a time.
            with bar("replaying") as progress:
                answer = opened.replay(to=last, session=chosen, progress=progress)
            (output.print_json if as_json else out.show_held)(answer)


@app.command("diff", cls=StoreCommand)
def diff(
    store: Store,
    before: Annotated[
        Any, typer.Argument(metavar="A", parser=position_or_time, help="The earlier position or time of recording.")
    ],
    after: Annotated[
        Any, typer.Argument(metavar="[B]", parser=position_or_time, help="The later one; the head by default.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, max=INTEGER_MAX, help="How many recorded turns to list.")] = 1_000,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print what changed between two positions or times: sessions, turns, values, tasks, notes, checkpoints, models.

    Example: mnemolog diff memory/ yesterday now
    """
    with open_store(store, create=False) as opened, bar("comparing") as progress:
        answer = opened.audit.diff(before, after, turns_max=limit, progress=progress)
    output.answer(answer, partial(out.show_diff, full=full), as_json=as_json)


@app.command("export", cls=StoreCommand)
def export(
    store: Store,
    file: Target = STANDARD_OUTPUT,
    first: From = 1,
    upto: To = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the log as JSON Lines with all digests, to verify without mnemolog or to import again.

    Example: mnemolog export memory/ log.jsonl
    """
    if file != STANDARD_OUTPUT and file.exists() and not replace:
        raise Refused(f"{file} exists", hint="choose another name, or add --replace")
    with open_store(store, create=False) as opened, bar("exporting") as progress:
        target = sys.stdout.buffer if file == STANDARD_OUTPUT else file
        answer = opened.audit.export(target, after=first - 1, upto=upto, replace=replace, progress=progress)
    if file == STANDARD_OUTPUT:
        return
    output.answer(answer, lambda answer: out.show_export(answer, file), as_json=as_json)
