"""The command that shows the turns of a session, or one event."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.audit.results import StoredEvent
from mnemolog.cli.app import AsJson, Store, StoreCommand, app
from mnemolog.cli.arguments import AfterPosition, At, BeforePosition, Full, open_store, opened_session
from mnemolog.cli.memory import show_checkpoints, show_notes, show_task, show_values
from mnemolog.cli.output import answer, console, note_more
from mnemolog.domain.display import counted, cut, dated, visible_json
from mnemolog.domain.encoding import to_json
from mnemolog.projections.history.event_descriptions import describe
from mnemolog.projections.read_models import Turn
from mnemolog.session import SessionAt

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
    limit: Annotated[int, typer.Option(help="Maximum number of turns.")] = 1_000,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Newest turns first.")] = False,
    last: Annotated[int | None, typer.Option(help="Only the last turns, in order.")] = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print the turns that a session sees, its whole state with --at, or one event of the log.

    Example: mnemolog show memory/ trip --newest-first --limit 20
    """
    if session.isascii() and session.isdecimal() and not is_session:
        with open_store(store, create=False) as whole:
            answer(whole.audit.event(int(session)), partial(_show_event, full=full), as_json=as_json)
        return
    if hidden and at is not None:
        raise typer.BadParameter("use --hidden without --at: turns hidden later are not hidden in a past state")
    page: dict[str, Any] = {
        "after": after,
        "before": before,
        "limit": limit,
        "newest_first": newest_first,
        "last": last,
    }
    with opened_session(store, session) as opened:
        if at is not None:
            then = _then(opened.at(at), page)
            turns = then["turns"]
            answer(then, partial(_show_then, full=full), as_json=as_json)
        else:
            turns, seen = opened.turns(**page, hidden=hidden), opened.turns(**page) if hidden else None
            answer(turns, partial(_show_turns, full=full, seen=seen), as_json=as_json)
        note_more(turns, "before" if newest_first or last is not None else "after")


def _then(then: SessionAt, page: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a session at a log position."""
    return {
        "session": then.id,
        "position": then.position,
        "ended": then.ended,
        "lineage": then.lineage(),
        "turns": then.turns(**page),
        "task": then.task(),
        "values": then.all(),
        "notes": then.notes(with_times=True),
        "checkpoints": then.checkpoints(),
    }


def _show_turns(turns: list[Turn], *, full: bool, seen: list[Turn] | None = None) -> None:
    """Print turns as a timeline. With `seen`, others are marked as hidden."""
    out = console()
    kept = None if seen is None else {turn.position for turn in seen}
    if not turns:
        out.line("no turns", style="dim")
    for turn in turns:
        hidden = ("", "") if kept is None or turn.position in kept else ("hidden ", "yellow")
        hidden = hidden if turn.distrusted is None else ("distrusted ", "yellow")
        place = (f"@{turn.position}", "cyan"), " ", (dated(turn.said_at), "dim")
        out.text(hidden, *place, " ", (f"{turn.speaker or turn.role.value}: ", "bold"), text=turn.text, full=full)


def _show_then(then: dict[str, Any], *, full: bool) -> None:
    """Print the state of a session: its turns, then its working memory. Long texts are cut, unless `full`."""
    out = console()
    state = ", ended" if then["ended"] else ""
    out.line(f"{' > '.join(then['lineage'])} at position {then['position']}{state}", style="bold")
    _show_turns(then["turns"], full=full)
    show_task(then["task"], full=full)
    if then["values"]:
        out.line("values", style="dim")
        show_values(then["values"], full=full)
    if then["notes"]:
        out.line("notes", style="dim")
        show_notes(then["notes"], full=full)
    if then["checkpoints"]:
        out.line("checkpoints", style="dim")
        show_checkpoints(then["checkpoints"], full=full)


def _show_event(item: StoredEvent, *, full: bool) -> None:
    """Print one event: a description, its columns, its content. Long texts are cut, unless `full`."""
    out = console()
    out.line(describe(item.event) if item.event else f"cannot be read: {item.unreadable}", style="bold")
    link = "holds" if item.link_holds else "DOES NOT HOLD: this event, or the one before, is not what was recorded"
    at = "no time of the calendar" if item.at is None else item.at.isoformat()
    columns: dict[str, Any] = {
        "position": item.position,
        "stream": item.stream,
        "version": item.version,
        "topic": item.topic,
        "key": "-" if item.key is None else item.key,
        "actor": item.event.actor if item.event and item.event.actor else "-",
        "recorded_at": f"{item.recorded_at} ({at})",
        "previous": item.previous_digest or "no event is before it",
        "digest": item.digest,
        "link": link,
        "state": f"{counted(len(item.state), 'byte')}: {item.state[:32].hex(' ')}" + (" …" * (len(item.state) > 32)),
    }
    for name, value in columns.items():
        out.line(f"{name:<12} {value}", style="red" if name == "link" and not item.link_holds else "")
    if item.event is not None:
        fields = msgspec.to_builtins(item.event)
        fields = {name: cut(value, full=full) if isinstance(value, str) else value for name, value in fields.items()}
        document = msgspec.json.format(to_json(fields), indent=2).decode()
        out.text(text=visible_json(document), full=True, style="dim", margin="  ")
