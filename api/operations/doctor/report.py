"""What an examination of a store finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from mnemolog.domain.position import Position

Severity = Literal["note", "problem", "log"]
"""`note`: nothing is wrong. `problem`: something is, and nothing is lost by it. `log`: the log itself is in doubt."""


class Ailment(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be, or worth knowing."""

    what: Literal["log", "keys", "views", "tables", "cache", "vectors", "quarantine", "leftover"]
    where: str
    """Below the folder of the store."""
    state: str
    """A word of `mnemolog.projections.drift`, or of `verify` for the log; of the keys `missing`."""
    severity: Severity
    why: str
    """What was seen."""
    matters: str
    """What it means."""
    action: str
    """What is to be done, with the command."""
    fixable: bool
    """Whether `--fix` does something about it."""
    fixed: bool = False
    outcome: str = ""
    """What was done, or why it could not be."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an examination."""

    path: str
    head: Position
    deep: bool
    """Whether every byte was read."""
    healthy: bool
    """Whether no problem is left and the log is not in doubt. Notes do not count."""
    log_damaged: bool
    """Whether the log is in doubt: it was changed, or a witness remembers more or something else."""
    findings: tuple[Ailment, ...]


class Case(NamedTuple):
    """An ailment with what cures it. The remedy says what it did, and raises an error of ours where it could not."""

    ailment: Ailment
    remedy: Callable[[], str] | None = None
    last: bool = False
    """Whether it is for the end, when everything else is done."""
