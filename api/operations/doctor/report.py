"""The report of `doctor`."""

from __future__ import annotations

from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.projections.registry.results import Issue


class DoctorReport(Result, frozen=True, kw_only=True):
    """The outcome of `doctor`."""

    path: str
    head: Position
    deep: bool
    """Whether every byte was read."""
    healthy: bool
    """Whether no problem is left and the log is not in doubt. Notes do not count."""
    log_damaged: bool
    """Whether the log is in doubt: it was changed, or a witness remembers more events or another history."""
    findings: tuple[Issue, ...]
