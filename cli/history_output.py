"""Terminal output of the timeline, of one event and of differences."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from mnemolog.audit.results import Diff, LogExport, LogImport, SessionDiff, StoredEvent
from mnemolog.cli.output import console
from mnemolog.domain.clock import local_time
from mnemolog.domain.display import LINE_CHARACTERS_MAX, counted, cut, dated, named, one_line, visible_json
from mnemolog.domain.encoding import to_json
from mnemolog.projections.history.event_descriptions import describe, signed
from mnemolog.projections.history.replay import Replay, descent
from mnemolog.projections.history.timeline import Moment
from mnemolog.results import Task

LINES_PER_WRITE: Final = 500
_STYLES: Final = {"+": "green", "-": "red", "~": "yellow"}


def print_lines(moments: Iterator[Moment]) -> None:
    """Print each event as one JSON object on a line of its own."""
    while page := list(islice(moments, LINES_PER_WRITE)):
        sys.stdout.write("".join(visible_json(to_json(moment).decode()) + "\n" for moment in page))


def show_timeline(moments: Iterator[Moment], *, full: bool) -> None:
    """Print each event on a line: position, time, session, what happened. Long texts are cut, unless `full`."""
    out = console()
    for item in moments:
        position, at, who, what = item.columns()
        what = signed(describe(item.event, characters_max=None), item.event) if full else what
        out.line((position, "cyan"), " ", (at, "dim"), " ", (who, "bold"), f" {what}")


def show_held(answer: Replay) -> None:
    """Print the final state of the sessions; their turns are in the timeline."""
    out = console()
    heading, *sessions, digest = answer.held()
    out.line(heading, style="bold")
    for line in sessions:
        out.line(line)
    out.line(digest, style="dim")


def show_event(item: StoredEvent, *, full: bool) -> None:
    """Print one event: a description, its columns, its content. Long texts are cut, unless `full`."""
    out = console()
    out.line(describe(item.event) if item.event else f"cannot be read: {item.unreadable}", style="bold")
    link = "holds" if item.link_holds else "DOES NOT HOLD: this event, or the one before, is not what was recorded"
    at = "no time of the calendar" if item.at is None else local_time(item.at).isoformat()
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


def show_diff(answer: Diff, *, full: bool) -> None:
    """Print what changed, session by session. Long texts are cut, unless `full`."""
    out = console()
    before, after = answer.before.position, answer.after.position
    out.line(f"from position {before} ({dated(answer.before_at)}) to {after} ({dated(answer.after_at)})", style="bold")
    for item in answer.sessions:
        out.line(_title(item), style="bold")
        for sign, line in _lines(item, None if full else LINE_CHARACTERS_MAX):
            out.line(f"  {sign} {line}", style=_STYLES[sign])
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
    for change in item.values:
        old, new = (shown(to_json(value).decode()) for value in (change.before, change.after))
        match change.change:
            case "added":
                yield "+", f"value {change.key} = {new}"
            case "removed":
                yield "-", f"value {change.key} (was {old})"
            case "changed":
                yield "~", f"value {change.key}: {old} -> {new}"
    if item.task_before != item.task_after:
        yield "~", f"task: {_task(item.task_before, shown)} -> {_task(item.task_after, shown)}"
    yield from (("-", f"note: {shown(note.text)}") for note in item.notes_removed)
    yield from (("+", f"note: {shown(note.text)}") for note in item.notes_added)
    yield from (("+", f"checkpoint {found.name} ({found.id})") for found in item.checkpoints_created)
    yield from (("-", f"checkpoint {found.name} ({found.id})") for found in item.checkpoints_deleted)


def _task(task: Task | None, shown: Callable[[str], str]) -> str:
    if task is None:
        return "none"
    step = "" if task.step is None else f", step {task.step}" + (f" of {task.total}" if task.total else "")
    return f"{shown(task.description)} ({task.status}{step})"


def _listed(positions: tuple[int, ...], *, most: int = 10) -> str:
    more = f" and {len(positions) - most} more" if len(positions) > most else ""
    return ", ".join(f"@{position}" for position in positions[:most]) + more


def show_export(answer: LogExport, file: Path) -> None:
    """Print what was exported, and the head to verify it with."""
    out = console()
    text = f"{counted(answer.events, 'event')} of log {answer.log_id} in {file}, {counted(answer.bytes, 'byte')}"
    out.line(text)
    out.line(f"head {answer.head}")


def show_log_import(answer: LogImport) -> None:
    """Print what an import did to the store."""
    out = console()
    where = "a new store" if answer.created else "the store"
    text = f"{counted(answer.events, 'event')} of log {answer.log_id} appended to {where}"
    out.line(f"{text}, {answer.already_there:,} already there")
    out.line(f"head {answer.head}")
    if answer.needs_keys:
        remedy = "run the command again with `--keys FOLDER`, a copy of its keys or the store it is from"
        out.line(f"its content is encrypted, and cannot be read without its keys: {remedy}", style="yellow")
