"""`doctor`: find what is wrong with a store, explain what it means, and fix it. Checks change nothing."""

import shlex
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.chain import Finding, Kind
from mnemolog.domain.display import counted, dated
from mnemolog.domain.events import SEALED
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Result
from mnemolog.domain.spelling import normalized
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.embedding.model_files import read_profile, resolve_model
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.seen_head import noted_head
from mnemolog.operations.backup_files import (
    after_findings,
    free,
    last_backup,
    noted_witnesses,
    put_keys_back,
    restore_newest_backup,
)
from mnemolog.projections.history.verify import (
    Witness,
    lost_turns,
    of_the_file,
    quick_verify,
    sample,
    verify,
    witnesses_of,
)
from mnemolog.projections.maintenance.context import (
    Issue,
    IssueWithFix,
    Severity,
    StoreContext,
    abandoned,
    indexers_locked_out,
    remove_stale,
)
from mnemolog.projections.maintenance.context import Kind as IssueKind
from mnemolog.projections.maintenance.vectors import VectorGenerations
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import BYTES_MAX, ITEMS_MAX, Drift, Quarantine
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.sql.database import fetch

_LOG_MATTERS: Final = "The log is the source of truth. Nothing here can restore what it has lost."
_KEYS_MATTER: Final = "Content can be neither read nor recorded. Nothing is lost, and nothing counts as forgotten."
_FULL_MATTERS: Final = "While it is full, nothing is moved to quarantine: damaged files stay where they are, unused."
LISTED_MAX: Final = 20
"""Findings about the log that are listed; the rest is counted."""
SERIES_MAX: Final = 1_000
"""Series of keys of which one is tried."""
PAGES_CHECKED_BYTES: Final = 32 << 20
"""Of a log up to this size a quick check also reads every page: about 5 ms for each MiB."""
LITTLE_ROOM_BYTES: Final = 64 << 20
BACKUP_OLD: Final = timedelta(days=30)
STATES_MAX: Final = 64
"""Newest events of a stream among which one of each series of keys is looked for."""
_SEALED: Final = bytes((SEALED,))


_NAMES: Final = {
    "session": "SELECT session FROM sessions WHERE session GLOB '*[^ -~]*'",
    "scope": "SELECT scope FROM sessions WHERE scope GLOB '*[^ -~]*' UNION SELECT scope FROM fact_keys",
    "fact": "SELECT scope || ' ' || key FROM fact_keys WHERE key GLOB '*[^ -~]*'",
}
"""The names that may be spelled in several ways."""


class Looked(NamedTuple):
    """What was looked at and what was not, in words."""

    checked: list[str]
    not_checked: list[str]


def check_log(context: StoreContext, log: EventLog, looked: Looked, *, deep: bool) -> Iterator[IssueWithFix]:
    """Yield problems of the log: with `deep` of every event and page, without of its ends, witnesses and samples."""
    folder = context.layout.folder
    yield from _seen_head(context, log)
    witnesses = [*witnesses_of(folder, log), *noted_witnesses(folder, log.log_id)]
    missing: errors.KeysMissing | None = None
    if deep:
        events, findings, missing = _verified(context, log, witnesses)
    else:
        sampled = sample(log, contents=context.readable)
        events, missing = sampled.events, sampled.keys
        findings = [*quick_verify(log, witnesses), *sampled.findings]
        if log.usable_engine.size_bytes() <= PAGES_CHECKED_BYTES:
            findings += [of_the_file(detail) for detail in log.contradictions()]
        else:
            looked.not_checked.append("the pages of log.db")
    looked.checked.append(f"{events:,} of {counted(log.head().position, 'event')} of the log")
    if events < log.head().position:
        looked.not_checked.append("the other events")
    looked.checked.append(counted(len(witnesses), "witness", "witnesses"))
    if missing is not None:
        yield keys_issue(folder, missing, state="damaged")
    if findings:
        yield from _log_issues(folder, findings)


