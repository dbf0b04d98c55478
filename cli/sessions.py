"""Commands on sessions: record turns, list sessions with scopes and agents, switch, current, branch, rewind."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.adapters.support.store_access import begin_session
from mnemolog.application.switches import SwitchHow
from mnemolog.cli.app import AsJson, Refused, Store, StoreCommand, app, typed
from mnemolog.cli.arguments import (
    WHEN,
    DryRun,
    Named,
    given_time,
    open_store,
    opened_session,
    position_or_time,
    session_called,
    standard_input,
)
from mnemolog.cli.output import answer, console, note, print_list
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors
from mnemolog.domain.display import counted, dated
from mnemolog.domain.encoding import to_json
from mnemolog.domain.position import When
from mnemolog.domain.session import checked_session_id
from mnemolog.domain.switching import SwitchReason
from mnemolog.projections.read_models import SessionSummary
from mnemolog.results import SwitchPreview
from mnemolog.session import Session


@app.command("record", cls=StoreCommand)
def record(
    store: Store,
    session: Named,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What was said; '-' reads it from standard input.")],
    role: Annotated[str, typer.Option(help="user, assistant, system or tool.")] = "user",
    key: Annotated[str | None, typer.Option(help="Idempotency key: a retry adds nothing.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Name of the speaker.")] = None,
    said_at: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="When it was said; UTC if no zone is given."),
    ] = None,
    metadata: Annotated[str | None, typer.Option(help="A JSON object to keep with the turn.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start the session, in a new store if there is none.")] = False,
    title: Annotated[str | None, typer.Option(help="Title of a session that is started.")] = None,
    scope: Annotated[str | None, typer.Option(help="Scope of a session that is started.")] = None,
    agent: Annotated[str | None, typer.Option(help="Agent of a session that is started; 'cli' if none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Record one turn. It is durable when the command returns.

    Example: mnemolog record memory/ trip "I moved to Lisbon in March." --start --scope acme/support/alice
    """
    said, kept = standard_input("text") if text == "-" else text, _object(metadata)
    checked_session_id(session)
    is_new = start and not any(store.glob("*"))
    with open_store(store, create=is_new) as opened:
        if is_new:
            note(f"created the store {store}")
        if start:
            begin_session(opened, session, title=title, scope=scope, agent=agent or "cli")
        chosen = opened.session(session_called(opened, session).id, title=title, scope=scope, agent=agent).id
        turn = opened.record(
            chosen,
            role,
            said,
            key=key,
            speaker=speaker,
            said_at=said_at,
            metadata=kept,
        )
    answer(turn, f"recorded at position {turn.position} in session {turn.session}", as_json=as_json)


