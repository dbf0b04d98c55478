"""The report of `doctor`."""

from __future__ import annotations

from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.maintenance.results import Issue


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