def _seen_head(context: StoreContext, log: EventLog) -> Iterator[IssueWithFix]:
    """Yield that the log has lost events that were seen of it, and what projections still have of them."""
    lost = log.engine.seen.lost
    seen = noted_head(context.layout.folder)
    head = log.head().position
    if not lost:
        return
    if seen is not None and seen.log_id not in (None, log.log_id):
        state = Drift.OTHER_LOG
    else:
        state = Drift.AHEAD if seen is None or head < seen.position else Drift.DIVERGED
    held = [
        f"{counted(lost.turns, 'turn')} from position {lost.first} to {lost.last} "
        f"{'is' if lost.turns == 1 else 'are'} still in {context.named(lost.file)}"
        for lost in lost_turns(context.layout, log)
    ]
    yield issue(
        *("log", log.path.name, state.value, "log"),
        why=lost,
        matters=f"Nothing is read or recorded. Of what was lost, {'; '.join(held) or 'this store has no turns'}.",
        action=errors.Hint(
            "Bring back the log that has these events: the former primary of a database, or a newer backup. To "
            "continue without them, run ",
            errors.remedy("admin.doctor", accept_loss=True, reason="REASON"),
            ": an event says who did and why, and what was built from lost events is kept in projections/quarantine.",
        ),
    )


def _log_issues(folder: Path, findings: list[Finding]) -> Iterator[IssueWithFix]:
    """Yield the first findings about the log, and how many more there are."""
    unique = list(dict.fromkeys((item.kind, item.position, item.detail) for item in findings))
    action = errors.sentence(after_findings(folder, findings))
    for kind, position, detail in unique[:LISTED_MAX]:
        yield log_issue(f"log.db at {position}", kind.value, detail, action=action)
    for kind, position, _ in unique[LISTED_MAX : LISTED_MAX + 1]:
        more = counted(len(unique) - LISTED_MAX, "finding")
        why = errors.Hint(f"{more} from here on: ", errors.remedy("verify"), " lists them")
        yield log_issue(f"log.db at {position}", kind.value, why, action=action)


def _verified(
    context: StoreContext, log: EventLog, witnesses: list[Witness]
) -> tuple[int, list[Finding], errors.KeysMissing | None]:
    """Return how many events were verified, the findings, and which keys are missing.

    Encrypted content is decrypted too, if its keys are there.
    """
    check = partial(verify, log, witnesses=witnesses, progress=context.progress)
    missing: errors.KeysMissing | None = None
    try:
        found = check(contents=context.readable)
    except errors.KeysMissing as error:
        missing, found = error, check(contents=False)
    return found.events, list(found.findings), missing


def log_issue(where: str, state: str, why: str, *, action: str) -> IssueWithFix:
    """Return what is wrong with the log."""
    return issue("log", where, state, "log", why=why, matters=_LOG_MATTERS, action=action)


def keys_issue(folder: Path, trouble: errors.KeysMissing, *, state: str) -> IssueWithFix:
    """Return what prevents content from being read."""
    return issue(
        "keys",
        trouble.path.name,
        state,
        "log",
        why=str(trouble),
        matters=_KEYS_MATTER,
        action=errors.sentence(put_keys_back(folder, trouble)),
    )


def issue(
    what: IssueKind,
    where: str,
    state: str,
    severity: Severity,
    *,
    why: str,
    matters: str,
    action: str,
    fix: Callable[[], str] | None = None,
) -> IssueWithFix:
    """Return what is wrong, with its fix if there is one."""
    found = Issue(
        what=what,
        where=where,
        state=state,
        severity=severity,
        why=why,
        matters=matters,
        action=action,
        fixable=fix is not None,
    )
    return IssueWithFix(found, fix)


