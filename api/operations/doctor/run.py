"""`doctor`: find what is wrong with a store, explain what it means, and fix what can be fixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations.doctor import checks
from mnemolog.operations.doctor.report import DoctorReport
from mnemolog.projections.drift import with_folder
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.registry.all_projections import PROJECTIONS
from mnemolog.projections.registry.context import StoreContext
from mnemolog.projections.registry.results import Issue, IssueWithFix
from mnemolog.projections.sql.snapshots import SnapshotStore


def doctor(
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    snapshots: SnapshotStore,
    *,
    deep: bool,
    fix: bool,
    progress: Progress | None,
) -> DoctorReport:
    """Return what is wrong with a store, after fixing it if `fix` is set. The log is never touched.

    A fix deletes nothing but stale files and damaged rows of caches.
    """
    if fix:
        log.require_writable()
    missing = checks.missing_keys(log)
    context = StoreContext(
        layout, log, projections, snapshots, projections.active_fingerprint(), missing is None, progress
    )
    found = list(_check(context, log, missing, deep=deep))
    issues = _fix(context, found) if fix else [item.issue for item in found]
    log_damaged = any(issue.severity == "log" for issue in issues)
    left = any(issue.severity == "problem" and not issue.fixed for issue in issues)
    return DoctorReport(
        path=str(layout.folder),
        head=log.head().position,
        deep=deep,
        healthy=not log_damaged and not left,
        log_damaged=log_damaged,
        findings=tuple(_ready_to_run(issue, layout.folder) for issue in issues),
    )


def _ready_to_run(issue: Issue, folder: Path) -> Issue:
    action, outcome = with_folder(issue.action, folder), with_folder(issue.outcome, folder)
    return msgspec.structs.replace(issue, action=action, outcome=outcome)


def _check(
    context: StoreContext, log: EventLog, missing: errors.KeysMissing | None, *, deep: bool
) -> Iterator[IssueWithFix]:
    yield from checks.check_log(context, log, deep=deep)
    yield from checks.check_keys(missing)
    yield from checks.check_model(context)
    for projection in PROJECTIONS:
        yield from projection.check(context, deep=deep)
    yield from checks.check_quarantine(context)
    yield from checks.check_stale_files(context)


def _fix(context: StoreContext, found: Iterable[IssueWithFix]) -> list[Issue]:
    """Apply the fixes, those that have to wait last, and return the issues in the order in which they were found."""
    numbered = list(enumerate(found))
    done: dict[int, Issue] = {}
    # A fix may rename files that this process has open: they are opened again when needed.
    context.close_files()
    for number, item in sorted(numbered, key=lambda pair: pair[1].last):
        done[number] = _fixed(item)
    context.close_files()
    return [done[number] for number, _ in numbered]


def _fixed(item: IssueWithFix) -> Issue:
    if item.fix is None:
        return item.issue
    try:
        outcome = item.fix()
    except errors.MnemologError as error:
        return msgspec.structs.replace(item.issue, outcome=f"{error}; {error.hint}" if error.hint else str(error))
    return msgspec.structs.replace(item.issue, fixed=True, outcome=outcome)
