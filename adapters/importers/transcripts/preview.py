"""What would be recorded, counted without recording it."""

from __future__ import annotations

from mnemolog.adapters.importers.transcript import Compacted, Entry
from mnemolog.adapters.importers.transcripts.lookup import KnownSessions
from mnemolog.adapters.importers.transcripts.report import Report


class Preview:
    """Counts turns and sessions that the log does not have. Of what happens between turns, compactions alone."""

    def __init__(self, known: KnownSessions) -> None:
        self._known = known
        self._met: set[tuple[str, str]] = set()
        self._sessions: set[str] = set()
        self._goes_on: set[str] = set()
        """Sessions that have said something of their own: what follows is no copy."""

    def take(self, entry: Entry, report: Report) -> None:
        """Count what stands on a line."""
        if isinstance(entry.move, Compacted):
            report.switched("compress")
        if not entry.turns:
            return
        if self._is_there(entry):
            report.already_there += len(entry.turns)
            return
        report.recorded += len(entry.turns)
        self._goes_on.add(entry.session)
        if entry.session not in self._sessions and not self._known.of(entry.session):
            report.sessions += 1
        self._sessions.add(entry.session)

    def _is_there(self, entry: Entry) -> bool:
        key = entry.turns[0].key
        if not entry.recounted:
            met = ("", key) in self._met
            self._met.add(("", key))
            return met or self._known.anywhere(key) is not None
        sources = [entry.session]
        if entry.copied_from is not None and entry.session not in self._goes_on:
            sources.append(entry.copied_from)
        there = any((name, key) in self._met or self._known.at(name, key) is not None for name in sources)
        self._met.add((entry.session, key))
        return there
