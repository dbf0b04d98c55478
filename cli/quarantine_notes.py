"""Notes on stderr about damaged files of projections: they are moved to quarantine and rebuilt while a command runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mnemolog.domain.display import visible
from mnemolog.domain.structured_log import ROOT
from mnemolog.projections.drift import LOST_HISTORY


class _Notes(logging.Handler):
    """Prints one line for every item that is moved to quarantine, or that cannot be moved."""

    def emit(self, record: logging.LogRecord) -> None:
        facts = getattr(record, "facts", {})
        was, state = facts.get("was"), facts.get("state")
        match getattr(record, "event", None):
            case "quarantine.added" if state in LOST_HISTORY:
                done = "it was moved to quarantine with what the log has lost, and rebuilt from the log as it is"
            case "quarantine.added":
                done = "it was moved to quarantine, and is rebuilt from the log"
            case "quarantine.full" | "quarantine.failed":
                done = "it cannot be moved to quarantine, and is not used"
            case _:
                return
        print(f"note: projections/{visible(str(was))} is {state}: {done}", file=sys.stderr)


@contextmanager
def notes_on_quarantine(arguments: list[str]) -> Iterator[None]:
    """Print what is moved to quarantine while a command runs. `doctor` reports it itself."""
    if arguments[:1] == ["doctor"]:
        yield
        return
    notes, logger = _Notes(logging.WARNING), logging.getLogger(ROOT)
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
