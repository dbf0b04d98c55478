"""Checks of log, keys, quarantine and stale files. They change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from mnemolog.domain import errors
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.drift import Drift
from mnemolog.projections.health import stale_files
from mnemolog.projections.health.stale_files import StaleFile
from mnemolog.projections.health.verify import quick_verify, verify
from mnemolog.projections.health.witnesses import witnesses_of
from mnemolog.projections.quarantine import BYTES_MAX, ITEMS_MAX
from mnemolog.projections.registry.context import StoreContext
from mnemolog.projections.registry.results import Issue, IssueWithFix

_LOG_ACTION: Final = (
    "Stop writing, keep log.db as it is, find the extent with `mnemolog verify DIR`, and restore the newest copy "
    "that verifies."
)
_LOG_MATTERS: Final = "The log is the source of truth. Nothing here can restore what it has lost."
_FULL_MATTERS: Final = "While it is full, nothing is moved to quarantine: damaged files stay where they are, unused."


def check_log(context: StoreContext, log: EventLog, *, deep: bool) -> Iterator[IssueWithFix]:
    """Yield problems of the log: of its ends and witnesses, or with `deep` of every event."""
    witnesses = list(witnesses_of(context.layout.folder, log))
    if deep:
        # Encrypted content is decrypted too, if its keys are there.
        found = verify(log, witnesses=witnesses, contents=context.readable, progress=context.progress)
        findings = list(found.findings)
    else:
        findings = quick_verify(log, witnesses)
    for finding in findings:
        yield IssueWithFix(
            Issue(
                what="log",
                where=f"{log.path.name} at {finding.position}",
                state=finding.kind.value,
                severity="log",
                why=finding.detail,
                matters=_LOG_MATTERS,
                action=_LOG_ACTION,
                fixable=False,
            )
        )


def check_keys(trouble: errors.KeysMissing | None) -> Iterator[IssueWithFix]:
    """Yield what prevents the content of the log from being read."""
    if trouble is not None:
        yield IssueWithFix(
            Issue(
                what="keys",
                where=KEYS_FILE,
                state=Drift.MISSING.value,
                severity="problem",
                why=str(trouble),
                matters="Content can be neither read nor recorded. Nothing is lost, and nothing counts as forgotten.",
                action="Put the store's own keys.db back beside log.db, from its newest backup.",
                fixable=False,
            )
        )


def missing_keys(log: EventLog) -> errors.KeysMissing | None:
    """Return why the content of the log cannot be decrypted, None if it can."""
    try:
        if log.keyring is not None:
            log.keyring.secret()
    except errors.KeysMissing as error:
        return error
    return None


def check_model(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield why the model of the store cannot be used. Downloads nothing."""
    models = context.projections.models
    try:
        if isinstance(models.own, str | Path):
            _ = models.opened(models.own, download=False).encoder.dimension
        if models.own is not None and context.active is not None:
            context.projections.vectors()
    except (errors.ModelUnavailable, errors.ModelMismatch) as error:
        yield IssueWithFix(
            Issue(
                what="model",
                where=str(models.own),
                state=Drift.MISSING.value,
                severity="problem",
                why=str(error),
                matters="Recalls search by words only, and new turns get no vectors.",
                action=f"{error.hint[:1].upper()}{error.hint[1:]}.",
                fixable=False,
            )
        )


def check_quarantine(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield a quarantine that is full, or half full."""
    status = context.quarantine.status()
    if not status.full and 2 * status.items < ITEMS_MAX and 2 * status.bytes < BYTES_MAX:
        return
    yield IssueWithFix(
        Issue(
            what="quarantine",
            where=context.named(context.layout.quarantine),
            state="full" if status.full else "large",
            severity="problem" if status.full else "note",
            why=f"{status.items} of {ITEMS_MAX} items, {status.bytes:,} of {BYTES_MAX:,} bytes",
            matters=_FULL_MATTERS,
            action=status.action,
            fixable=False,
        )
    )


def check_stale_files(context: StoreContext) -> Iterator[IssueWithFix]:
    """Yield the files that dead processes have left."""
    for listed, state in ((stale_files.abandoned, "abandoned"), (stale_files.stale_notes, "stale")):
        for item in listed(context.layout.projections):
            issue = Issue(
                what="leftover",
                where=context.named(item.path),
                state=state,
                severity="problem" if state == "abandoned" else "note",
                why=item.why,
                matters="It takes up space." if state == "abandoned" else "It names a process that no longer works.",
                action="`mnemolog doctor DIR --fix` removes it.",
                fixable=True,
            )
            yield IssueWithFix(issue, partial(_remove_stale_file, context, item.path, listed))


def _remove_stale_file(context: StoreContext, path: Path, listed: Callable[[Path], list[StaleFile]]) -> str:
    """Delete a stale file, if it is still stale while no process writes vectors."""
    with stale_files.indexers_locked_out(context.layout.vectors):
        if not any(other.path == path for other in listed(context.layout.projections)):
            return "nothing to do: it no longer exists, or is in use again"
        stale_files.remove(path)
    return "removed"
