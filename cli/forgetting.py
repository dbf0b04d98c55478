"""Commands on what must not stay: erase content permanently, list what was erased, rules of retention, secrets."""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from mnemolog.audit.secret_scan import Secret
from mnemolog.cli.app import EXIT_FAILED, AsJson, Store, StoreCommand, app, fail, typed
from mnemolog.cli.command import (
    Columns,
    DryRun,
    Yes,
    answer,
    bar,
    open_store,
    out,
    print_json,
    print_table,
    session_called,
)
from mnemolog.cli.store import NODE_COLUMNS
from mnemolog.domain import errors, events
from mnemolog.domain.choices import Retention
from mnemolog.domain.display import counted, dated, named, one_line, visible
from mnemolog.forgetting.history import ForgetReport, ForgottenEvent, PendingErasure
from mnemolog.forgetting.service import RetentionReport
from mnemolog.infra.runtime.files import new_file
from mnemolog.projections.history.timeline import describe
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.store import MemoryStore

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


PREVIEWED_MAX: Final = 10
"""Sessions and events that a preview describes; the rest is counted."""


@app.command("forget", cls=StoreCommand)
def forget(
    store: Store,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", metavar="SESSION", help="A session. May be repeated."),
    ] = None,
    position: Annotated[
        list[int] | None, typer.Option("--position", metavar="N", help="One event. May be repeated.")
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="All sessions in a scope. May be repeated."),
    ] = None,
    keep_questions: Annotated[
        bool,
        typer.Option("--keep-questions", help="Keep receipts of questions asked above or beside; they may quote it."),
    ] = False,
    reason: Annotated[str, typer.Option(help="The reason; it stays readable.")] = "",
    despite_minimum: Annotated[
        str, typer.Option(metavar="WHY", help="Why it goes before the minimum age of its scope; it stays readable.")
    ] = "",
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what was forgotten and what remains into a new file, as JSON."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget sessions, scopes or single events permanently. Without --yes, only print what would be forgotten.

    Example: mnemolog forget memory/ --scope acme/support/alice --reason "asked for on 3 May" --yes
    """
    rehearsal = dry_run or not yes
    if certificate is not None and certificate.exists():
        raise errors.InvalidInput("certificate", f"{certificate} exists; nothing was forgotten")
    with open_store(store, create=False) as opened, bar("forgetting") as progress:
        chosen = [session_called(opened, given).id for given in session or ()]
        for given in scope or ():
            opened.sessions(scope=given)  # A misspelled one is an error before anything is forgotten.
        report = opened.forget(
            session=chosen,
            positions=position or (),
            scope=scope or (),
            questions=not keep_questions,
            reason=reason,
            despite_minimum=despite_minimum,
            dry_run=rehearsal,
            progress=progress,
        )
        preview = _preview(opened, report, position or ())
    if certificate is not None and report.certificate is not None:
        with new_file(certificate) as file:
            file.write(report.certificate.to_json(indent=2).encode() + b"\n")
    answer(report, partial(_show_report, preview=preview), as_json=as_json)
    if rehearsal and not dry_run and report.events:
        fail("nothing was forgotten", hint="add --yes to do it")
    if (rehearsal and not dry_run) or not report.complete:
        raise typer.Exit(EXIT_FAILED)


def _preview(store: MemoryStore, report: ForgetReport, positions: Sequence[int]) -> Preview:
    """Return titles and texts of what would be forgotten; nothing once it is forgotten."""
    if not report.dry_run or not report.events:
        return Preview((), ())
    chosen = set(report.sessions[:PREVIEWED_MAX])
    sessions = [item for item in store.sessions() if item.session in chosen]
    first = [(item, next(iter(store.turns(item.session, limit=1)), None)) for item in sessions]
    found = (store.audit.event(position) for position in positions[:PREVIEWED_MAX])
    return Preview(first, [(item.position, describe(item.event)) for item in found if item.event is not None])


@app.command("forgotten", cls=StoreCommand)
def forgotten(
    store: Store,
    erasures: Annotated[
        bool,
        typer.Option("--erasures", help="Print requests and revoked tokens as JSON, to keep for `mnemolog restore`."),
    ] = False,
    pending: Annotated[
        bool, typer.Option("--pending", help="List the requests that not every node has confirmed, with these nodes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what was forgotten: positions, kinds of events, when and why.

    Example: mnemolog forgotten memory/ --erasures > /mnt/elsewhere/erasures.json
    """
    with open_store(store, create=False) as opened:
        if pending:
            answer(opened.audit.pending_erasures(), _show_pending, as_json=as_json)
            return
        requests, found = opened.audit.erasures(), opened.audit.forgotten()
    if erasures:
        print_json(requests)
    else:
        answer(found, _show_forgotten, as_json=as_json)


