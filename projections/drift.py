"""The states of a projection relative to its log.

Decided from metadata alone (manifests, names, sizes of files): never from file times, never by counting. Each
projection says what to do about a state (`ACTIONS` beside it). `docs/operations.md` shows the same tables, and a test
compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Drift(StrEnum):
    """The state of a projection relative to its log."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"
    OTHER_LOG = "other-log"
    DIVERGED = "diverged"
    DAMAGED = "damaged"
    MISSING = "missing"
    OTHER_MODEL = "other-model"
    REPLACED = "replaced"
    UNREADABLE = "unreadable"


NOTHING_TO_DO: Final = "Nothing to do."

Actions = Mapping[Drift, str]
"""What to do about each state that a projection can be in: sentences, most of them hints."""

LOST_HISTORY: Final = frozenset({Drift.AHEAD, Drift.DIVERGED})
"""States that are evidence against the log, not against the projection."""

UNCOVERED: Final = LOST_HISTORY | {Drift.OTHER_LOG}
"""States of what this log cannot rebuild. It is never used, and never renamed unless an operator says so."""

MEANS: Final[Mapping[Drift, str]] = {
    Drift.CURRENT: "It is up to date with the log.",
    Drift.BEHIND: "The log has newer events. Recall takes them in, or says how far the vectors reach.",
    Drift.AHEAD: "It was built from events that the log no longer has: the log has lost history.",
    Drift.OTHER_LOG: "It was built from another log and belongs to another store.",
    Drift.DIVERGED: "The log has another history up to the same offset: it was rewritten, or restored and continued.",
    Drift.DAMAGED: "Its bytes are not those that were written. It is not used.",
    Drift.MISSING: "It does not exist.",
    Drift.OTHER_MODEL: "It belongs to a model that is not the active one.",
    Drift.REPLACED: "A newer generation of the same model answers in its place.",
    Drift.UNREADABLE: "It cannot be read now: it is locked, or this user may not read it.",
}
