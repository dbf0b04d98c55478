"""Forget what is older than its scope allows. The rules, and holds against it, are events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from mnemolog.application.facts import retention_at
from mnemolog.application.session_service import Sessions
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.choices import Hold, RetentionRule
from mnemolog.domain.events import RETENTION_STREAM, Event, HoldLifted, RecordedEvent, TurnRecorded
from mnemolog.domain.position import ORIGIN, Micros, micros_of
from mnemolog.domain.result import Result
from mnemolog.forgetting.history import ForgetReport
from mnemolog.forgetting.plan import ForgetSelector
from mnemolog.forgetting.service import Forgetting
from mnemolog.projections.ports import Progress, tell
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql.database import fetch
from mnemolog.projections.sql.turn_tables import PLACES

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
        ended = [
            session
            for session, scope, left in self._fetched(_OPEN)
            if left == (gone[session] if dry_run else 0) and kept.rule_of(scope) is not None
        ]
        for session in () if dry_run else ended:
            self._sessions.end(session, reason="retention")
        return RetentionReport(
            dry_run=dry_run,
            turns=sum(report.counts.get(TurnRecorded.topic, 0) for report in done),
            requests=tuple(done),
            sessions_ended=len(ended),
            held=held + reports.count(None),
        )

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
