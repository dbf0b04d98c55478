"""Commands on the history: replay, diff, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from mnemolog.cli import completion_values as known
from mnemolog.cli import history_output as out
from mnemolog.cli import output
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import Full, log_position, session_called
from mnemolog.cli.progress import bar
from mnemolog.cli.times import given_time
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.store import MemoryStore

From = Annotated[
    int, typer.Option("--from", metavar="N", min=1, max=INTEGER_MAX, help="The first position; 1 by default.")
]
To = Annotated[
    int | None, typer.Option("--to", metavar="N", parser=log_position, help="The last position; the head by default.")
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
    to: To = None,
    session: Annotated[str | None, typer.Option(autocompletion=known.sessions, help="Only this session.")] = None,
    since: Annotated[str | None, typer.Option(help="Only events recorded at this time or later, ISO 8601.")] = None,
    until: Annotated[str | None, typer.Option(help="Only events recorded before this time.")] = None,
    full: Full = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="Print only the timeline, as JSON Lines.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the final state, as JSON.")] = False,
) -> None:
    """Print the events up to a position, and the state of the store then, from the log alone.

    Example: mnemolog replay memory/ --to 1200 --session trip
    """
    if as_json and (as_lines or first > 1 or since or until):
        raise typer.BadParameter(
            "use --json without --jsonl, --from, --since and --until: it prints only the final state"
        )
    begin = given_time("since", since)
    end = given_time("until", until)
    with MemoryStore.open(store, model=None, create=False) as opened:
        chosen = None if session is None else session_called(opened, session).id
        if not as_json:
            moments = opened.audit.timeline(after=first - 1, upto=to, session=chosen, since=begin, until=end)
            out.print_lines(moments) if as_lines else out.show_timeline(moments, full=full)
        if not as_lines:
            with bar("replaying") as progress:
                answer = opened.replay(to=to, session=chosen, progress=progress)
            (output.print_json if as_json else out.show_held)(answer)


@app.command("diff", cls=StoreCommand)
def diff(
    store: Store,
    before: Annotated[int, typer.Argument(metavar="A", parser=log_position, help="The earlier position.")],
    after: Annotated[
        int | None, typer.Argument(metavar="[B]", parser=log_position, help="The later position; the head by default.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, max=INTEGER_MAX, help="How many recorded turns to list.")] = 1_000,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print what changed between two positions: sessions, turns, values, tasks, notes, checkpoints, models.

    Example: mnemolog diff memory/ 1200 1350
    """
    with MemoryStore.open(store, model=None, create=False) as opened, bar("comparing") as progress:
        answer = opened.audit.diff(before, after, turns_max=limit, progress=progress)
    if as_json:
        output.print_json(answer)
    else:
        out.show_diff(answer, full=full)


@app.command("export", cls=StoreCommand)
def export(
    store: Store,
    file: Target = STANDARD_OUTPUT,
    first: From = 1,
    to: To = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the log as JSON Lines with all digests, to verify without mnemolog or to import again.

    Example: mnemolog export memory/ log.jsonl
    """
    with MemoryStore.open(store, model=None, create=False) as opened, bar("exporting") as progress:
        target = sys.stdout.buffer if file == STANDARD_OUTPUT else file
        answer = opened.audit.export(target, after=first - 1, upto=to, overwrite=force, progress=progress)
    if file == STANDARD_OUTPUT:
        return
    if as_json:
        output.print_json(answer)
    else:
        out.show_export(answer, file)
