"""What interpreting a transcript needs from the log. `lookup` implements it for a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from mnemolog.adapters.importers.transcripts.place import Anchor
from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Turn


class Known(Protocol):
    """What the log has of sessions and turns. All of it is as of the moment it is asked."""

    def head(self) -> Position:
        """Return where the log ends."""
        ...

    def of(self, session: str) -> list[str]:
        """Return the lines of a transcript's session that were started: it, and those that left it."""
        ...

    def ancestors(self, session: str) -> Sequence[str]:
        """Return the sessions that one was branched from, directly or not."""
        ...

    def at(self, session: str, key: str) -> Position | None:
        """Return where a turn lies in a session, None if it is not there."""
        ...

    def anywhere(self, key: str) -> str | None:
        """Return the session that has a turn, the first one that had it."""
        ...

    def inherited(self, session: str, key: str) -> str | None:
        """Return the ancestor that has a turn which came before a session left it."""
        ...

    def reached(self, session: str, key: str) -> Position | None:
        """Return where a turn lies that is a session's own or came before it left its ancestors."""
        ...

    def end_of_line(self, anchor: Anchor) -> Position | None:
        """Return where the last turn of a line lies, None where it is not in the log."""
        ...

    def sees(self, session: str, other: str, position: Position) -> bool:
        """Whether a turn of another session, or of its own, is visible to a session."""
        ...

    def asked_behind(self, session: str, position: Position) -> bool:
        """Whether a user speaks behind a position, as far as the session sees."""
        ...

    def is_end(self, session: str, position: Position) -> bool:
        """Whether a session sees nothing behind a position."""
        ...

    def turns(self, session: str, after: Position) -> Iterator[Turn]:
        """Yield what is said in a session and in those it was branched from, what is hidden too."""
        ...

    def switched(self, agent: str, key: str) -> Position | None:
        """Return where an agent's switch lies that carries a key, None if it was not made."""
        ...
