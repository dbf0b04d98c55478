"""Reconstruct the store at any position, from the log alone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final

from mnemolog.domain.display import counted, dated, named
from mnemolog.domain.errors import UndecodableEvent
from mnemolog.domain.event import READ, TO_SESSION
from mnemolog.domain.events import Forgotten, RecordedEvent, SessionEnded, SessionResumed, SessionStarted, TurnRecorded
from mnemolog.domain.forgetting import was_turn
from mnemolog.domain.position import ORIGIN, Position, UtcTime, to_datetime
from mnemolog.domain.result import Result, brief
from mnemolog.domain.session import session_of
from mnemolog.domain.validation import NEVER_STARTED
from mnemolog.projections.ports import Log, Progress, ShownEvents, tell
from mnemolog.projections.read_models import Turn, turn_of

BATCH_MAX: Final = 1_000


class SessionReplay(Result, frozen=True, kw_only=True):
    """A session as of the position: its own turns, not those it shares with its parent."""

    session: str
    title: str
    agent: str
    scope: str
    parent: Annotated[str, TO_SESSION] | None
    branched_at: Position | None
    reason: str
    """Why it was started."""
    started_at: UtcTime
    started_position: Position
    ended_at: UtcTime | None
    turns: tuple[Turn, ...]
    forgotten: tuple[Position, ...] = ()
    """Where turns were whose content is forgotten."""

    def __str__(self) -> str:
        branched = f", {descent(self.parent, self.branched_at)}" if self.parent else ""
        ended = f", ended {dated(self.ended_at)}" if self.ended_at else ""
        forgotten = f", {len(self.forgotten):,} forgotten" if self.forgotten else ""
        turns = counted(len(self.turns), "turn")
        return f"{named(self.session, self.title)} in {self.scope or '/'}{branched}{ended}, {turns}{forgotten}"

    def _shown(self) -> Iterable[str]:
        return (brief(self.session), counted(len(self.turns), "turn"), f"scope={brief(self.scope)}")


class Replay(Result, frozen=True, kw_only=True):
    """The store as it was at `position`, and the digest that pins exactly this history.

    Printed, it is a heading, a line for each session, and the digest.
    """

    position: Position
    digest: str
    events: int
    sessions: Annotated[tuple[SessionReplay, ...], READ]

    def __str__(self) -> str:
        return "\n".join(self.held())

    def held(self) -> list[str]:
        """Return what was held at the position in words: a heading, a line for each session, the position's digest."""
        events = counted(self.events, "event")
        return [
            f"held at position {self.position}:{'' if self.position else ' nothing, it is before the first event'}",
            *(f"  {item}" for item in self.sessions),
            f"{events} up to position {self.position}, digest {self.digest}",
        ]

    def _shown(self) -> Iterable[str]:
        turns = sum(len(item.turns) for item in self.sessions)
        return (f"@{self.position}", *(counted(*of) for of in ((len(self.sessions), "session"), (turns, "turn"))))


class _Session:
    def __init__(self, recorded: RecordedEvent, started: SessionStarted) -> None:
        self.id = str(session_of(recorded.stream))
        self.recorded, self.started = recorded, started
        self.ended_at: datetime | None = None
        self.turns: list[Turn] = []
        self.forgotten: list[Position] = []


def replay(
    log: Log,
    shown: ShownEvents,
    *,
    to: Position,
    session: str | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Fold every event up to `to` (included), of one session or of all those that are `shown`.

    The state is that at the last event at or before `to`, and `Replay.position` is where that is.
    """
    sessions: dict[str, _Session] = {}
    position, count = ORIGIN, 0
    for position, batch in shown(after=ORIGIN, upto=to, batch_max=BATCH_MAX):
        for recorded in batch:
            if session is None or session_of(recorded.stream) == session:
                _apply(sessions, recorded)
                count += 1
        tell(progress, position, to)
    digest = log.digest_at(position) or b""
    return Replay(
        position=position,
        digest=digest.hex(),
        events=count,
        sessions=tuple(
            SessionReplay(
                session=found.id,
                title=found.started.title,
                agent=found.started.agent,
                scope=found.started.scope,
                parent=found.started.parent,
                branched_at=None if found.started.branched_at is None else Position(found.started.branched_at),
                reason=found.started.reason,
                started_at=to_datetime(found.recorded.recorded_at),
                started_position=found.recorded.position,
                ended_at=found.ended_at,
                turns=tuple(found.turns),
                forgotten=tuple(found.forgotten),
            )
            for found in sessions.values()
        ),
    )


def descent(parent: str | None, branched_at: int | None) -> str:
    """Return how a session descends from its parent, in words."""
    return f"for {parent}" if branched_at is None else f"branched at {branched_at} of {parent}"


def _apply(sessions: dict[str, _Session], recorded: RecordedEvent) -> None:
    match recorded.event:
        case SessionStarted() as started:
            sessions[recorded.stream] = _Session(recorded, started)
        case TurnRecorded():
            known = _started(sessions, recorded)
            known.turns.append(turn_of(recorded, session=known.id, scope=known.started.scope))
        case Forgotten() if was_turn(recorded.event):
            _started(sessions, recorded).forgotten.append(recorded.position)
        case SessionEnded():
            _started(sessions, recorded).ended_at = to_datetime(recorded.recorded_at)
        case SessionResumed():
            _started(sessions, recorded).ended_at = None


def _started(sessions: dict[str, _Session], recorded: RecordedEvent) -> _Session:
    """Return the session of an event. Raises `UndecodableEvent` if it was never started."""
    if (session := sessions.get(recorded.stream)) is None:
        raise UndecodableEvent(position=recorded.position, topic=recorded.event.topic, why=NEVER_STARTED)
    return session
