"""The port of the interpreter to the log. `lookup` implements it for a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from mnemolog.adapters.importers.transcripts.place import Anchor
from mnemolog.domain.position import Position
from mnemolog.projections.read_models import Turn


class SessionLookup(Protocol):
    """Looks up sessions and turns. Every answer is as of the moment of the call."""

    def head(self) -> Position:
        """Return the position of the log's head."""
        ...

    def of(self, session: str) -> list[str]:
        """Return the started sessions of a transcript's session: itself, and the branches that left it."""
        ...

    def ancestors(self, session: str) -> Sequence[str]:
        """Return the sessions that a session was branched from, directly or not, root first."""
        ...

    def at(self, session: str, key: str) -> Position | None:
        """Return the position of a turn in a session, None if it has no such turn."""
        ...

    def anywhere(self, key: str) -> str | None:
        """Return the session that was the first to have a turn."""
        ...

    def inherited(self, session: str, key: str) -> str | None:
        """Return the ancestor that has a turn, recorded before the session branched off."""
        ...

    def reached(self, session: str, key: str) -> Position | None:
        """Return the position of a turn that is the session's own or inherited."""
        ...

    def end_of_line(self, anchor: Anchor) -> Position | None:
        """Return the position of the last turn of a line, None if it is not in the log."""
        ...

    def sees(self, session: str, other: str, position: Position) -> bool:
        """Whether a session sees a turn, of another session or its own."""
        ...

    def user_spoke_after(self, session: str, position: Position) -> bool:
        """Whether the session sees a turn of a user after a position."""
        ...

    def is_end(self, session: str, position: Position) -> bool:
        """Whether a session sees nothing after a position."""
        ...

    def turns(self, session: str, after: Position) -> Iterator[Turn]:
        """Yield the turns of a session and of its ancestors, hidden ones included."""
        ...

    def switched(self, agent: str, key: str) -> Position | None:
        """Return the position of the agent's switch with this key, None if it was not made."""
        ...
