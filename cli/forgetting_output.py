"""Terminal output of forgetting."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Final, NamedTuple

from mnemolog.cli.output import console
from mnemolog.cli.status_output import show_nodes
from mnemolog.domain import events
from mnemolog.domain.display import counted, dated, named, one_line, visible
from mnemolog.forgetting.results import ForgetReport, ForgottenEvent, NodeStatus, PendingErasure
from mnemolog.projections.read_models import SessionSummary, Turn

_WORDS: Final = {
    events.SessionStarted.topic: ("title", "titles"),
    events.TurnRecorded.topic: ("turn", "turns"),
    events.ValueSet.topic: ("value", "values"),
    events.ValueDeleted.topic: ("deletion of a value", "deletions of values"),
    events.TaskChanged.topic: ("change of the task", "changes of the task"),
    events.NoteAdded.topic: ("note", "notes"),
    events.CheckpointCreated.topic: ("checkpoint", "checkpoints"),
    events.RecallServed.topic: ("receipt of a recall", "receipts of recalls"),
    events.ContextServed.topic: ("receipt of a context", "receipts of contexts"),
}
"""What holds content, in words. Other events are named by their topic."""


class Preview(NamedTuple):
    """What a request to forget is about, while it can still be read."""

    sessions: Sequence[tuple[SessionSummary, Turn | None]]
    """The first sessions, each with its first turn."""
    events: Sequence[tuple[int, str]]
    """The first single events: position and description."""


def show_forget(report: ForgetReport, preview: Preview) -> None:
    """Print what was forgotten, or would be."""
    out = console()
    for session, turn in preview.sessions:
        where = f" in {session.scope}" if session.scope else ""
        out.line(
            ("session ", "bold"), named(session.session, session.title), f"{where}, {counted(session.turns, 'turn')}"
        )
        if turn is not None:
            out.line(f"    @{turn.position} {turn.speaker or turn.role.value}: {one_line(turn.text)}", style="dim")
    if left_out := len(report.sessions) - len(preview.sessions):
        out.line(f"... and {counted(left_out, 'session')} more" if preview.sessions else counted(left_out, "session"))
    for position, what in preview.events:
        out.line(f"@{position} {what}")
    if report.request is None and not report.events:
        out.line("nothing to forget: no event matches, or all that match were forgotten before")
        return
    what = counted(report.events, "event")
    kinds = ", ".join(_kind(topic, number) for topic, number in report.counts.items())
    if report.dry_run:
        out.line(f"{what} would be forgotten: {kinds}")
    else:
        out.line(f"{what} forgotten by request {report.request} at position {report.position}: {kinds}")
    if report.dependents:
        why = "they depend on events that were, and are forgotten with them"
        out.line(f"{report.dependents} of them were not named: {why}")
    if report.waiting_for:
        out.line(f"{counted(len(report.confirmed_by), 'node')} confirmed; {_unconfirmed(report.waiting_for)}")
    if report.pending is not None:
        print(f"not done yet: {visible(report.pending)}", file=sys.stderr)


def _kind(topic: str, number: int) -> str:
    return counted(number, *_WORDS.get(topic, (topic, topic)))


def _unconfirmed(nodes: Sequence[NodeStatus]) -> str:
    names = ", ".join(f"{visible(node.label)} (last seen {dated(node.seen_at)})" for node in nodes)
    return f"not yet confirmed by {names}"


def _by(actor: str) -> str:
    return f" by {visible(actor)}" if actor else ""


def show_pending(pending: Sequence[PendingErasure]) -> None:
    """Print the requests that are not carried out everywhere, and the nodes that have not confirmed them."""
    out = console()
    for item in pending:
        reason = f": {item.reason}" if item.reason else ""
        out.line((f"request {item.request}", "bold"), f" of {dated(item.requested_at)}{_by(item.actor)}{reason}")
        if not item.complete:
            out.line("not done yet: opening the store resumes it")
        show_nodes(item.waiting_for)
    out.line(f"{counted(len(pending), 'request')} pending")


def show_forgotten(forgotten: Sequence[ForgottenEvent]) -> None:
    """Print what was forgotten, by request."""
    out = console()
    for request, found in groupby(
        sorted(forgotten, key=lambda item: item.requested_at),
        key=lambda item: (item.request, item.requested_at, item.actor, item.reason),
    ):
        name, when, actor, reason = request
        out.line((f"request {name}", "bold"), f" of {dated(when)}{_by(actor)}{reason and ': '}{reason}")
        out.rows(("position", "what", "stream"), [(str(item.position), item.topic, item.stream) for item in found])
    out.line(f"{counted(len(forgotten), 'event')} forgotten")
