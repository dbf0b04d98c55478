"""`doctor`: find what is wrong with a store, explain what it means, and fix what can be fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.hints import Hint, remedy, sentence
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations.doctor import checks
from mnemolog.operations.known_backups import restore_newest_backup
from mnemolog.projections.drift import Drift
from mnemolog.projections.maintenance.context import Issue, IssueWithFix, StoreContext
from mnemolog.projections.maintenance.vectors import VectorGenerations
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.registry import PROJECTIONS

_AWAY: Final = "unreachable"
_AWAY_MATTERS: Final = "Nothing can be recorded. Recalls are answered from the projections in this folder, and say so."


class DoctorReport(Result, frozen=True, kw_only=True):
    """The outcome of `doctor`."""

    path: str
    head: Position
    """The last position of the log, 0 where it cannot be opened."""
    deep: bool
    """Whether every byte was read."""
    healthy: bool
    """Whether no problem is left in what was checked. Notes do not count."""
    log_damaged: bool
    """Whether the log or its keys are in doubt: damaged, lost, or contradicted by a witness."""
    findings: tuple[Issue, ...]
    checked: tuple[str, ...]
    """What was looked at."""
    not_checked: tuple[str, ...]
    """What was not looked at: nothing is known about it."""
    full_check: str
    """The call that checks it; empty if that is the check that was made."""


@as_it_is()
def doctor(
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    *,
    deep: bool,
    fix: bool,
    progress: Progress | None,
    model_given: bool = True,
) -> DoctorReport:
    """Return what is wrong with a store, after fixing it if `fix` is set. The log is never touched.

    A fix deletes nothing but stale files and damaged rows of caches. `model_given`: whether the caller named the model
    that the store was opened with.
    """
    if fix:
        log.appends.require_writable()
    folder = layout.folder
    try:
        head, active = log.head().position, projections.active_fingerprint()
    except (errors.LogDamaged, errors.StoreReplaced, errors.LogUnreachable) as error:
        return unopened(folder, error, deep=deep)
    missing = checks.missing_keys(log)
    context = StoreContext(layout, log, projections, active, missing is None, progress)
    looked = checks.Looked([], [])
    found = list(_check(context, log, looked, deep=deep, model_given=model_given))
    # Where the log has lost events, everything stays in its place: it may be evidence, or all there is of them.
    issues = _fix(context, found) if fix and not log.engine.seen.lost else [item.issue for item in found]
    return _report(folder, head, issues, looked, deep=deep)


def unopened(
    folder: Path, error: errors.LogDamaged | errors.StoreReplaced | errors.LogUnreachable, *, deep: bool
) -> DoctorReport:
    """Return the report on a store whose log cannot be read."""
    issue = _of_the_log(folder, error).issue
    looked = checks.Looked([], ["everything else, because the log cannot be read"])
    return msgspec.structs.replace(_report(folder, ORIGIN, [issue], looked, deep=deep), full_check="")


def _report(folder: Path, head: Position, issues: list[Issue], looked: checks.Looked, *, deep: bool) -> DoctorReport:
    log_damaged = any(issue.severity == "log" for issue in issues)
    left = any(issue.severity == "problem" and not issue.fixed for issue in issues)
    return DoctorReport(
        path=str(folder),
        head=head,
        deep=deep,
        healthy=not log_damaged and not left,
        log_damaged=log_damaged,
        findings=tuple(issues),
        checked=tuple(looked.checked),
        not_checked=tuple(looked.not_checked),
        full_check="" if deep else Hint(remedy("admin.doctor", deep=True)),
    )


@as_it_is()
def usual_model(layout: StoreLayout, log: EventLog, projections: ProjectionSet) -> str | None:
    """Return the name of the model that a store uses: the active one, or else that of its newest vectors.

    Vectors in quarantine count. None if nothing tells: no model was activated, and there are no vectors.
    """
    if (active := projections.models.active()) is not None:
        return active.model
    context = StoreContext(layout, log, projections)
    made = [item for item in VectorGenerations().status(context) if item.model]
    return max(made, key=lambda item: item.covers).model if made else None


def _check(
    context: StoreContext, log: EventLog, looked: checks.Looked, *, deep: bool, model_given: bool
) -> Iterator[IssueWithFix]:
    """Yield what every check finds. A check that meets a damaged log or missing keys ends, and the next one begins."""
    seen: set[str] = set()
    for name, check in (
        ("the log", partial(checks.check_log, context, log, looked, deep=deep)),
        ("the keys", partial(checks.check_keys, context, log, looked)),
        ("the model", partial(checks.check_model, context, given=model_given)),
        *((projection.name, partial(projection.check, context, deep=deep)) for projection in PROJECTIONS),
        ("the names", partial(checks.check_names, context)),
        ("the quarantine", partial(checks.check_quarantine, context)),
        ("leftover files", partial(checks.check_stale_files, context)),
        ("the backups", partial(checks.check_backup, context, log)),
        ("the folder", partial(checks.check_folder, context, log)),
        ("the place of the log", partial(checks.check_moved, log)),
    ):
        if name == "the backups" and "log" in seen:
            continue  # A backup of a damaged log is refused.
        if name == "the names" and seen & {"log", "keys", "views"}:
            continue  # The views list them.
        found = list(_whole(name, check, context.layout.folder, looked))
        # Several checks may find the same problem of the log or the keys; the first one reports it.
        yield from (item for item in found if item.issue.what not in seen & {"log", "keys"})
        seen |= {item.issue.what for item in found}
    looked.checked.append("every byte of the projections" if deep else "tags and sizes of the projections")
    if not deep:
        looked.not_checked.append("the contents of the projections")
    elif not context.readable:
        looked.not_checked.append("the views against the log")


def _whole(
    name: str, check: Callable[[], Iterator[IssueWithFix]], folder: Path, looked: checks.Looked
) -> Iterator[IssueWithFix]:
    """Yield what a check finds. An error that ends it is a finding too."""
    try:
        yield from check()
        return
    except errors.KeysMissing as error:
        yield checks.keys_issue(folder, error, state=Drift.DAMAGED.value)
    except (errors.LogDamaged, errors.StoreReplaced, errors.LogUnreachable) as error:
        yield _of_the_log(folder, error)
    except errors.MnemologError as error:
        state, matters = Drift.UNREADABLE.value, "It could not be checked."
        yield checks.issue("store", name, state, "problem", why=str(error), matters=matters, action=error.hint)
    looked.not_checked.append(f"{name}, to the end")


def _of_the_log(folder: Path, error: errors.LogDamaged | errors.StoreReplaced | errors.LogUnreachable) -> IssueWithFix:
    if isinstance(error, errors.LogUnreachable):
        matters, action = _AWAY_MATTERS, sentence(error.hint)
        return checks.issue("store", "the log", _AWAY, "problem", why=str(error), matters=matters, action=action)
    if isinstance(error, errors.StoreReplaced):
        return checks.log_issue(error.path.name, Drift.REPLACED.value, str(error), action=sentence(error.hint))
    action = Hint(f"Keep {folder} as evidence; ", restore_newest_backup(folder), ".")
    return checks.log_issue("log.db", Drift.DAMAGED.value, str(error), action=action)


def _fix(context: StoreContext, found: Iterable[IssueWithFix]) -> list[Issue]:
    """Apply the fixes, those that have to wait last, and return the issues in the order in which they were found."""
    numbered = list(enumerate(found))
    done: dict[int, Issue] = {}
    for number, item in sorted(numbered, key=lambda pair: pair[1].last):
        done[number] = _fixed(item)
    return [done[number] for number, _ in numbered]


def _fixed(item: IssueWithFix) -> Issue:
    if item.fix is None:
        return item.issue
    try:
        outcome = item.fix()
    except errors.MnemologError as error:
        return msgspec.structs.replace(item.issue, outcome=Hint(f"{error}; ", error.hint) if error.hint else str(error))
    return msgspec.structs.replace(item.issue, fixed=True, outcome=outcome)
