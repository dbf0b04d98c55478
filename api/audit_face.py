"""What an auditor asks of a store beside `verify`: heads kept elsewhere."""

from __future__ import annotations

from pathlib import Path

from mnemolog import maintenance
from mnemolog.domain.position import Position
from mnemolog.infra.log import EventLog
from mnemolog.results import HeadAt
from mnemolog.sessions import Sessions


class Auditing:
    """The part of a store's face that shows its history, compares it and hands it on."""

    path: Path
    _log: EventLog
    _sessions: Sessions

    def note_head(self, file: str | Path) -> HeadAt:
        """Append the head of the log to a file of heads (JSON Lines), for `verify(heads=file)` to ask each of them.

        Keep the file where those who may write the store may not write. It is durable on return. Raises
        `LogDamaged` where the last head in it contradicts the log, `WitnessUnreadable` for a line that is no head,
        `StoreNotWritable`: nothing was written.
        """
        noted = maintenance.note_head(self._log, Path(file), now=self._sessions.clock.now())
        return HeadAt(position=Position(noted.position), digest=noted.digest)
