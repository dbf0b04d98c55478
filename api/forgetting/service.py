"""The forgetting service: record the request, destroy the keys, record that, wipe them, purge every projection.

Each step can be repeated. Once the keys are destroyed and that is recorded no process answers with the content, so
what comes after may wait. It is tried again by every process that has the store open, and when it is opened next.

Retention forgets in the same way what is older than its scope allows. Its rules, and holds against it, are events.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final

import filelock
from msgspec.structs import replace

from mnemolog.application.facts import retention_at
from mnemolog.application.session_service import Sessions
from mnemolog.application.tokens import revoke, tokens_of
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.choices import Hold, RetentionRule
from mnemolog.domain.events import (
    RETENTION_STREAM,
    ContentErased,
    Event,
    ForgetCompleted,
    ForgetRequested,
    HoldLifted,
    RecordedEvent,
    TurnRecorded,
)
from mnemolog.domain.forgetting import FORGETTING_STREAM
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.session import session_stream
from mnemolog.domain.store_layout import PROJECTIONS as FOLDER
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import (
    LABEL_BYTES_MAX,
    ORIGIN,
    Micros,
    Position,
    Version,
    checked_text,
    micros_of,
    to_datetime,
)
from mnemolog.forgetting import history as forgetting_record
from mnemolog.forgetting.history import (
    Certificate,
    Erasure,
    ForgetReport,
    NodeStatus,
    PendingErasure,
    ReapplyReport,
    Request,
    certificate_of,
    forgotten_turns,
)
from mnemolog.forgetting.plan import ForgetSelector, Planner
from mnemolog.infra.keys.keyring import KeyErasure, Keyring, LeafRange
from mnemolog.infra.log.event_codec import decode, encode
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.transaction import Transaction
from mnemolog.infra.runtime.files import as_store_error, lock_file, make_folder, sweep_scratch
from mnemolog.projections.maintenance.context import StoreContext, abandoned_in, remove_stale
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector import PROJECTORS, RETRY_S_MAX, retry_delay_s
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.registry import PROJECTIONS, unregistered_tables
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.turn_tables import PLACES

LOCK_FILE: Final = ".forgetting.lock"
LOCK_WAIT_S: Final = 30.0
RETRY_WAIT_S: Final = 0.2
"""How long a process that tries again waits for readers of the keys: an answer may be waiting for it."""
STEPS: Final = ("requested", "destroyed", "recorded", "wiped", "purged", "completed")
"""The steps of a request, in order; tests kill the process between them."""


class Forgetting:
    """Carries out requests to forget, one process at a time."""

    reached: Callable[[str], None] = staticmethod(lambda _step: None)
    """Called after every step. For tests, which end the process there."""

    def __init__(
        self,
        layout: StoreLayout,
        log: EventLog,
        projections: ProjectionSet,
        *,
        nodes: Callable[[], list[NodeStatus]],
        purged: Callable[[Head], None],
        copies_of_keys: Callable[[int], list[str]],
    ) -> None:
        """`nodes` returns the nodes of the log; `purged` notes up to where this one is purged.

        `copies_of_keys` returns where copies of the keys are known to be that are older than a position.
        """
        self._layout = layout
        self._log = log
        self._projections = projections
        self._nodes = nodes
        self._purged = purged
        self._copies_of_keys = copies_of_keys
        self._clean: set[str] = set()
        """Requests whose content this process has purged. It is not done again while the keys wait to be wiped."""
        self._waits: str | None = None
        """What had to wait when it was tried last."""
        self._looked = ORIGIN
        self._settled = 0
        self._tries = 0
        self._retry_at = 0.0

    def forget(
        self, selector: ForgetSelector, *, reason: str, dry_run: bool, progress: Progress | None
    ) -> ForgetReport:
        """See `MemoryStore.forget`."""
        work = self.requesting(selector, reason=reason)
        if dry_run:
            return replace(self._log.appends.rehearse(work), request=None, position=None)
        with self.carrying_out(progress):
            report = self._log.appends.transact(work)
        asked = tuple(replace(question, query="") for question in report.asked)
        return self._certified(replace(report, dry_run=False, asked=asked, pending=self._waits))

    @contextmanager
    def carrying_out(self, progress: Progress | None = None) -> Iterator[None]:
        """Carry out at the end of the block what is requested within it."""
        with alone(self._layout, wait_s=LOCK_WAIT_S):
            yield
            self.reached("requested")
            self._tries, self._retry_at = 1, 0.0
            self._waits = self._complete(progress)

    def requesting(
        self, selector: ForgetSelector, *, reason: str, proposal: Position | None = None
    ) -> Callable[[Transaction], ForgetReport]:
        """Return the work that appends a request, and returns the report; that names none if nothing is left."""
        keyring, id = self._keys(), secrets.token_hex(8)
        for field, given in (("reason", reason), ("despite_minimum", selector.despite_minimum)):
            if given:
                checked_text(field, given, bytes_max=LABEL_BYTES_MAX)
        for scope in selector.scopes:
            if not scope:
                raise errors.InvalidInput("scope", "name one: the whole store is forgotten by deleting its folder")
        if not (selector.sessions or selector.scopes or selector.positions):
            raise errors.InvalidInput("session", "say what to forget: sessions, scopes or positions")

        def work(tx: Transaction) -> ForgetReport:
            targets, report = Planner(self._log, keyring, tx).plan(selector)
            if not targets:
                return report
            event = ForgetRequested(
                id=id,
                targets=targets,
                reason=reason,
                scopes=list(selector.visible.boundary.scopes),
                questions=[question.position for question in report.asked if question.stays],
                questions_left=report.questions_left,
                facts_kept=report.facts_kept,
                despite_minimum=selector.despite_minimum,
                proposal=proposal,
            )
            return replace(report, request=id, position=tx.append(FORGETTING_STREAM, event).position)

        return work

    def resume(self, *, carry_on: bool = True) -> bool:
        """Resume what was interrupted or had to wait, and repeat what restoring a file has undone. Fast if nothing was.

        Return whether nothing is left. With `carry_on=False` only look. If it fails, it is tried again later, and
        `status` lists the requests.
        """
        if self._log.keyring is None or self._log.is_read_only:
            return True
        try:
            if self._is_settled():
                return True
            if not carry_on:
                return False
            self._tries = max(1, self._tries)
            with alone(self._layout, wait_s=0):
                self._append_lacking(self._keys().erasures())
                self._waits = self._complete(None, wait_s=RETRY_WAIT_S)
                return self._waits is None
        except (errors.MnemologError, OSError):  # Neither opening nor an answer must fail for this.
            return False

    def look(self, head: Position) -> None:
        """Try again what had to wait, ever less often. One short query for a new head while nothing waits.

        What another process has begun is left to it for `RETRY_S_MAX`.
        """
        if head == self._looked or time.monotonic() < self._retry_at:
            return
        epoch = self._log.epoch()
        if epoch == self._settled or self.resume(carry_on=self._tries > 0):
            self._looked = head
            self._settled = epoch
            self._tries = 0
            return
        self._tries += 1
        self._retry_at = time.monotonic() + (RETRY_S_MAX if self._tries == 1 else retry_delay_s(self._tries))

    def reapply(self, erasures: Sequence[Erasure], *, progress: Progress | None = None) -> ReapplyReport:
        """See `AdminService.reapply_erasures`."""
        asked, tokens = [item for item in erasures if not item.token], [item.token for item in erasures if item.token]
        if asked:
            self._keys()
        with alone(self._layout, wait_s=LOCK_WAIT_S):
            requests = [ForgetRequested(id=e.request, targets=list(e.targets), reason=e.reason) for e in asked]
            self._renew_keys(requests)
            count = self._append_lacking([KeyErasure(event.id, 0, 0, encode(event)) for event in requests])
            revoked = self._log.appends.transact(partial(revoke, ids=tokens))
            pending = self._complete(progress) if asked else None
        return ReapplyReport(erasures=len(erasures), requested=count, revoked=len(revoked), pending=pending)

    def _renew_keys(self, requests: Iterable[ForgetRequested]) -> None:
        """Start a new series of keys for streams of which these requests name versions that do not exist yet.

        In a restored older log these versions are still to be written. Writers read the keys again after a request,
        because it moves the head.
        """
        known = forgetting_record.requests(self._log)
        for target in (target for request in requests if request.id not in known for target in request.targets):
            if any(last > self._log.version(target.stream) for _, last in target.versions):
                self._keys().renew(target.stream, above=target.series)

    def pending_erasures(self) -> list[PendingErasure]:
        """See `AuditService.pending_erasures`."""
        nodes = self._nodes()
        found = [
            PendingErasure(
                request=request.event.id,
                requested_at=to_datetime(request.recorded.recorded_at),
                reason=request.event.reason,
                actor=request.event.actor,
                complete=request.completed_at is not None,
                waiting_for=tuple(request.not_confirmed_by(nodes)),
            )
            for request in forgetting_record.requests(self._log).values()
        ]
        return [item for item in found if item.waiting_for or not item.complete]

    def erasures(self) -> list[Erasure]:
        """See `AuditService.erasures`."""
        requests = [
            Erasure(
                request=request.event.id,
                requested_at=to_datetime(request.recorded.recorded_at),
                reason=request.event.reason,
                actor=request.event.actor,
                targets=tuple(request.event.targets),
            )
            for request in forgetting_record.requests(self._log).values()
        ]
        return requests + [
            Erasure(request="", requested_at=at, reason="", actor=token.revoked_by, targets=(), token=token.id)
            for token in tokens_of(self._log)
            if (at := token.revoked_at or token.replaced_at) is not None
        ]

    def certificate(self, request: str) -> Certificate | None:
        """Return the certificate of a request; None if the log has no such request."""
        found = forgetting_record.requests(self._log).get(request)
        return None if found is None else self._certificate(found, self._nodes())

    def _certificate(self, found: Request, nodes: list[NodeStatus]) -> Certificate:
        copies = self._known_copies(found) if found.copies is None else found.copies
        if found.event.scopes:
            copies = [f"copy {number}" for number, _ in enumerate(copies, 1)]
        return certificate_of(self._log, found, pending=self._waits, copies=copies, nodes=nodes)

    def _known_copies(self, request: Request) -> list[str]:
        """Return where copies of the keys of a request are known to be now."""
        return self._copies_of_keys(request.erased_at or self._log.head().position + 1)

    def _certified(self, report: ForgetReport) -> ForgetReport:
        """Return a report with its certificate, the nodes that have confirmed it, and those that have not."""
        if report.request is None:
            return report
        nodes = self._nodes()
        request = forgetting_record.requests(self._log)[report.request]
        waiting = request.not_confirmed_by(nodes)
        return replace(
            report,
            confirmed_by=tuple(node for node in nodes if node not in waiting),
            waiting_for=tuple(waiting),
            certificate=self._certificate(request, nodes),
        )

    def _is_settled(self) -> bool:
        """Whether log and keys record the same requests, all done. Compares only the last of each."""
        keyring, last = self._keys(), self._log.last_event(FORGETTING_STREAM)
        if last is not None:
            done = last.event.requests if isinstance(last.event, ForgetCompleted) else []
            if not done or not all(keyring.has_erasure(request) for request in done):
                return False
        if (erasure := keyring.last_erasure()) is None:
            return True
        found = self._log.event_at(Position(erasure.position))
        return found is not None and isinstance(found.event, ForgetRequested) and found.event.id == erasure.request

    def _append_lacking(self, erasures: Sequence[KeyErasure]) -> int:
        """Append the requests that the log lacks. Return how many."""

        def work(tx: Transaction) -> int:
            known = forgetting_record.requests(self._log)
            lacking = [erasure for erasure in erasures if erasure.request not in known]
            for erasure in lacking:
                tx.append(FORGETTING_STREAM, decode(ForgetRequested.topic, erasure.event, position=erasure.position))
            return len(lacking)

        return self._log.appends.transact(work)

    def _complete(self, progress: Progress | None, *, wait_s: float | None = None) -> str | None:
        """Complete every request. Return what has to wait, and why; None if nothing has.

        Raises what prevents that the keys are destroyed and that this is recorded: the content can be read until then.
        `wait_s`: how long to wait for readers of the keys; None: as long as for any lock.
        """
        keyring, found = self._keys(), forgetting_record.requests(self._log)
        undone = [
            item for item in found.values() if item.completed_at is None or not keyring.has_erasure(item.event.id)
        ]
        if not undone:
            return None
        lacking = [item for item in undone if item.erased_at is None or not keyring.has_erasure(item.event.id)]
        copies = {request.event.id: self._known_copies(request) for request in lacking}
        try:
            for request in lacking:
                event, recorded = request.event, request.recorded
                erasure = KeyErasure(event.id, recorded.position, recorded.recorded_at, encode(event))
                targets = ((target, versions) for target in event.targets for versions in target.versions)
                keyring.destroy(erasure, [LeafRange(target.stream, target.series, *ends) for target, ends in targets])
            self.reached("destroyed")
            for request in lacking:
                self._log.appends.transact(_recorded(request, copies[request.event.id]))
            self.reached("recorded")
        except errors.LogBusy as error:
            error.hint = "the request is recorded and tried again; until it succeeds, the content can be read"
            raise
        self._clean.difference_update(request.event.id for request in lacking)
        done = ForgetCompleted(requests=[request.event.id for request in undone])
        left = (
            self._tried("wiping the keys", "wiped", partial(self._wipe, wait_s)),
            self._tried("purging the projections", "purged", partial(self._purge, done.requests, progress)),
        )
        if any(left):
            return "; ".join(filter(None, left))
        try:
            self._log.appends.transact(lambda tx: tx.append(FORGETTING_STREAM, done))
        except errors.NOT_NOW as error:
            return f"recording that it is done: {error}"
        self.reached("completed")
        return None

    def _tried(self, step: str, reached: str, work: Callable[[], str]) -> str | None:
        """Carry out a step that may wait. Return its name and why it has to; None if it is done."""
        try:
            why = work()
        except errors.NOT_NOW as error:
            why = str(error)
        if why:
            return f"{step}: {why}"
        self.reached(reached)
        return None

    def _wipe(self, wait_s: float | None) -> str:
        return "" if self._keys().wipe(wait_s=wait_s) else "another process is reading them"

    def _purge(self, requests: Sequence[str], progress: Progress | None) -> str:
        if self._clean.issuperset(requests):
            return ""
        upto = self._log.head()
        left = purge(self._layout, self._log, self._projections, progress=progress)
        if not left:
            self._purged(upto)
            self._clean.update(requests)
        return left

    def _keys(self) -> Keyring:
        keyring = self._log.keyring
        if keyring is None:
            why = "this store was created without encryption, so nothing of it can be forgotten; record its content"
            raise errors.InvalidInput("encrypt", f"{why} in a new store, which is encrypted by default")
        return keyring


def _recorded(request: Request, copies: list[str]) -> Callable[[Transaction], None]:
    """Return the transaction that records the erased content in every stream, then in the stream of forgetting.

    The latter names the `copies` of the keys that were known before they were destroyed. If the streams have the record
    already, only the latter is repeated: it ends the epoch, so earlier reads are stale.
    """
    event = request.event

    def work(tx: Transaction) -> None:
        for target in event.targets if request.erased_at is None else ():
            # A restored older log may have fewer versions of a stream, or none. Versions appended after the request are
            # not part of it.
            latest = Version(tx.reads.version(target.stream))
            end = tx.reads.version_at(target.stream, request.recorded.position, latest=latest)
            versions = [(first, min(last, end)) for first, last in target.versions if first <= end]
            if versions:
                tx.append(target.stream, ContentErased(request=event.id, versions=versions))
        tx.append(FORGETTING_STREAM, ContentErased(request=event.id, copies=copies))

    return work


@contextmanager
def alone(layout: StoreLayout, *, wait_s: float) -> Iterator[None]:
    """Let one process at a time forget and purge in a folder. Raises `LogBusy` after waiting for another one."""
    folder = layout.projections
    try:
        make_folder(folder, root=FOLDER)
        lock = lock_file(folder / LOCK_FILE, wait_s=wait_s)
        lock.acquire()
    except filelock.Timeout as error:
        raise errors.LogBusy(waited_s=wait_s) from error
    except OSError as error:
        raise as_store_error(error, folder) from error
    try:
        yield
    finally:
        lock.release()


def purge(
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    *,
    progress: Progress | None = None,
) -> str:
    """Remove forgotten content from all projections. Return what could not be done, or an empty string.

    May be repeated. Raises `ProjectionError`, `StorageFull`.
    """
    context = StoreContext(layout, log, projections, progress=progress)
    left = [
        f"another process still reads {projection.name}.db"
        for projection in (*PROJECTIONS, *unregistered_tables(layout))
        if not projection.purge(context, partial(forgotten_turns, log))
    ]
    _purge_quarantine(context.quarantine, log)
    for path in (layout.projections / PROJECTORS).glob("*.json"):
        path.unlink(missing_ok=True)  # It may quote a model's report about a text.
    for abandoned in abandoned_in(layout.scratch or layout.folder):
        if abandoned.name.startswith(".keys."):  # Of an import or a copy of the store that was killed.
            remove_stale(abandoned)
    sweep_scratch()
    projections.poke()
    return "; ".join(left)


def _purge_quarantine(quarantine: Quarantine, log: EventLog) -> None:
    """Delete all items in quarantine, because their content is unknown; except items known to be of another log."""
    quarantine.delete([item for item in quarantine.items() if item.log_id in ("", log.log_id)])
    for path in quarantine.folder.glob(".removed.*"):
        remove_stale(path)


BATCH_MAX: Final = 10_000
"""Turns that one request to forget names: each request purges the projections once."""

_OLD: Final = (
    "SELECT position, session, scope, said_at, recorded_at FROM turns "
    f"CROSS JOIN sessions ON started_position = place / {PLACES} "
    "WHERE position > ? AND min(coalesce(said_at, recorded_at), recorded_at) <= ? ORDER BY position LIMIT ?"
)
_OPEN: Final = (
    "SELECT session, scope, turns - forgotten, last_position FROM sessions WHERE ended_at IS NULL AND turns > 0"
)


class RetentionReport(Result, frozen=True, kw_only=True):
    """What a run forgot, or with `dry_run` would forget."""

    dry_run: bool
    turns: int = 0
    requests: tuple[ForgetReport, ...] = ()
    """The requests to forget, each with its certificate; for a dry run what each would forget."""
    sessions_ended: int = 0
    """Sessions of which no turn was left."""
    held: int = 0
    """Turns that are old enough and stay, because a hold lies on them, or on what rests on them."""


class RetentionRuns:
    """Sets rules and holds, and forgets what is older than they allow."""

    def __init__(
        self, visible: VisibleEvents, projections: ProjectionSet, forgetting: Forgetting, sessions: Sessions
    ) -> None:
        self._visible = visible
        self._log = visible.log
        self._projections = projections
        self._forgetting, self._sessions = forgetting, sessions

    def append(self, event: Event) -> RecordedEvent:
        """Append a rule, or a hold."""
        return self._log.appends.transact(lambda tx: tx.append(RETENTION_STREAM, event))

    def lift(self, lifted: HoldLifted) -> Hold:
        """See `AdminService.lift_hold`."""
        found = next((hold for hold in retention_at(self._log).holds if hold.position == lifted.hold), None)
        if found is None:
            raise errors.InvalidInput("hold", f"no hold was placed at position {lifted.hold}, or it is lifted")
        self.append(lifted)
        return found

    def apply(self, *, dry_run: bool, progress: Progress | None) -> RetentionReport:
        """See `AdminService.apply_retention`."""
        self._forgetting.resume()
        now, last, after = self._sessions.clock.now(), self._log.head().position, ORIGIN
        reports, gone, held = list[ForgetReport | None](), Counter[str](), 0
        ages = [micros_of(item.max_age) for item in retention_at(self._log).rules if item.max_age]
        while ages and (rows := self._fetched(_OLD, after, now - min(ages), BATCH_MAX)):
            kept = retention_at(self._log)
            due: dict[RetentionRule, list[int]] = {}
            rule_of, least_of = cache(kept.rule_of), cache(kept.min_age_of)
            is_held = cache(lambda scope, kept=kept: bool(kept.holds_on([scope])))
            for position, session, scope, said_at, recorded_at in rows:
                rule = rule_of(scope)
                if rule is None or recorded_at + least_of(scope) > now:
                    continue
                begin = said_at if rule.by == "said" and said_at is not None else recorded_at
                if begin + micros_of(rule.max_age) > now:
                    continue
                if is_held(scope):
                    held += 1
                else:
                    gone[session] += 1
                    due.setdefault(rule, []).append(position)
            for rule, positions in due.items():
                reports += self._forget(rule, positions, now, dry_run)
            after = rows[-1][0]
            tell(progress, after, last)
        done = [report for report in reports if report is not None]
        kept = retention_at(self._log)
        ended = list[str]()
        for session, scope, left, at in self._fetched(_OPEN):
            rule = kept.rule_of(scope)
            if rule is None or left != (gone[session] if dry_run else 0) or kept.holds_on([scope]):
                continue
            # What `forget` took all turns of may be a running conversation, as long as it is younger than the rule.
            if gone[session] or self._last_used(session, at) + micros_of(rule.max_age) <= now:
                ended.append(session)
        for session in () if dry_run else ended:
            self._sessions.end(session, reason="retention")
        return RetentionReport(
            dry_run=dry_run,
            turns=sum(report.counts.get(TurnRecorded.topic, 0) for report in done),
            requests=tuple(done),
            sessions_ended=len(ended),
            held=held + reports.count(None),
        )

    def _last_used(self, session: str, upto: Position) -> Micros:
        """Return when something was last recorded in a session; that its content was erased does not count."""
        batches = self._log.read_stream(session_stream(session), upto=upto)
        return max(item.recorded_at for batch in batches for item in batch if not isinstance(item.event, ContentErased))

    def _fetched(self, statement: str, *parameters: int) -> list[Any]:
        with self._projections.current_views().database.reading() as connection:
            return fetch(connection, statement, *parameters)

    def _forget(
        self, rule: RetentionRule, positions: list[int], now: Micros, dry_run: bool
    ) -> Iterator[ForgetReport | None]:
        """Forget turns. Yield the reports, and None for each turn on which something rests that is under a hold."""
        selector = ForgetSelector(self._visible, positions=frozenset(positions), now=now, keep_facts=rule.keep_facts)
        try:
            reason = f"retention: {rule.max_age}"
            yield self._forgetting.forget(selector, reason=reason, dry_run=dry_run, progress=None)
        except errors.OnHold:
            half = len(positions) // 2
            for part in (positions[:half], positions[half:]) if half else ():
                yield from self._forget(rule, part, now, dry_run)
            if not half:
                yield None