def _show_report(report: ForgetReport, *, preview: Preview) -> None:
    """Print what was forgotten, or would be."""
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
    kinds = ", ".join(counted(number, *_WORDS.get(topic, (topic, topic))) for topic, number in report.counts.items())
    if report.dry_run:
        out.line(f"{what} would be forgotten: {kinds}")
    else:
        out.line(f"{what} forgotten by request {report.request} at position {report.position}: {kinds}")
    if report.dependents:
        why = "they depend on events that were, and are forgotten with them"
        out.line(f"{report.dependents} of them were not named: {why}")
    _show_questions(report)
    for item in report.certificate.remains if report.certificate is not None else ():
        if item.kind == "keys":
            out.line(f"remains: {item.says}: {', '.join(item.items)}")
    if report.waiting_for:
        names = ", ".join(f"{visible(node.label)} (last seen {dated(node.seen_at)})" for node in report.waiting_for)
        out.line(f"{counted(len(report.confirmed_by), 'node')} confirmed; not yet confirmed by {names}")
    if report.pending is not None:
        print(f"not done yet: {visible(report.pending)}", file=sys.stderr)


def _show_questions(report: ForgetReport) -> None:
    """Print the questions asked above or beside what is forgotten."""
    for number, what in ((report.questions, "go along (--keep-questions keeps them)"), (report.questions_left, "stay")):
        if number:
            out.line(f"{counted(number, 'question')} asked above or beside may quote it: they {what}")
    for item in report.asked[:PREVIEWED_MAX]:
        where = f"in {item.scope or 'all scopes'}" if item.session is None else f"by session {item.session}"
        out.line(f"    @{item.position} {dated(item.asked_at)} {where}: {one_line(item.query)}", style="dim")


def _by(actor: str) -> str:
    return f" by {visible(actor)}" if actor else ""


def _show_pending(pending: Sequence[PendingErasure]) -> None:
    """Print the requests that are not carried out everywhere, and the nodes that have not confirmed them."""
    for item in pending:
        reason = f": {item.reason}" if item.reason else ""
        out.line((f"request {item.request}", "bold"), f" of {dated(item.requested_at)}{_by(item.actor)}{reason}")
        if not item.complete:
            out.line("not done yet: every process that has the store open tries again")
        print_table(item.waiting_for, NODE_COLUMNS)
    out.line(f"{counted(len(pending), 'request')} pending")


def _show_forgotten(forgotten: Sequence[ForgottenEvent]) -> None:
    """Print what was forgotten, by request."""
    for request, found in groupby(
        sorted(forgotten, key=lambda item: item.requested_at),
        key=lambda item: (item.request, item.requested_at, item.actor, item.reason),
    ):
        name, when, actor, reason = request
        out.line((f"request {name}", "bold"), f" of {dated(when)}{_by(actor)}{reason and ': '}{reason}")
        out.rows(("position", "what", "stream"), [(str(item.position), item.topic, item.stream) for item in found])
    out.line(f"{counted(len(forgotten), 'event')} forgotten")


Scope = Annotated[str, typer.Argument(metavar="SCOPE", help="A scope with all below it; '' for the whole store.")]
Reason = Annotated[str, typer.Option(help="Why; it stays readable.")]
Age = Annotated[str | None, typer.Option(metavar="AGE", help="Such as 180d, 12h or 90m.")]


