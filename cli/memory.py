"""Commands on what a session holds: its turns, and its working memory (values, the task, notes, checkpoints)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from mnemolog.audit.results import StoredEvent
from mnemolog.cli.app import AsJson, Group, Refused, Store, StoreCommand, app, typed
from mnemolog.cli.arguments import (
    AfterPosition,
    At,
    BeforePosition,
    DryRun,
    Full,
    Named,
    as_of,
    open_store,
    opened_session,
    standard_input,
)
from mnemolog.cli.output import answer, console, note_more
from mnemolog.domain import errors
from mnemolog.domain.display import counted, cut, dated, one_line, visible_json, visible_lines
from mnemolog.domain.encoding import to_json
from mnemolog.domain.working_memory import MISSING
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.read_models import Turn
from mnemolog.results import Checkpoint, Note, RestorePreview, Task, ValueChange
from mnemolog.session import SessionAt

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
    out = console()
    if not values:
        out.line("no values", style="dim")
    for key, value in values.items():
        out.line((key, "cyan"), f" {cut(as_shown(value), full=full)}")


def show_task(task: Task | None, *, full: bool) -> None:
    """Print the task on one line, with its progress if that is known."""
    if task is None:
        console().line("no task", style="dim")
        return
    facts: list[str] = []
    percent = percent_of(task)
    if percent is not None:
        facts.append(f"{percent:.3g} %")
    if task.step is not None:
        facts.append(f"step {task.step:,}" + ("" if task.total is None else f" of {task.total:,}"))
    since = (f"  since {dated(task.changed_at)}", "dim")
    described = (cut(task.description, full=full), "bold")
    console().line(described, *(f"  {fact}" for fact in facts), f"  {task.status}", since)


def show_notes(notes: list[Note], *, full: bool) -> None:
    """Print notes in order. Long ones are cut, unless `full`."""
    out = console()
    if not notes:
        out.line("no notes", style="dim")
    for number, note in enumerate(notes, 1):
        place = (f"{number}.", "bold"), " ", (f"{dated(note.added_at)} ", "dim")
        out.text(*place, text=note.text, full=full)


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
    out = console()
    if not checkpoints:
        out.line("no checkpoints", style="dim")
    for item in checkpoints:
        place = (f"@{item.position}", "cyan"), " ", (dated(item.created_at), "dim"), " "
        whose = (f" {item.id} of {item.session}", "dim")
        out.line(
            *place, (item.name, "bold"), whose, f"  {cut(item.description, full=full)}" if item.description else ""
        )


def _show_restored(changes: RestorePreview, *, dry_run: bool) -> None:
    """Print what a restore changed, or would change."""
    out = console()
    done = "would restore" if dry_run else "restored"
    out.line(f"{done} checkpoint {changes.checkpoint.name} of position {changes.checkpoint.position}")
    for value in changes.values:
        out.line(f"  value {value.key} {_change(value)}")
    if changes.task_changes:
        out.line(f"  task {_task(changes.task_before)} -> {_task(changes.task_after)}")
    for sign, notes in (("-", changes.notes_removed), ("+", changes.notes_added)):
        for note in notes:
            out.line(f"  note {sign} {one_line(note.text)}")
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