def check_keys(context: StoreContext, log: EventLog, looked: Looked) -> Iterator[IssueWithFix]:
    """Yield what prevents the content of the log from being read: opens a sample of every series of keys."""
    folder, keyring = context.layout.folder, log.keyring
    if keyring is None:
        return
    if (trouble := missing_keys(log)) is not None:
        looked.not_checked.append("the encrypted content")
        yield keys_issue(
            folder, trouble, state="missing" if trouble.wrapped or not context.layout.keys.exists() else "damaged"
        )
        return
    try:
        series = keyring.sample(series_max=SERIES_MAX)
        for stream, number in series:
            _decrypt_one(log, stream, number)
        looked.checked.append(f"{counted(len(series), 'key', 'keys')} of the content, one of each series")
    except errors.KeysMissing as error:
        yield keys_issue(folder, error, state="damaged")
    except errors.LogDamaged as error:
        yield log_issue("log.db", Kind.SEALED.value, str(error), action=errors.sentence(restore_newest_backup(folder)))


def _decrypt_one(log: EventLog, stream: str, series: int) -> None:
    """Decrypt the newest content of a stream that was encrypted with a series. Raises `KeysMissing`, `LogDamaged`."""
    newest = log.stored_versions(stream, descending=True, limit=STATES_MAX)
    for _, _, version, topic, state, *_ in newest:
        # Damage can turn a value into one of another type, which the check of the log reports.
        if isinstance(state, bytes) and state[:1] == _SEALED and state[2:3] == bytes((series,)):
            log.decode(ORIGIN, stream, version, topic, state)
            return


def missing_keys(log: EventLog) -> errors.KeysMissing | None:
    """Return why the content of the log cannot be decrypted, None if it can."""
    if (keyring := log.keyring) is None:
        return None
    try:
        keyring.secret()
    except errors.KeysMissing as error:
        return error
    except errors.LogUnreachable as error:  # The keys may be in another database than the log.
        return keyring.engine.missing(str(error)).saying(hint=error.hint)
    return None


def check_backup(context: StoreContext, log: EventLog) -> Iterator[IssueWithFix]:
    """Yield that no backup is known, or that the newest one is old."""
    folder, head = context.layout.folder.absolute().resolve(), log.head().position
    known = last_backup(context.layout.folder)
    if head == ORIGIN:
        return
    if known is None:
        state, why = "missing", "no backup is known"
    elif head > known.head.position and datetime.now(UTC) - known.created_at > BACKUP_OLD:
        newer = counted(head - known.head.position, "event is", "events are")
        state, why = "old", f"the newest one, {known.path}, is of {dated(known.created_at)}; {newer} newer"
    else:
        return
    target = free(folder.with_name(f"{folder.name}-backup"))
    keys: dict[str, Any] = {} if log.keyring is None else {"keys": free(folder.with_name(f"{folder.name}-keys"))}
    yield issue(
        "backup",
        context.layout.known_backups.name,
        state,
        "note",
        why=why,
        matters="What the log loses can be restored from a backup only.",
        action=errors.Hint(errors.remedy("backup", target, **keys), " makes one; keep it on another disk."),
    )


def check_moved(log: EventLog) -> Iterator[IssueWithFix]:
    """Yield that the log was moved and takes no more events."""
    if moved_to := log.usable_engine.moved_to():
        yield issue(
            "store",
            "the log",
            "moved",
            "note",
            why=f"it was moved to {moved_to}",
            matters="It takes no more events. Reads continue.",
            action="Use the store there; docs/moving.md says how to give up the move.",
        )


