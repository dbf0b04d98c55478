"""Forget what is older than its scope allows. The rules, and holds against it, are events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from mnemolog.application.session_service import Sessions
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.events import RETENTION_STREAM, Event, HoldLifted, RecordedEvent, TurnRecorded
from mnemolog.domain.head import position_at
from mnemolog.domain.position import ORIGIN, Micros, When, micros_of
from mnemolog.domain.result import Result
from mnemolog.domain.retention import NO_RETENTION, Hold, Retention, RetentionRule, evolve_retention
from mnemolog.forgetting.plan import ForgetSelector
from mnemolog.forgetting.results import ForgetReport
from mnemolog.forgetting.service import Forgetting
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.turn_places import PLACES

BATCH_MAX: Final = 10_000
"""Turns that one request to forget names: each request purges the projections once."""

_OLD: Final = (
    "SELECT position, session, scope, said_at, recorded_at FROM turns "
    f"CROSS JOIN sessions ON started_position = place / {PLACES} "
    "WHERE position > ? AND min(coalesce(said_at, recorded_at), recorded_at) <= ? ORDER BY position LIMIT ?"
)
_OPEN: Final = "SELECT session, scope, turns - forgotten FROM sessions WHERE ended_at IS NULL AND turns > 0"


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

    def retention(self, as_of: When | None) -> Retention:
        """See `AdminService.retention`."""
        upto = None if as_of is None else position_at("as_of", as_of, self._log)
        return self._log.fold(RETENTION_STREAM, evolve_retention, upto=upto).state or NO_RETENTION

    def append(self, event: Event) -> RecordedEvent:
        """Append a rule, or a hold."""
        return self._log.appends.transact(lambda tx: tx.append(RETENTION_STREAM, event))

    def lift(self, lifted: HoldLifted) -> Hold:
        """See `AdminService.lift_hold`."""
        found = next((hold for hold in self.retention(None).holds if hold.position == lifted.hold), None)
        if found is None:
            raise errors.InvalidInput("hold", f"no hold was placed at position {lifted.hold}, or it is lifted")
        self.append(lifted)
        return found

    def apply(self, *, dry_run: bool, progress: Progress | None) -> RetentionReport:
        """See `AdminService.apply_retention`."""
        self._forgetting.resume()
        run = _Run(self._sessions.clock.now(), dry_run)
        after = ORIGIN
        last = self._log.head().position
        ages = [micros_of(item.max_age) for item in self.retention(None).rules if item.max_age]
        while ages and (rows := self._fetched(_OLD, after, run.now - min(ages), BATCH_MAX)):
            for rule, positions in run.due(self.retention(None), rows).items():
                self._forget(run, rule, positions)
            after = rows[-1][0]
            tell(progress, after, last)
        return self._ended(run)

    def _fetched(self, statement: str, *parameters: int) -> list[Any]:
        with self._projections.current_views().database.reading() as connection:
            return fetch(connection, statement, *parameters)

    def _forget(self, run: _Run, rule: RetentionRule, positions: list[int]) -> None:
        """Forget turns, all but those on which something rests that is under a hold."""
        selector = ForgetSelector(
            self._visible, positions=frozenset(positions), now=run.now, keep_facts=rule.keep_facts
        )
        reason = f"retention: {rule.max_age}"
        try:
            report = self._forgetting.forget(selector, reason=reason, dry_run=run.dry_run, progress=None)
        except errors.OnHold:
            if len(positions) == 1:
                run.held += 1
                return
            half = len(positions) // 2
            self._forget(run, rule, positions[:half])
            self._forget(run, rule, positions[half:])
        else:
            run.reports.append(report)

    def _ended(self, run: _Run) -> RetentionReport:
        """End the sessions of which no turn is left, and return the report."""
        kept = self.retention(None)
        gone = [
            session
            for session, scope, left in self._fetched(_OPEN)
            if left == (run.found[session] if run.dry_run else 0) and kept.rule_of(scope) is not None
        ]
        for session in () if run.dry_run else gone:
            self._sessions.end(session, reason="retention")
        return RetentionReport(
            dry_run=run.dry_run,
            turns=sum(report.counts.get(TurnRecorded.topic, 0) for report in run.reports),
            requests=tuple(run.reports),
            sessions_ended=len(gone),
            held=run.held,
        )


class _Run:
    """A run: what was found so far."""

    def __init__(self, now: Micros, dry_run: bool) -> None:
        self.now, self.dry_run = now, dry_run
        self.reports: list[ForgetReport] = []
        self.found: Counter[str] = Counter()
        """How many turns of each session are to be forgotten."""
        self.held = 0

    def due(self, kept: Retention, rows: Iterable[Sequence[Any]]) -> dict[RetentionRule, list[int]]:
        """Return the positions of the turns that are to be forgotten, by the rule that says so."""
        found: dict[RetentionRule, list[int]] = {}
        rule_of, least_of = cache(kept.rule_of), cache(kept.min_age_of)
        is_held = cache(lambda scope: bool(kept.holds_on([scope])))
        for position, session, scope, said_at, recorded_at in rows:
            rule = rule_of(scope)
            if rule is None or recorded_at + least_of(scope) > self.now:
                continue
            begin = said_at if rule.by == "said" and said_at is not None else recorded_at
            if begin + micros_of(rule.max_age) > self.now:
                continue
            if is_held(scope):
                self.held += 1
            else:
                self.found[session] += 1
                found.setdefault(rule, []).append(position)
        return found
