"""Commands on sessions and what they hold: turns, and working memory (values, the task, notes, checkpoints)."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.adapters.support.store_access import begin_session
from mnemolog.application.session_service import SwitchHow
from mnemolog.audit.verification import StoredEvent
from mnemolog.cli.app import AsJson, Group, Refused, Store, StoreCommand, app, typed
from mnemolog.cli.command import (
    WHEN,
    AfterPosition,
    At,
    DryRun,
    Full,
    Named,
    answer,
    as_of,
    given_time,
    note,
    note_more,
    open_store,
    opened_session,
    out,
    position_or_time,
    print_list,
    session_called,
    standard_input,
)
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors
from mnemolog.domain.display import counted, cut, dated, one_line, visible_json, visible_lines
from mnemolog.domain.encoding import to_json
from mnemolog.domain.session import checked_session_id
from mnemolog.domain.switching import SwitchReason
from mnemolog.domain.values import When
from mnemolog.domain.working_memory import MISSING
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.results import Checkpoint, Note, RestorePreview, SwitchPreview, Task, ValueChange
from mnemolog.session import Session, SessionAt


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
        _answer_session(opened.branch(to, at=None if at is None else _place(opened, at), title=title), as_json=as_json)


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
    out.line(f"would switch from {preview.left or 'no session'} to {preview.to}; nothing was written")
    for item in preview.events:
        fields = to_json(item.event).decode()
        out.line(f"  {item.topic} to {item.stream}: {fields}", style="dim")
    if not preview.events:
        out.line("  nothing to append: this switch has already been made", style="dim")


memory = typer.Typer(cls=Group, help="Read and write the values of a session's working memory.")
app.add_typer(memory, name="memory")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of the value.")]


@memory.command("get", cls=StoreCommand)
def get(store: Store, session: Named, key: Key, at: At = None, as_json: AsJson = False) -> None:
    """Print a value: text as it is, anything else as JSON. Exit status 1 if it does not exist.

    Example: mnemolog memory get memory/ trip budget
    """
    with opened_session(store, session) as opened:
        value = as_of(opened, at).get(key, MISSING)
    if value is MISSING:
        where = "" if at is None else f" at position {at}"
        listing = typed("memory list", store, session)
        raise Refused(f"session {opened.id!r} has no value {key!r}{where}", hint=f"{listing} lists the values it has")
    answer(value, show_value, as_json=as_json)


@memory.command("set", cls=StoreCommand)
def set_(
    store: Store,
    session: Named,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="JSON, else text; '-' reads standard input.")],
    text: Annotated[bool, typer.Option("--text", help="The value is text, also if it is JSON.")] = False,
    ttl: Annotated[float | None, typer.Option(metavar="SECONDS", help="Seconds until it expires.")] = None,
    as_json: AsJson = False,
) -> None:
    """Set a value of working memory. Put -- before a value that begins with a minus.

    Example: mnemolog memory set memory/ trip budget '{"eur": 900}' --ttl 3600
    """
    new = given_value(value, text=text)
    with opened_session(store, session) as opened:
        opened.set(key, new, ttl=ttl)
        written = {"session": opened.id, "key": key, "value": new, "ttl": ttl}
    expires = "" if ttl is None else f"; it expires in {ttl:g} s"
    answer(written, f"set {key} of session {written['session']}{expires}", as_json=as_json)


@memory.command("delete", cls=StoreCommand)
def delete(store: Store, session: Named, key: Key, as_json: AsJson = False) -> None:
    """Delete a value of working memory. If it does not exist, nothing is written.

    Example: mnemolog memory delete memory/ trip budget
    """
    with opened_session(store, session) as opened:
        done = {"session": opened.id, "key": key, "deleted": opened.delete(key)}
    nothing = f"session {done['session']} has no value {key}; nothing was deleted"
    line = f"deleted {key} of session {done['session']}" if done["deleted"] else nothing
    answer(done, line, as_json=as_json)


@memory.command("list", cls=StoreCommand)
def list_(
    store: Store,
    session: Named,
    pattern: Annotated[str | None, typer.Option(metavar="GLOB", help="Only keys that match, such as 'user/*'.")] = None,
    at: At = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """List the values of working memory by key, without expired ones.

    Example: mnemolog memory list memory/ trip --pattern 'user/*'
    """
    with opened_session(store, session) as opened:
        view = as_of(opened, at)
        chosen, values = set(view.keys(pattern)), view.all()
    answer({key: values[key] for key in values if key in chosen}, partial(show_values, full=full), as_json=as_json)


@app.command("task", cls=StoreCommand)
def task(
    store: Store,
    session: Named,
    set_: Annotated[str | None, typer.Option("--set", metavar="DESCRIPTION", help="Set the task.")] = None,
    step: Annotated[int | None, typer.Option(help="The current step.")] = None,
    total: Annotated[int | None, typer.Option(help="The number of steps.")] = None,
    percent: Annotated[float | None, typer.Option(help="Progress, 0 to 100.")] = None,
    status: Annotated[str | None, typer.Option(help="A word, such as active or done.")] = None,
    at: At = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print the task of a session; --set replaces it, the other options change it.

    Example: mnemolog task memory/ trip --set "book the flights" --step 1 --total 3
    """
    changes: dict[str, Any] = {"step": step, "total": total, "percent": percent, "status": status}
    changes = {name: value for name, value in changes.items() if value is not None}
    if at is not None and (changes or set_ is not None):
        raise typer.BadParameter("use --at without options that change the task: past states cannot be changed")
    found: Task | None
    with opened_session(store, session) as opened:
        if set_ is not None:
            found = opened.set_task(set_, **changes)
        elif changes:
            found = opened.update_task(**changes)
        else:
            found = as_of(opened, at).task()
    answer(found, partial(show_task, full=full), as_json=as_json)


