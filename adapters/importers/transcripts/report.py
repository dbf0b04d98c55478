"""Counts of what was read and recorded."""

from __future__ import annotations

from typing import Final

import msgspec

from mnemolog.domain.errors import ImportRefused

REFUSED_LISTED_MAX: Final = 100


class Report(msgspec.Struct, kw_only=True):
    """The result of reading transcripts, or of a preview."""

    files: int = 0
    """Files with anything new."""
    lines: int = 0
    recorded: int = 0
    """Turns that were added to the log."""
    already_there: int = 0
    """Turns that were in the log before, copies from other sessions included."""
    sessions: int = 0
    """Sessions that were started."""
    switches: dict[str, int] = {}
    """By reason: `new`, `branch`, `compress`, `rewind`."""
    refused: int = 0
    """Lines that cannot be recorded."""
    refusals: list[str] = []
    """The first of those lines, with file, line and reason."""

    def refuse(self, error: ImportRefused) -> None:
        """Count a line that cannot be recorded."""
        self.refused += 1
        if len(self.refusals) < REFUSED_LISTED_MAX:
            self.refusals.append(str(error))

    def switched(self, reason: str) -> None:
        """Count a switch."""
        self.switches[reason] = self.switches.get(reason, 0) + 1

    @property
    def is_news(self) -> bool:
        """Whether anything changed that is worth reporting."""
        return bool(self.recorded or self.sessions or self.switches or self.refused)
