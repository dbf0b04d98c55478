"""Commands on the turns of a session: show, reconcile."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mnemolog.cli import output
from mnemolog.cli import session_output as out
from mnemolog.cli.app import AsCsv, AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import AfterPosition, At, BeforePosition, Full, Named, open_store, opened_session
from mnemolog.cli.history_output import show_event
from mnemolog.cli.messages import messages_in
from mnemolog.domain.limits import INTEGER_MAX
from mnemolog.projections.read_models import Turn
from mnemolog.session import SessionAt

Transcript = Annotated[
    Path, typer.Argument(metavar="FILE", allow_dash=True, help="The messages; '-' reads standard input.")
]


Shown = Annotated[
    str,
    typer.Argument(
        metavar="SESSION|POSITION",
        help="Id of a session, or the position of an event.",
    ),
]


@app.command("show", cls=StoreCommand)
def show(
    store: Store,
    session: Shown,
    at: At = None,
    is_session: Annotated[bool, typer.Option("--session", help="Read a number as the id of a session.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Include turns hidden by a rewind or a restore.")] = False,
    after: AfterPosition = "0",
    before: BeforePosition = None,
    limit: Annotated[int, typer.Option(min=1, max=INTEGER_MAX, help="Maximum number of turns.")] = 1_000,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Newest turns first.")] = False,
    full: Full = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Print the turns that a session sees, its whole state with --at, or one event of the log.

    Example: mnemolog show memory/ trip --newest-first --limit 20
    """
    is_event = session.isascii() and session.isdecimal() and not is_session
    if as_csv and (is_event or at is not None):
        raise typer.BadParameter("use --csv without --at, for the turns of a session")
    if is_event:
        _show_event(store, int(session), full=full, as_json=as_json)
        return
    if hidden and at is not None:
        raise typer.BadParameter("use --hidden without --at: turns hidden later are not hidden in a past state")
    page = out.Page(after=after, before=before, limit=limit, newest_first=newest_first)
    with opened_session(store, session) as opened:
        if at is not None:
            output.answer(_then(opened.at(at), page), partial(out.show_then, full=full), as_json=as_json)
        else:
            turns, seen = opened.turns(**page, hidden=hidden), opened.turns(**page) if hidden else None
            show = partial(out.show_turns, full=full, seen=seen)
            output.answer(turns, show, as_json=as_json, csv_of=Turn if as_csv else None)


@app.command("reconcile", cls=StoreCommand)
def reconcile(store: Store, session: Named, file: Transcript, as_json: AsJson = False) -> None:
    """Record the missing messages of a transcript: a JSON array or JSON Lines, with role and text.

    Example: mnemolog reconcile memory/ trip transcript.json
    """
    from mnemolog.adapters.support.reconcile import reconcile as record_missing

    messages = messages_in(file)
    with opened_session(store, session) as opened:
        added = record_missing(opened, messages)
        answer = out.Reconciled(session=opened.id, messages=len(messages), added=added)
    output.answer(answer, out.show_reconciled, as_json=as_json)


def _show_event(folder: Path, position: int, *, full: bool, as_json: bool) -> None:
    with open_store(folder, create=False) as store:
        output.answer(store.audit.event(position), partial(show_event, full=full), as_json=as_json)


def _then(then: SessionAt, page: out.Page) -> out.SessionThen:
    return out.SessionThen(
        session=then.id,
        position=then.position,
        ended=then.ended,
        lineage=then.lineage(),
        turns=then.turns(**page),
        task=then.task(),
        values=then.all(),
        notes=then.notes(with_times=True),
        checkpoints=then.checkpoints(),
    )