@app.command("notes", cls=StoreCommand)
def notes(
    store: Store,
    session: Named,
    add: Annotated[str | None, typer.Option(metavar="TEXT", help="Add this note.")] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Delete all notes; needs --yes.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm --clear.")] = False,
    full: Full = False,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Print the notes on a session's scratchpad, add one, or clear them.

    Example: mnemolog notes memory/ trip --add "she prefers the night train"
    """
    if (add is not None) + clear + (at is not None) > 1:
        raise typer.BadParameter("use one of --add, --clear and --at")
    with opened_session(store, session) as opened:
        before = as_of(opened, at).notes(with_times=True)
        if add is None and not clear:
            answer(before, partial(show_notes, full=full), as_json=as_json)
            return
        if clear and not yes:
            what = f"{counted(len(before), 'note')} of session {opened.id!r}"
            raise Refused(f"this would clear {what}", hint="add --yes to clear them")
        if clear:
            opened.clear_notes()
        else:
            opened.note(add or "")
        left, cleared = len(opened.notes()), len(before) if clear else 0
        written = {"session": opened.id, "added": int(not clear), "cleared": cleared, "notes": left}
    done = f"cleared {counted(cleared, 'note')}" if clear else "added a note"
    answer(written, f"{done}; session {written['session']} has {counted(left, 'note')} now", as_json=as_json)


def given_value(value: str, *, text: bool) -> Any:
    """Return a value as it is given: JSON, or else text; `-` for standard input.

    Raises `InvalidInput` for what begins as a JSON object, array or string, and is none.
    """
    given = standard_input("value") if value == "-" else value
    try:
        return given if text else msgspec.json.decode(given)
    except (ValueError, RecursionError) as error:
        if not (isinstance(error, msgspec.ValidationError) or given.lstrip().startswith(("{", "[", '"'))):
            return given
        raise errors.InvalidInput("value", f"not JSON: {error}; use --text for plain text") from error


def show_value(value: Any) -> None:
    """Print a value: text unchanged, anything else as JSON."""
    print(visible_lines(value) if isinstance(value, str) else as_shown(value))


def show_values(values: Mapping[str, Any], *, full: bool) -> None:
    """Print keys with their values as JSON, one a line. Long ones are cut, unless `full`."""
    if not values:
        out.line("no values", style="dim")
    for key, value in values.items():
        out.line((key, "cyan"), f" {cut(as_shown(value), full=full)}")


def show_task(task: Task | None, *, full: bool) -> None:
    """Print the task on one line, with its progress if that is known."""
    if task is None:
        out.line("no task", style="dim")
        return
    facts: list[str] = []
    percent = percent_of(task)
    if percent is not None:
        facts.append(f"{percent:.3g} %")
    if task.step is not None:
        facts.append(f"step {task.step:,}" + ("" if task.total is None else f" of {task.total:,}"))
    since = (f"  since {dated(task.changed_at)}", "dim")
    described = (cut(task.description, full=full), "bold")
    out.line(described, *(f"  {fact}" for fact in facts), f"  {task.status}", since)


def show_notes(notes: list[Note], *, full: bool) -> None:
    """Print notes in order. Long ones are cut, unless `full`."""
    if not notes:
        out.line("no notes", style="dim")
    for number, item in enumerate(notes, 1):
        place = (f"{number}.", "bold"), " ", (f"{dated(item.added_at)} ", "dim")
        out.text(*place, text=item.text, full=full)


def percent_of(task: Task) -> float | None:
    """Return the progress of a task in percent, None if it is not known."""
    if task.percent is not None or task.step is None or not task.total:
        return task.percent
    return min(100.0, 100 * task.step / task.total)


def as_shown(value: Any) -> str:
    """Return a value as JSON on one line, safe to print."""
    return visible_json(to_json(value).decode())


checkpoints = typer.Typer(cls=Group, help="Create checkpoints of a session and restore them.")
app.add_typer(checkpoints, name="checkpoint")

CheckpointName = Annotated[str, typer.Argument(metavar="NAME", help="Name or id of the checkpoint.")]


@checkpoints.command("create", cls=StoreCommand)
def create(
    store: Store,
    session: Named,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the checkpoint.")],
    description: Annotated[str, typer.Option(help="What the checkpoint is for.")] = "",
    as_json: AsJson = False,
) -> None:
    """Create a checkpoint of a session. Its cost does not depend on the size of the memory.

    Example: mnemolog checkpoint create memory/ trip before-booking --description "nothing is paid yet"
    """
    with opened_session(store, session) as opened:
        created = opened.checkpoint(name, description)
    line = f"checkpoint {created.name} ({created.id}) of session {created.session} at position {created.position}"
    answer(created, line, as_json=as_json)


@checkpoints.command("list", cls=StoreCommand)
def list_checkpoints(
    store: Store,
    session: Named,
    at: At = None,
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """List the checkpoints of a session, inherited ones included, oldest first.

    Example: mnemolog checkpoint list memory/ trip
    """
    with opened_session(store, session) as opened:
        found = as_of(opened, at).checkpoints()
    answer(found, partial(show_checkpoints, full=full), as_json=as_json)


@checkpoints.command("restore", cls=StoreCommand)
def restore(
    store: Store, session: Named, checkpoint: CheckpointName, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Restore values, task and notes from a checkpoint, and hide the turns after it.

    Example: mnemolog checkpoint restore memory/ trip before-booking --dry-run
    """
    with opened_session(store, session) as opened:
        changes = opened.restore(checkpoint, dry_run=True)
        if not dry_run:
            opened.restore(changes.checkpoint.id)
    answer(
        {"dry_run": dry_run, "changes": changes}, lambda _: _show_restored(changes, dry_run=dry_run), as_json=as_json
    )


@checkpoints.command("delete", cls=StoreCommand)
def delete_checkpoint(store: Store, session: Named, checkpoint: CheckpointName, as_json: AsJson = False) -> None:
    """Delete a checkpoint. Its events stay in the log; `show --at` still prints that state.

    Example: mnemolog checkpoint delete memory/ trip before-booking
    """
    with opened_session(store, session) as opened:
        found = [item for item in opened.checkpoints() if checkpoint in (item.id, item.name)]
        opened.delete_checkpoint(found[0].id if found else checkpoint)  # Raises where there is none.
    gone = found[0]
    line = f"deleted checkpoint {gone.name} ({gone.id}), which was at position {gone.position}"
    answer({"deleted": gone}, line, as_json=as_json)


def show_checkpoints(checkpoints: list[Checkpoint], *, full: bool) -> None:
    """Print checkpoints, oldest first."""
    if not checkpoints:
        out.line("no checkpoints", style="dim")
    for item in checkpoints:
        place = (f"@{item.position}", "cyan"), " ", (dated(item.created_at), "dim"), " "
        out.line(
            *place,
            (item.name, "bold"),
            (f" {item.id} of {item.session}", "dim"),
            f"  {cut(item.description, full=full)}" if item.description else "",
        )


def _show_restored(changes: RestorePreview, *, dry_run: bool) -> None:
    """Print what a restore changed, or would change."""
    done = "would restore" if dry_run else "restored"
    out.line(f"{done} checkpoint {changes.checkpoint.name} of position {changes.checkpoint.position}")
    for value in changes.values:
        out.line(f"  value {value.key} {_change(value)}")
    if changes.task_changes:
        out.line(f"  task {_task(changes.task_before)} -> {_task(changes.task_after)}")
    for sign, notes in (("-", changes.notes_removed), ("+", changes.notes_added)):
        for item in notes:
            out.line(f"  note {sign} {one_line(item.text)}")
    written = "; nothing was written" if dry_run else ""
    out.line(f"  turns hidden: {changes.turns_hidden:,}{written}")


def _change(value: ValueChange) -> str:
    match value.change:
        case "added":
            return f"+ {_short(value.after)}"
        case "removed":
            return f"- {_short(value.before)}"
        case "changed" if value.before == value.after:
            return f"{_short(value.after)}, with another expiry"
        case _:
            return f"{_short(value.before)} -> {_short(value.after)}"


def _task(task: Task | None) -> str:
    if task is None:
        return "none"
    percent = percent_of(task)
    return f"{task.description} ({task.status}{'' if percent is None else f', {percent:.3g} %'})"


def _short(value: Any) -> str:
    return one_line(as_shown(value))


@app.command("show", cls=StoreCommand)
def show(
    store: Store,
    session: Annotated[
        str, typer.Argument(metavar="SESSION|POSITION", help="Id of a session, or the position of an event.")
    ],
    at: At = None,
    is_session: Annotated[bool, typer.Option("--session", help="Read a number as the id of a session.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Include turns hidden by a rewind or a restore.")] = False,
    after: AfterPosition = "0",
    before: Annotated[
        Any, typer.Option("--before", metavar=WHEN, parser=position_or_time, help="Only turns recorded before it.")
    ] = None,
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