def check_folder(context: StoreContext, log: EventLog) -> Iterator[IssueWithFix]:
    """Yield what is wrong around the files: too little room, keys that others may read, a store within a store."""
    folder = context.layout.folder.absolute()
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < LITTLE_ROOM_BYTES and not log.is_read_only:
        yield issue(
            *("store", ".", "full", "problem"),
            why=f"its file system has {free_bytes:,} bytes left",
            matters="Soon nothing can be recorded.",
            action=f"Free some space: `du -xh {shlex.quote(str(folder))}` shows what the store takes.",
        )
    for path in (context.layout.keys, context.layout.log):
        if path.exists() and (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077:
            yield issue(
                *("store", path.name, "exposed", "note"),
                why=f"its mode is {mode:04o}",
                matters="Other users of this machine may read it, and with both files all content.",
                action=f"`chmod 600 {shlex.quote(str(folder / path.name))}` leaves it to its owner.",
            )
    inner = [path.parent for path in sorted(folder.glob("*/log.db"))]
    if (folder.parent / "log.db").exists() or inner:
        store = inner[0] if inner else folder
        line = shlex.join(["mv", str(store), str(free((folder if inner else folder.parent).parent / store.name))])
        yield issue(
            *("store", store.name if inner else "..", "nested", "note"),
            why="a store lies in the folder of another one",
            matters="A backup of the outer store leaves the inner one out; deleting the outer one deletes both.",
            action=f"End all processes that use it, and move it: `{line}`.",
        )


def check_model(context: StoreContext, *, given: bool) -> Iterator[IssueWithFix]:
    """Yield why the model of the store cannot be used. Downloads nothing.

    It is a problem for the model that the store was opened with, and else a note.
    """
    models = context.projections.models
    try:
        if isinstance(models.own, str | Path):
            read_profile(resolve_model(models.own, download=False))
        if models.own is not None and context.active is not None:
            context.projections.vectors()
    except (errors.ModelUnavailable, errors.ModelMismatch) as error:
        yield issue(
            *("model", str(models.own), Drift.MISSING.value, "problem" if given else "note"),
            why=str(error),
            matters="Recalls search by words only, and new turns get no vectors.",
            action=errors.sentence(error.hint),
        )


def check_names(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield the names that stand for two things, because they are spelled in two ways."""
    with context.projections.to_answer()[0].database.reading() as connection:
        for what, query in _NAMES.items():
            names = {name for (name,) in fetch(connection, query)}
            for name in sorted(item for item in names if normalized("NFC", item) in names - {item}):
                yield issue(
                    "names",
                    f"{what} {name!a}",
                    "double",
                    "note",
                    why=f"{name!a} and {normalized('NFC', name)!a} look the same",
                    matters="They stay apart: what is in one is not in the other. New names are composed (NFC).",
                    action="Write the one that is meant as `where` has it; nothing has to be done.",
                )


def check_quarantine(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield a quarantine that is full, or half full."""
    status = Quarantine(context.layout.own_quarantine).status()
    if not status.full and 2 * status.items < ITEMS_MAX and 2 * status.bytes < BYTES_MAX:
        return
    yield issue(
        *("quarantine", context.named(context.layout.own_quarantine)),
        *(("full", "problem") if status.full else ("large", "note")),
        why=f"{status.items} of {ITEMS_MAX} items, {status.bytes:,} of {BYTES_MAX:,} bytes",
        matters=_FULL_MATTERS,
        action=status.action,
    )


def check_stale_files(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield the files that dead processes have left."""
    for path in abandoned(context.layout.projections):
        yield issue(
            *("leftover", context.named(path), "abandoned", "problem"),
            why="the process that created it no longer runs",
            matters="It takes up space.",
            action=errors.Hint(errors.remedy("admin.doctor", fix=True), " removes it."),
            fix=partial(_remove_stale_file, context, path),
        )


def _remove_stale_file(context: StoreContext, path: Path) -> str:
    """Delete a stale file, if it is still stale while no process writes vectors."""
    with indexers_locked_out(context.layout.vectors):
        if path not in abandoned(context.layout.projections):
            return "nothing to do: it no longer exists, or is in use again"
        remove_stale(path)
    return "removed"


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
    missing = missing_keys(log)
    context = StoreContext(layout, log, projections, active, missing is None, progress)
    looked = Looked([], [])
    found = list(_check(context, log, looked, deep=deep, model_given=model_given))
    # Where the log has lost events, everything stays in its place: it may be evidence, or all there is of them.
    issues = _fix(context, found) if fix and not log.engine.seen.lost else [item.issue for item in found]
    return _report(folder, head, issues, looked, deep=deep)


def unopened(
    folder: Path, error: errors.LogDamaged | errors.StoreReplaced | errors.LogUnreachable, *, deep: bool
) -> DoctorReport:
    """Return the report on a store whose log cannot be read."""
    issue = _of_the_log(folder, error).issue
    looked = Looked([], ["everything else, because the log cannot be read"])
    return msgspec.structs.replace(_report(folder, ORIGIN, [issue], looked, deep=deep), full_check="")


def _report(folder: Path, head: Position, issues: list[Issue], looked: Looked, *, deep: bool) -> DoctorReport:
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
        full_check="" if deep else errors.Hint(errors.remedy("admin.doctor", deep=True)),
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
    context: StoreContext, log: EventLog, looked: Looked, *, deep: bool, model_given: bool
) -> Iterator[IssueWithFix]:
    """Yield what every check finds. A check that meets a damaged log or missing keys ends, and the next one begins."""
    seen: set[str] = set()
    for name, check in (
        ("the log", partial(check_log, context, log, looked, deep=deep)),
        ("the keys", partial(check_keys, context, log, looked)),
        ("the model", partial(check_model, context, given=model_given)),
        *((projection.name, partial(projection.check, context, deep=deep)) for projection in PROJECTIONS),
        ("the names", partial(check_names, context)),
        ("the quarantine", partial(check_quarantine, context)),
        ("leftover files", partial(check_stale_files, context)),
        ("the backups", partial(check_backup, context, log)),
        ("the folder", partial(check_folder, context, log)),
        ("the place of the log", partial(check_moved, log)),
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
    name: str, check: Callable[[], Iterator[IssueWithFix]], folder: Path, looked: Looked
) -> Iterator[IssueWithFix]:
    """Yield what a check finds. An error that ends it is a finding too."""
    try:
        yield from check()
        return
    except errors.KeysMissing as error:
        yield keys_issue(folder, error, state=Drift.DAMAGED.value)
    except (errors.LogDamaged, errors.StoreReplaced, errors.LogUnreachable) as error:
        yield _of_the_log(folder, error)
    except errors.MnemologError as error:
        yield issue(
            *("store", name, Drift.UNREADABLE.value, "problem"),
            why=str(error),
            matters="It could not be checked.",
            action=error.hint,
        )
    looked.not_checked.append(f"{name}, to the end")


def _of_the_log(folder: Path, error: errors.LogDamaged | errors.StoreReplaced | errors.LogUnreachable) -> IssueWithFix:
    if isinstance(error, errors.LogUnreachable):
        return issue(
            *("store", "the log", _AWAY, "problem"),
            why=str(error),
            matters=_AWAY_MATTERS,
            action=errors.sentence(error.hint),
        )
    if isinstance(error, errors.StoreReplaced):
        return log_issue(error.path.name, Drift.REPLACED.value, str(error), action=errors.sentence(error.hint))
    return log_issue(
        *("log.db", Drift.DAMAGED.value, str(error)),
        action=errors.Hint(f"Keep {folder} as evidence; ", restore_newest_backup(folder), "."),
    )


def _fix(context: StoreContext, found: Iterable[IssueWithFix]) -> list[Issue]:
    """Apply the fixes, those that have to wait last, and return the issues in the order in which they were found."""
    numbered = sorted(enumerate(found), key=lambda pair: pair[1].last)
    done = {number: _fixed(item) for number, item in numbered}
    return [done[number] for number in sorted(done)]


def _fixed(item: IssueWithFix) -> Issue:
    if item.fix is None:
        return item.issue
    try:
        outcome = item.fix()
    except errors.MnemologError as error:
        return msgspec.structs.replace(
            item.issue, outcome=errors.Hint(f"{error}; ", error.hint) if error.hint else str(error)
        )
    return msgspec.structs.replace(item.issue, fixed=True, outcome=outcome)