@app.command("retention", cls=StoreCommand)
def retention(
    store: Store,
    rules: Annotated[bool, typer.Option("--list", help="List the rules and the holds, and forget nothing.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Forget what is older than its scope allows. The next run continues one that was interrupted.

    Example: mnemolog retention memory/ --dry-run
    """
    with open_store(store, create=False) as opened, bar("forgetting", of="turns") as progress:
        if rules:
            answer(opened.admin.retention(), _show_rules, as_json=as_json)
            return
        report = opened.admin.apply_retention(dry_run=dry_run, progress=progress)
    answer(report, _show_retention, as_json=as_json)
    if not all(request.complete for request in report.requests):
        raise typer.Exit(EXIT_FAILED)


@app.command("set-retention", cls=StoreCommand)
def set_retention(
    store: Store,
    scope: Scope,
    max_age: Age = None,
    min_age: Age = None,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Count the maximum from when turns were recorded, not said.")
    ] = False,
    keep_facts: Annotated[bool, typer.Option("--keep-facts", help="Keep facts that hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Set how long what is said in a scope is kept. Without an age, take the rule of the scope away.

    Example: mnemolog set-retention memory/ acme/alice --max-age 180d --min-age 30d
    """
    with open_store(store, create=False) as opened:
        found = opened.admin.set_retention(
            scope,
            max_age=max_age,
            min_age=min_age,
            by="recorded" if recorded else "said",
            keep_facts=keep_facts,
        )
    answer(found, _show_rules, as_json=as_json)


@app.command("hold", cls=StoreCommand)
def hold(store: Store, scope: Scope, reason: Reason, as_json: AsJson = False) -> None:
    """Forget nothing of a scope until the hold is lifted.

    Example: mnemolog hold memory/ acme/alice --reason "case 4711"
    """
    with open_store(store, create=False) as opened:
        placed = opened.admin.hold(scope, reason=reason)
    answer(placed, f"hold on {placed.scope or '/'} at position {placed.position}", as_json=as_json)


@app.command("lift-hold", cls=StoreCommand)
def lift_hold(
    store: Store,
    position: Annotated[int, typer.Argument(metavar="POSITION", help="Of the hold, as in `retention --list`.")],
    reason: Reason,
    as_json: AsJson = False,
) -> None:
    """End a hold.

    Example: mnemolog lift-hold memory/ 10 --reason "case 4711 is closed"
    """
    with open_store(store, create=False) as opened:
        lifted = opened.admin.lift_hold(position, reason=reason)
    answer(lifted, f"the hold on {lifted.scope or '/'} is lifted", as_json=as_json)


def _show_rules(found: Retention) -> None:
    for rule in found.rules:
        most = f"at most {rule.max_age} since it was {rule.by}, " if rule.max_age else ""
        kept = ", facts that hold stay" if rule.keep_facts else ""
        out.line(f"@{rule.position} {rule.scope or '/'}: {most}at least {rule.min_age or '0m'}{kept}")
    for hold in found.holds:
        out.line(f"@{hold.position} {hold.scope or '/'}: hold: {hold.reason}")
    out.line(f"{counted(len(found.rules), 'rule')}, {counted(len(found.holds), 'hold')}", style="dim")


def _show_retention(report: RetentionReport) -> None:
    would = "would be " if report.dry_run else ""
    what = f"{counted(report.turns, 'turn')} {would}forgotten, {counted(report.sessions_ended, 'session')} {would}ended"
    out.line(what + (f"; {counted(report.held, 'turn')} under a hold" if report.held else ""))
    for request in report.requests:
        if request.request is not None:
            out.line(f"request {request.request} at position {request.position}", style="dim")


POSITIONS_MAX: Final = 500
"""How many positions the command that forgets them names; the next scan finds the others."""
_SECRET_COLUMNS: Final[Columns[Secret]] = {
    "position": lambda secret: f"@{secret.position}",
    "kind": lambda secret: secret.kind,
    "field": lambda secret: secret.field,
    "session": lambda secret: secret.session or "",
    "characters": lambda secret: str(secret.length),
}


@app.command("redaction", cls=StoreCommand)
def redaction(
    store: Store,
    on: Annotated[bool | None, typer.Option("--on/--off", help="Replace them from now on, or no longer.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print or change whether secrets in what is recorded are replaced, by every program that uses the store.

    Example: mnemolog redaction memory/ --on
    """
    with open_store(store, create=False) as opened:
        changed = on is not None and opened.admin.set_redaction(on)
        on = opened.admin.redaction()
    line = f"{'on' if on else 'off'}: secrets are {'' if on else 'not '}replaced before they are recorded"
    answer({"redaction": on, "changed": changed}, line, as_json=as_json)


@app.command("scan-secrets", cls=StoreCommand)
def scan_secrets(store: Store, as_json: AsJson = False) -> None:
    """Find keys, tokens and passwords in the log: position, kind and length of each, never the secret.

    Example: mnemolog scan-secrets memory/
    """
    with open_store(store, create=False) as opened, bar("scanning") as progress:
        found = opened.audit.scan_secrets(progress=progress)
    answer(found, partial(_show_secrets, store=store), as_json=as_json)


def _show_secrets(found: Sequence[Secret], *, store: Path) -> None:
    """Print the secrets, and the command that shows what forgetting them would take."""
    print_table(found, _SECRET_COLUMNS)
    out.line(counted(len(found), "secret"))
    if found:
        positions = list(dict.fromkeys(item.position for item in found))[:POSITIONS_MAX]
        out.line("make them invalid where they are used: backups hold them; then see what would be forgotten:")
        out.line(typed("forget", store, *(part for at in positions for part in ("--position", at)), "--dry-run"))
