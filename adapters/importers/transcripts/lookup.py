"""What the log knows of the sessions of transcripts: which there are, and in which of them a turn is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mnemolog.adapters.importers.transcripts.place import SIDE, Anchor
from mnemolog.adapters.support.store_access import log_of, sessions_of
from mnemolog.domain.agent import agent_stream
from mnemolog.domain.events import SessionStarted
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.role import Role
from mnemolog.domain.session import session_of, session_stream
from mnemolog.domain.state import SessionState
from mnemolog.projections.read_models import Turn
from mnemolog.store import MemoryStore

_PAGE: Final = 200
_COPIES_PAGE: Final = 500


class KnownSessions:
    """The sessions of a store, whoever started them."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.log = store, log_of(store)
        self._all: list[str] = []
        self._sides: dict[str, list[str]] = {}
        self._read_to: Position = ORIGIN

    def refresh(self) -> None:
        """Look for sessions that were started since the last time."""
        head = self.log.head().position
        for stream in self.log.streams_with(SessionStarted.topic, after=self._read_to, upto=head):
            session = session_of(stream) or ""
            self._all.append(session)
            if SIDE in session:
                self._sides.setdefault(session.partition(SIDE)[0], []).append(session)
        self._read_to = head

    def of(self, session: str) -> list[str]:
        """Return the lines of a transcript's session that were started: it, and those that left it."""
        self.refresh()
        own = [session] if self.log.first_event(session_stream(session)) is not None else []
        return own + self._sides.get(session, [])

    def head(self) -> Position:
        """Return where the log ends."""
        return self.log.head().position

    def ancestors(self, session: str) -> Sequence[str]:
        """Return the sessions that one was branched from, directly or not."""
        return self._state(session).ancestors

    def at(self, session: str, key: str) -> Position | None:
        """Return where a turn lies in a session, None if it is not there."""
        return self.log.position_of(session_stream(session), key)

    def anywhere(self, key: str) -> str | None:
        """Return the session that has a turn, the first one that had it."""
        found = self.log.first_stream_with(key, [session_stream(session) for session in self._all])
        return session_of(found) if found is not None else None

    def inherited(self, session: str, key: str) -> str | None:
        """Return the ancestor that has a turn which came before a session left it."""
        state = self._state(session)
        seen_to = self.head()
        for ancestor in reversed(state.ancestors):
            # What one said after its line had been left is inherited by nobody, whenever this session began.
            seen_to = min(seen_to, Position(state.started.branched_at or 0))
            found = self.at(ancestor, key)
            if found is not None and found <= seen_to:
                return ancestor
            state = self._state(ancestor)
        return None

    def reached(self, session: str, key: str) -> Position | None:
        """Return where a turn lies that is a session's own or came before it left its ancestors."""
        holder = self.inherited(session, key)
        return self.at(session if holder is None else holder, key)

    def end_of_line(self, anchor: Anchor) -> Position | None:
        """Return where the last turn of a line lies, None where it is not in the log."""
        if anchor.at:
            return Position(anchor.at)
        if not anchor.key:
            return None
        found, number = self.at(anchor.session, anchor.key), 2
        while found is not None and (more := self.at(anchor.session, f"{anchor.key}/{number}")) is not None:
            found, number = more, number + 1
        return found

    def sees(self, session: str, other: str, position: Position) -> bool:
        """Whether a turn of another session, or of its own, is visible to a session."""
        return any(span.holds(other, position) for span in self._state(session).spans)

    def asked_behind(self, session: str, position: Position) -> bool:
        """Whether a user speaks behind a position, as far as the session sees."""
        handle = self.store.session(session)
        while page := handle.turns(after=position, limit=_PAGE):
            if any(turn.role is Role.USER for turn in page):
                return True
            position = page[-1].position
        return False

    def is_end(self, session: str, position: Position) -> bool:
        """Whether a session sees nothing behind a position."""
        return not self.store.session(session).turns(after=position, limit=1)

    def turns(self, session: str, after: Position) -> Iterator[Turn]:
        """Yield what is said in a session and in those it was branched from, what is hidden too."""
        handle = self.store.session(session)
        while page := handle.turns(after=after, limit=_COPIES_PAGE, hidden=True):
            yield from page
            after = page[-1].position

    def switched(self, agent: str, key: str) -> Position | None:
        """Return where an agent's switch lies that carries a key, None if it was not made."""
        return self.log.position_of(agent_stream(agent), key)

    def _state(self, session: str) -> SessionState:
        return sessions_of(self.store).state(session)
