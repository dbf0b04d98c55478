"""Count what would be recorded, without recording it."""

from __future__ import annotations

from mnemolog.adapters.importers.transcript import Compacted, Entry
from mnemolog.adapters.importers.transcripts.lookup import StoreLookup
from mnemolog.adapters.importers.transcripts.report import Report


class Preview:
    """Counts turns and sessions that the log does not have; of the events between turns, only compactions."""

    def __init__(self, lookup: StoreLookup) -> None:
        self._lookup = lookup
        self._met: set[tuple[str, str]] = set()
        self._sessions: set[str] = set()
        self._diverged: set[str] = set()
        """Sessions with a turn of their own: what follows is not a copy."""

    def take(self, entry: Entry, report: Report) -> None:
        """Count the content of a line."""
        if isinstance(entry.move, Compacted):
            report.switched("compress")
        if not entry.turns:
            return
        if self._is_recorded(entry):
            report.already_there += len(entry.turns)
            return
        report.recorded += len(entry.turns)
        self._diverged.add(entry.session)
        if entry.session not in self._sessions and not self._lookup.of(entry.session):
            report.sessions += 1
        self._sessions.add(entry.session)

    def _is_recorded(self, entry: Entry) -> bool:
        key = entry.turns[0].key
        if not entry.recounted:
            met = ("", key) in self._met
            self._met.add(("", key))
            return met or self._lookup.anywhere(key) is not None
        sources = [entry.session]
        if entry.copied_from is not None and entry.session not in self._diverged:
            sources.append(entry.copied_from)
        there = any((name, key) in self._met or self._lookup.at(name, key) is not None for name in sources)
        self._met.add((entry.session, key))
        return there
