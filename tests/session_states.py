"""Sessions as tests see them: every state at every position, what is visible, a digest to compare states by."""

from bisect import bisect_right
from collections.abc import Iterable
from hashlib import sha256

from mnemolog.domain import errors
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.session import SessionState, encode_state, evolve, session_of
from mnemolog.domain.values import Position


class Histories:
    """Every state that every session was ever in, by position."""

    def __init__(self) -> None:
        self.sessions: dict[str, SessionState] = {}
        self._positions: dict[str, list[Position]] = {}
        self._states: dict[str, list[SessionState]] = {}

    def apply(self, recorded: RecordedEvent) -> None:
        """Take the next event of the log. Events must come in the order of their positions."""
        session = session_of(recorded.stream)
        if session is None:
            return
        before = self.sessions.get(session)
        after = evolve(before, recorded, self.past)
        if after is not None and after is not before:
            self.sessions[session] = after
            self._positions.setdefault(session, []).append(recorded.position)
            self._states.setdefault(session, []).append(after)

    def past(self, session: str, position: Position) -> SessionState:
        """Return the state of a session as of `position`. Raises `LogDamaged` where it had not started."""
        count = bisect_right(self._positions.get(session, []), position)
        if count == 0:
            raise errors.LogDamaged(f"session {session!r} had not started", position=position)
        return self._states[session][count - 1]


def fold_all(events: Iterable[RecordedEvent]) -> dict[str, SessionState]:
    """Return the state of every session after `events`: the whole log, or its beginning, in order."""
    histories = Histories()
    for recorded in events:
        histories.apply(recorded)
    return histories.sessions


def sees(state: SessionState, session: str, position: Position) -> bool:
    """Whether a turn of `session` at `position` is visible."""
    return any(span.holds(session, position) for span in state.spans)


def state_digest(state: SessionState) -> str:
    """Return the SHA-256 of a state's bytes, 64 hexadecimal digits."""
    return sha256(encode_state(state)).hexdigest()
