"""Look up sessions of transcripts in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mnemolog.adapters.importers.transcripts.file_offsets import SIDE, Anchor
from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.adapters.support.reconcile import turns_after
from mnemolog.adapters.support.store_access import known_session, log_of, visible_of
from mnemolog.domain.events import RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.message import ROLES, Role
from mnemolog.domain.position import NO_STREAM, ORIGIN, Position
from mnemolog.domain.session import session_of, session_stream
from mnemolog.domain.state import SessionState
from mnemolog.domain.switching import agent_stream
from mnemolog.store import MemoryStore


class StoreLookup:
    """Looks up the sessions of a store, recorded by transcripts or not."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.log = store, log_of(store)
        self._all: list[str] = []
        self._sides: dict[str, list[str]] = {}
        self._read_to: Position = ORIGIN

    def refresh(self) -> None:
        """Add the sessions that were started since the last call."""
        head = self.log.head().position
        for stream in self.log.streams_with(SessionStarted.topic, after=self._read_to, upto=head):
            session = session_of(stream) or ""
            self._all.append(session)
            if SIDE in session:
                self._sides.setdefault(session.partition(SIDE)[0], []).append(session)
        self._read_to = head

    def of(self, session: str) -> list[str]:
        """Return the started sessions of a transcript's session: itself, and the branches that left it."""
        self.refresh()
        own = [session] if self.log.first_event(session_stream(session)) is not None else []
        return own + self._sides.get(session, [])

    def head(self) -> Position:
        """Return the position of the log's head."""
        return self.log.head().position

    def ancestors(self, session: str) -> Sequence[str]:
        """Return the sessions that a session was branched from, directly or not, root first."""
        return self._state(session).ancestors

    def at(self, session: str, key: str) -> Position | None:
        """Return the position of a turn in a session, None if it has no such turn."""
        return self.log.position_of(session_stream(session), key)

    def anywhere(self, key: str) -> str | None:
        """Return the session that was the first to have a turn."""
        with self.log.reading() as reads:
            found = reads.first_stream_with(key, [session_stream(session) for session in self._all])
        return session_of(found) if found is not None else None

    def inherited(self, session: str, key: str) -> str | None:
        """Return the ancestor that has a turn, recorded before the session branched off."""
        state = self._state(session)
        seen_to = self.head()
        for ancestor in reversed(state.ancestors):
            # Turns after the branch point are never inherited, no matter when this session began.
            seen_to = min(seen_to, Position(state.started.branched_at or 0))
            found = self.at(ancestor, key)
            if found is not None and found <= seen_to:
                return ancestor
            state = self._state(ancestor)
        return None

    def reached(self, session: str, key: str) -> Anchor | None:
        """Return a turn that is the session's own or inherited, in the session that has it."""
        holder = self.inherited(session, key) or session
        at = self.at(holder, key)
        return None if at is None else Anchor(holder, key, at)

    def end_of_line(self, anchor: Anchor) -> Position | None:
        """Return the position of the last turn of a line, None if it is not in the log."""
        if anchor.at:
            return Position(anchor.at)
        if not anchor.key:
            return None
        found, number = self.at(anchor.session, anchor.key), 2
        while found is not None and (more := self.at(anchor.session, f"{anchor.key}/{number}")) is not None:
            found, number = more, number + 1
        return found

    def sees(self, session: str, other: str, position: Position) -> bool:
        """Whether a session sees a turn, of another session or its own."""
        return any(span.holds(other, position) for span in self._state(session).spans)

    def user_spoke_after(self, session: str, position: Position) -> bool:
        """Whether the session sees a turn of a user after a position."""
        return any(turn.role is Role.USER for turn in turns_after(known_session(self.store, session), position))

    def is_end(self, session: str, position: Position) -> bool:
        """Whether a session sees nothing after a position."""
        return not known_session(self.store, session).turns(after=position, limit=1)

    def turns(self, session: str, after: Position) -> Iterator[RecordedEvent]:
        """Yield the turns of a session and of its ancestors, hidden and forgotten ones included."""
        head, last = self.head(), self.log.event_at(after)
        for span in visible_of(self.store).spans(session, hidden=True):
            stream, upto = session_stream(span.session), head if span.upto is None else span.upto
            first = last.version if last is not None and last.stream == stream else NO_STREAM
            for events in self.log.read_stream(stream, after=first, upto=upto) if after < upto else ():
                later = (item for item in events if item.position > max(after, span.after))
                yield from (item for item in later if isinstance(item.event, TurnRecorded) or was_turn(item.event))

    def switched(self, agent: str, key: str) -> Position | None:
        """Return the position of the agent's switch with this key, None if it was not made."""
        return self.log.position_of(agent_stream(agent), key)

    def _state(self, session: str) -> SessionState:
        return visible_of(self.store).state(session)


def is_copy(said: ImportedTurn, turn: RecordedEvent) -> bool:
    """Whether a turn may be a copy of a recorded one. Of a forgotten one, at most the key tells the role."""
    if isinstance(turn.event, TurnRecorded):
        return (said.role, said.text) == (turn.event.role, turn.event.text)
    role = (turn.key or "").partition("/")[0].partition("@")[0]
    return role == said.role or role not in ROLES
