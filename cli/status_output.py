"""Terminal output of status, doctor and quarantine. JSON output is the same structs, encoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from mnemolog.cli.output import console
from mnemolog.domain.display import counted, dated
from mnemolog.domain.embedding_model import short
from mnemolog.domain.hints import Hint, remedy
from mnemolog.forgetting.results import NodeStatus
from mnemolog.operations.doctor.report import DoctorReport
from mnemolog.operations.status import Status, WalStatus
from mnemolog.projections.drift import Drift
from mnemolog.projections.maintenance.results import PRESENT, Issue
from mnemolog.projections.quarantine import QuarantinedItem
from mnemolog.projections.vectors.inventory import GenerationStatus

_CACHE: Final = "embeddings.db"
_QUIET: Final = ("current", "present", "other-model")
_NOTHING: Final = "Nothing to do"
_STYLES: Final = {"note": "dim", "problem": "yellow", "log": "bold red"}


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """Items that a purge deleted, or with `dry_run` would delete."""

    dry_run: bool
    items: tuple[QuarantinedItem, ...]


def show_status(status: Status) -> None:
    """Print the state of a store, and what to do about projections that are not current."""
    out = console()
    read_only = ", read-only" if status.read_only else ""
    out.line((status.path, "bold"), f"  log {status.log_id}, format {status.log_format}{read_only}")
    out.line(f"head {status.head}:{status.digest}")
    out.line(f"{status.log_bytes / 1e6:.1f} MB, {_wal(status.wal)}" if status.wal else status.database)
    views = status.views
    holds = f"{counted(status.sessions, 'session')}, {counted(status.turns, 'turn')}"
    rows = [("views", views.state, str(views.position), f"{views.behind_events:,}", holds)]
    actions = [("views", views.state, views.action)]
    for followed in status.tables:
        rows.append((followed.name, followed.state, str(followed.position), f"{followed.behind_events:,}", ""))
        actions.append((followed.name, followed.state, followed.action))
    for item in status.vectors:
        name = " ".join(filter(None, ("vectors", item.model, short(item.fingerprint))))
        rows.append((name, item.state, str(item.covers), f"{item.behind_events:,}", _holds(item)))
        state = f"{counted(item.behind_events, 'event')} behind" if item.state == Drift.BEHIND else item.state
        actions.append((name, state, item.action))
    for cache in status.caches:
        rows.append((cache.name, cache.state, "", "", f"{cache.bytes / 1e6:.1f} MB"))
        actions.append((cache.name, cache.state, cache.action))
    out.rows(("projection", "state", "to", "behind", "holds"), rows)
    show_nodes(status.nodes)
    if not status.vectors and status.stale is None:
        cached = any(cache.name == _CACHE and cache.state == PRESENT for cache in status.caches)
        where = f"no vectors on disk yet, only in the cache ({_CACHE})" if cached else "no vectors yet"
        out.advice(Hint(f"{where}: ", remedy("admin.catch_up_vectors"), " makes them"), style="dim")
    for name, state, action in actions:
        if state not in _QUIET and not action.startswith(_NOTHING):
            out.advice(Hint(f"{name}: {state}: ", action), style="yellow")
    for item in status.vectors:
        for segment in item.unused:
            where = f"{item.generation}/{segment.name}"
            out.line(f"not used: {where}: {segment.state}: {segment.why}", style="dim")
    if status.quarantined:
        lie = f"{counted(status.quarantined, 'item')} in quarantine, {status.quarantine.bytes / 1e6:.1f} MB"
        out.advice(Hint(f"{lie}: ", status.quarantine.action), style="yellow")
    for warning in status.warnings:
        out.advice(Hint("WARNING: ", warning), style="bold red")


def show_nodes(nodes: Sequence[NodeStatus]) -> None:
    """Print a table of nodes, nothing if there are none."""
    rows = [
        (item.node, item.label, str(item.position), f"{item.behind_events:,}", dated(item.seen_at), _here(item))
        for item in nodes
    ]
    if rows:
        console().rows(("node", "folder", "to", "behind", "last seen", ""), rows)


def _here(node: NodeStatus) -> str:
    return "this one" if node.here else ""


def show_doctor_report(answer: DoctorReport, *, dry_run: bool = False) -> None:
    """Print every finding, and the verdict."""
    out = console()
    shown = [(item, item.matters, _done(item, dry_run=dry_run)) for item in answer.findings]
    for (item, matters, done), following in zip_longest(shown, shown[1:]):
        out.line((f"{item.where}: {item.state}", _STYLES[item.severity]), f" ({item.severity}) ", item.why)
        if following is None or following[1:] != (matters, done):  # Once for findings of which the same is true.
            out.line(f"  {matters}", style="dim")
            out.advice(Hint("  ", done))
    out.line(_verdict(answer), f"; head {answer.head}")
    if answer.checked:
        out.line(f"checked: {'; '.join(answer.checked)}", style="dim")
    if answer.not_checked:
        how = (": ", answer.full_check, " checks all of it") if answer.full_check else ()
        out.advice(Hint(f"not checked: {'; '.join(answer.not_checked)}", *how), style="dim")


def _verdict(answer: DoctorReport) -> tuple[str, str]:
    if answer.log_damaged:
        keys = all(item.what == "keys" for item in answer.findings if item.severity == "log")
        if keys:
            return "THE KEYS OF THE LOG are missing or damaged", "red"
        return "THE LOG IS DAMAGED, or a witness contradicts it", "red"
    if answer.healthy:
        fixed = any(item.fixed for item in answer.findings)
        return f"no problems {'left' if fixed else 'found'} in what was checked", "green"
    left = sum(1 for item in answer.findings if item.severity == "problem" and not item.fixed)
    return counted(left, "problem"), "yellow"


def show_quarantine(items: Sequence[QuarantinedItem]) -> None:
    """Print a table of the items in quarantine."""
    out, rows = console(), []
    for item in items:
        since = "" if item.when is None else dated(item.when)
        rows.append((item.name, item.was, item.state, since, f"{item.bytes:,}", item.reason))
    if rows:
        out.rows(("name", "was", "state", "since", "bytes", "reason"), rows)
    out.line(f"{counted(len(items), 'item')}, {counted(sum(item.bytes for item in items), 'byte')}")


def show_purged(answer: Purged) -> None:
    """Print what was deleted."""
    out = console()
    for item in answer.items:
        out.line(f"{item.name}  ({item.was}: {item.state})")
    size = f"{counted(len(answer.items), 'item')}, {counted(sum(item.bytes for item in answer.items), 'byte')}"
    out.line(f"would delete {size}" if answer.dry_run else f"deleted {size}")


def _wal(wal: WalStatus) -> str:
    size = f"write-ahead log {wal.bytes / 1e6:.1f} MB"
    return f"{size}, {counted(wal.waiting_frames, 'page')} waiting" if wal.why else size


def _holds(item: GenerationStatus) -> str:
    parts = [counted(item.vectors, "vector"), f"{counted(item.segments, 'segment')}, {item.bytes / 1e6:.1f} MB"]
    if item.skipped:
        parts.append(f"{counted(len(item.skipped), 'turn')} refused by the model")
    return ", ".join(parts)


def _done(item: Issue, *, dry_run: bool) -> str:
    if item.outcome:
        return Hint("fixed: " if item.fixed else "not fixed: ", item.outcome)
    if dry_run:
        return "--fix would fix this" if item.fixable else Hint("--fix cannot fix this: ", item.action)
    return item.action
