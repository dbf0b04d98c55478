"""A log in memory for tests of the domain: events get positions and times, and are stored as bytes and back."""

from collections.abc import Callable, Iterable
from typing import Any

from mnemolog.domain.events import Event, RecordedEvent, SessionStarted
from mnemolog.domain.session import SessionState, session_stream
from mnemolog.domain.values import Micros, Position, Version
from mnemolog.infra.log.event_codec import decode, encode
from tests.session_states import Histories
from tests.support import EPOCH_2024, turn


class MemoryLog:
    """Events of all streams in order. `now` is the time that the next event gets; a test may set it."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []
        self.now = Micros(EPOCH_2024)
        self.histories = Histories()
        self._versions: dict[str, int] = {}

    @property
    def head(self) -> Position:
        """The position of the last event."""
        return self.events[-1].position if self.events else Position(0)

    def head_of(self, session: str) -> Position:
        """The position of the last event of a session's stream."""
        stream = session_stream(session)
        return max((event.position for event in self.events if event.stream == stream), default=Position(0))

    def append(self, stream: str, event: Event) -> Position:
        """Append an event and return its position."""
        version = self._versions[stream] = self._versions.get(stream, 0) + 1
        recorded = RecordedEvent(
            position=Position(self.head + 1),
            stream=stream,
            version=Version(version),
            recorded_at=self.now,
            key=None,
            event=decode(event.topic, encode(event), position=1),
        )
        self.events.append(recorded)
        self.histories.apply(recorded)
        return recorded.position

    def start(self, session: str, *, parent: str | None = None, at: int | None = None) -> Position:
        """Start a session, of its own or as a branch of `parent` as of `at`."""
        reason = "new" if parent is None else "branch"
        started = SessionStarted(title=session, agent="assistant", reason=reason, parent=parent, branched_at=at)
        return self.append(session_stream(session), started)

    def say(self, session: str, text: str = "hello") -> Position:
        """Record a turn."""
        return self.append(session_stream(session), turn(text))

    def do(self, decision: Callable[..., Iterable[Event]], session: str, /, *args: Any, **options: Any) -> list[Event]:
        """Decide on the state of a session, append what follows and return it."""
        events = list(decision(session, self.find(session), *args, **options))
        for event in events:
            self.append(session_stream(session), event)
        return events

    def find(self, session: str) -> SessionState | None:
        """The state of a session, None where it was never started."""
        return self.histories.sessions.get(session)

    def __getitem__(self, session: str) -> SessionState:
        return self.histories.sessions[session]

    def turns_seen(self, session: str) -> list[int]:
        """The positions of the turns that lie in the session's spans."""
        return [
            event.position
            for event in self.events
            if event.event.topic == "turn.recorded.v1"
            and any(
                session_stream(span.session) == event.stream
                and span.after < event.position
                and (span.upto is None or event.position <= span.upto)
                for span in self[session].spans
            )
        ]