def _object(value: str | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        example = """--metadata '{"channel": "mail"}'"""
        raise errors.InvalidInput("--metadata", f"{value!r} is not a JSON object; example: {example}") from error


@app.command("sessions", cls=StoreCommand)
def sessions(
    store: Store,
    scope: Annotated[list[str] | None, typer.Option(help="Only at or below this scope; may be repeated.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    title: Annotated[str | None, typer.Option(help="Only with this in the title, in any case.")] = None,
    since: Annotated[
        datetime | None,
        typer.Option(metavar="TIME", parser=given_time, help="Only started at this time or later."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions.

    Example: mnemolog sessions memory/ --scope acme/support
    """
    with open_store(store, create=False) as opened:
        found = opened.sessions(scope=scope or "", agent=agent, title=title, since=since)
    columns = {
        "session": lambda item: item.session,
        "title": lambda item: item.title,
        "scope": lambda item: item.scope,
        "agent": lambda item: item.agent,
        **({"parent": lambda item: item.parent or ""} if any(item.parent for item in found) else {}),
        "turns": lambda item: f"{item.turns:,}",
        **({"said": _said} if any(item.is_of_the_past for item in found) else {}),
        "started": lambda item: dated(item.started_at),
        "ended": lambda item: "" if item.ended_at is None else dated(item.ended_at),
    }
    print_list(found, columns, as_json=as_json, last="" if found else "no sessions")


@app.command("scopes", cls=StoreCommand)
def scopes(store: Store, as_json: AsJson = False) -> None:
    """List the scopes that sessions were started in, with their sessions and turns.

    Example: mnemolog scopes memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.scopes()
    columns = {
        "scope": lambda item: item.scope or "/",
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
    }
    print_list(found, columns, as_json=as_json)


@app.command("agents", cls=StoreCommand)
def agents(store: Store, as_json: AsJson = False) -> None:
    """List the agents that started sessions, with their sessions and turns, and the session each is in.

    Example: mnemolog agents memory/
    """
    with open_store(store, create=False) as opened:
        found = opened.agents()
    columns = {
        "agent": lambda item: item.agent,
        "sessions": lambda item: f"{item.sessions:,}",
        "turns": lambda item: f"{item.turns:,}",
        "current session": lambda item: item.current or "",
    }
    print_list(found, columns, as_json=as_json)


def _said(item: SessionSummary) -> str:
    if item.said_from is None or item.said_until is None:
        return ""
    return " to ".join(dict.fromkeys((dated(item.said_from), dated(item.said_until))))


Turns = Annotated[int | None, typer.Option(help="Rewind by this many visible turns.")]


@app.command("switch", cls=StoreCommand)
def switch(
    store: Store,
    reason: Annotated[SwitchReason, typer.Option(help="Why the agent leaves its session.")],
    to: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Id of the new session; random by default."),
    ] = None,
    left: Annotated[str | None, typer.Option("--from", metavar="SESSION", help="Session to leave.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(help="Agent that switches; default: the agent of --from, or 'agent'."),
    ] = None,
    at: Annotated[
        Any,
        typer.Option(
            metavar=WHEN,
            parser=position_or_time,
            help="Where to branch or rewind: a position or time of recording.",
        ),
    ] = None,
    turns: Turns = None,
    title: Annotated[str | None, typer.Option(help="Title of a session that is started.")] = None,
    scope: Annotated[str | None, typer.Option(help="Scope of a session that is started.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Switch an agent to another session, as one append.

    Example: mnemolog switch memory/ --reason branch --from trip --to trip-by-train
    """
    with open_store(store, create=False) as opened:
        to = session_called(opened, to).id if to and reason is SwitchReason.RESUME else to
        left = left and session_called(opened, left).id
        how = SwitchHow(reason=reason, session=left, agent=agent, at=at, turns=turns, title=title, scope=scope)
        if dry_run:
            answer(opened.preview_switch(to, **how), _show_preview, as_json=as_json)
        else:
            _answer_session(opened.switch(to, **how), as_json=as_json)


@app.command("current", cls=StoreCommand)
def current(
    store: Store,
    agent: Annotated[str, typer.Option(help="Agent whose session is printed.")] = DEFAULT_AGENT,
    as_json: AsJson = False,
) -> None:
    """Print the session that an agent was last switched to. Exit status 1 before any switch.

    Example: mnemolog current memory/ --agent assistant
    """
    with open_store(store, create=False) as opened:
        session = opened.current(agent)
        if session is None:
            begin = typed("switch", store, "--reason", "new", "--agent", agent)
            raise Refused(f"agent {agent!r} has no current session", hint=f"{begin} starts one")
        _answer_session(session, as_json=as_json)


@app.command("branch", cls=StoreCommand)
def branch(
    store: Store,
    session: Named,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="CHECKPOINT|POSITION|TIME", help="Branch point: a checkpoint, else a position or time of recording."
        ),
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="ID", help="Id of the branch; random by default.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the branch; by default that of the session.")] = None,
    as_json: AsJson = False,
) -> None:
    """Start a session that continues another. The agent stays in its session.

    Example: mnemolog branch memory/ trip --at before-booking --title "trip by train"
    """
    with opened_session(store, session) as opened:
        made = opened.branch(to, at=None if at is None else _place(opened, at), title=title)
        _answer_session(made, as_json=as_json)


@app.command("rewind", cls=StoreCommand)
def rewind(
    store: Store,
    session: Named,
    turns: Turns = None,
    to: Annotated[
        Any, typer.Option(metavar=WHEN, parser=position_or_time, help="Hide all turns recorded after it.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Hide the last turns of a session. They stay in the log; `show --hidden` prints them.

    Example: mnemolog rewind memory/ trip --turns 2 --dry-run
    """
    with opened_session(store, session) as opened:
        hidden = opened.rewind(turns=turns, to=to, dry_run=dry_run)
        done = {"session": opened.id, "hidden": hidden, "dry_run": dry_run}
    turns_hidden = counted(hidden, "turn") if hidden else "no turn"
    if dry_run:
        line = f"would hide {turns_hidden}; nothing was written"
    else:
        line = f"hid {turns_hidden}; they stay in the log" if hidden else "no turn to hide"
    answer(done, line, as_json=as_json)


def _place(session: Session, at: str) -> When:
    known = {label for checkpoint in session.checkpoints() for label in (checkpoint.id, checkpoint.name)}
    if at in known:
        return at
    try:
        return position_or_time(at)
    except typer.BadParameter:
        return at


def _answer_session(session: Session, *, as_json: bool) -> None:
    """Print the session that a command ended in: its id first, and the session that it comes from."""
    lineage = session.lineage()
    comes = f", from {lineage[-2]}" if len(lineage) > 1 else ""
    title = f" ({session.title})" if session.title else ""
    line = f"{session.id}{title} in {session.scope or '/'}, agent {session.agent}{comes}"
    found = {"session": session.id, "title": session.title, "agent": session.agent, "scope": session.scope}
    answer(found | {"lineage": lineage}, line, as_json=as_json)


def _show_preview(preview: SwitchPreview) -> None:
    """Print the events that a switch would append."""
    out = console()
    out.line(f"would switch from {preview.left or 'no session'} to {preview.to}; nothing was written")
    for item in preview.events:
        fields = to_json(item.event).decode()
        out.line(f"  {item.topic} to {item.stream}: {fields}", style="dim")
    if not preview.events:
        out.line("  nothing to append: this switch has already been made", style="dim")
