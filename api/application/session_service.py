"""Start and end sessions, record turns, change working memory. Every change is one append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack

import msgspec

from mnemolog.application import commands
from mnemolog.application.switches import Agents
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors, session
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.limits import (
    INTEGER_MAX,
    TURNS_PER_CALL_MAX,
    MemoryLimits,
    check_count,
    checked_text,
)
from mnemolog.domain.message import EXAMPLE
from mnemolog.domain.moments import Time
from mnemolog.domain.position import Clock, Micros, Version
from mnemolog.domain.request import current_request_key
from mnemolog.domain.state import SessionState
from mnemolog.infra.log.transaction import Transaction
from mnemolog.results import NewTurn

Decision = Callable[[SessionState | None, Micros], list[Event]]
"""Returns the events to append, given a session's state and the current time; or raises."""


ATTEMPTS_MAX: Final = 100
Result = TypeVar("Result")


class Attributes(TypedDict, total=False):
    """Attributes of a session to get or to start; None for any."""

    agent: str | None
    scope: str | None
    title: str | None
    parent: session.SessionLike | None


class About(TypedDict, total=False):
    """What is recorded with a turn besides role and text."""

    speaker: str | None
    said_at: Time | None
    tool_calls: Sequence[Any]
    metadata: Mapping[str, Any] | None


class Sessions:
    """The sessions of one log."""

    def __init__(self, visible: VisibleEvents, agents: Agents, *, clock: Clock, limits: MemoryLimits) -> None:
        self._visible, self._states, self._agents = visible, visible.states, agents
        self._transact, self.clock, self.limits = visible.transact, clock, limits

    def start(self, given: session.SessionLike | None, **about: Unpack[Attributes]) -> tuple[str, SessionStarted]:
        """Start a session; return its id, random if none is given, and its start. Raises `SessionExists`."""
        chosen, started = self._startable(given, about)

        stream, key = session.session_stream(chosen), current_request_key()

        def start(tx: Transaction) -> SessionStarted:
            state = commands.new_state_in(tx, chosen, self._states)
            if state is not None and key is not None and tx.find(stream, key) is not None:
                return session.agreeing(
                    chosen,
                    state.started,
                    title=started.title or None,
                    agent=started.agent,
                    scope=started.scope,
                    parent=started.parent,
                )
            for event in session.start(chosen, state, started=started):
                tx.append(stream, event, key=key)
            return started

        return chosen, self._transact(start)

    def get_or_start(
        self, given: session.SessionLike | None, *, joins: bool = False, **about: Unpack[Attributes]
    ) -> tuple[str, SessionStarted]:
        """Return the id and the start of a session; start it if there is none: one append.

        Raises `SessionDiffers` for a session with other attributes, unless the caller `joins` it.
        """
        if title := about.get("title"):
            about["title"] = self._visible.log.redaction().text(title)
        if about.get("scope") is not None:
            about["scope"] = self._visible.boundary.one(about["scope"])
        if (parent := about.get("parent")) is not None:
            about["parent"] = self._visible.id_of(parent, "parent")

        def agreeing(state: SessionState) -> SessionStarted:
            if state.started.agent in self._visible.boundary.forms(about.get("agent") or ""):
                about["agent"] = state.started.agent
            return session.agreeing(state.session, self._visible.admitted(state.started), **({} if joins else about))

        if given is not None:
            known = self._states.id_of(session.session_id_of(given, "id"), about.get("scope"))
            if (state := self._states.latest(known)) is not None:
                return known, agreeing(state)
        chosen, wanted = self._startable(given, about)

        def get_or_start(tx: Transaction) -> SessionStarted:
            if (state := commands.new_state_in(tx, chosen, self._states)) is not None:
                return agreeing(state)  # Another process was faster.
            tx.append(session.session_stream(chosen), wanted)
            return wanted

        return chosen, self._transact(get_or_start)

    def _startable(self, given: session.SessionLike | None, about: Attributes) -> tuple[str, SessionStarted]:
        scope, parent = self._visible.boundary.one(about.get("scope")), about.get("parent")
        name = self._agents.new_session_name() if given is None else session.session_id_of(given, "id")
        chosen = session.checked_session_id(self._states.id_of(session.checked_session_id(name), scope))
        started = session.new_session(
            title=about.get("title") or "",
            agent=self._agents.own(about.get("agent"), scope),
            scope=scope,
            parent=None if parent is None else self._visible.state(session.session_id_of(parent, "parent")).session,
        )
        return chosen, self._visible.log.redaction().event(started)

    def end(self, session_id: str, *, reason: str) -> None:
        """End a session; ending it again changes nothing."""
        checked_text("reason", reason)
        self.decide(session_id, lambda state, _: session.end(session_id, state, reason=reason))

    def decide(self, session_id: str, decision: Decision) -> list[RecordedEvent]:
        """Append the events that `decision` returns for a session's state and the current time."""
        return self._transact(
            partial(
                commands.decide,
                session_id=self._states.id_of(session_id),
                states=self._states,
                decision=lambda state: decision(state, self.clock.now()),
                key=current_request_key(),
            )
        )

    def record(
        self,
        session_id: str,
        role: str | Mapping[str, Any],
        text: str | Sequence[Any] | None,
        *,
        key: str | None,
        **about: Unpack[About],
    ) -> commands.Recorded:
        """Record a turn, given as a role and a text or as one message. See `Session.record`."""
        session_id, key = self._states.id_of(session_id), current_request_key() if key is None else key
        if not isinstance(role, str):
            return self._transact(self._recording(NewTurn.of(role, session=session_id, text=text, key=key, **about)))
        if text is None and not about.get("tool_calls"):
            raise errors.InvalidInput("text", f'missing; write record("user", "Hello") or record({EXAMPLE})')
        turn = session.new_turn(role=role, text=text or "", **about)
        if key is not None:
            session.checked_key(key)
        return self._transact(
            partial(commands.record_turn, session_id=session_id, turn=turn, states=self._states, key=key)
        )

    def record_many(
        self,
        messages: Sequence[NewTurn | Mapping[str, Any]],
        *,
        session_id: str | None = None,
        reopen_ended: bool = False,
    ) -> list[commands.Recorded]:
        """Record messages of any sessions, in the order given, in one transaction. See `MemoryStore.record_many`.

        With `reopen_ended`, ended sessions are resumed for their turns and ended again.
        """
        check_count("messages", len(messages), limit=TURNS_PER_CALL_MAX, unit="messages")
        works: list[tuple[str, Callable[[Transaction], commands.Recorded]]] = []
        key = current_request_key()
        for place, message in enumerate(messages):
            try:
                new = NewTurn.of(message, session=session_id)
                if key is not None and new.key is None:
                    new = msgspec.structs.replace(new, key=f"{key}/{place}")
                works.append((self._visible.id_of(new.session), self._recording(new)))
            except errors.InvalidInput as error:
                error.at_place(f"messages[{place}]")
                raise
        if reopen_ended:
            return self._transact(lambda tx: commands.record_late(tx, works, self._states))
        return self._transact(lambda tx: [work(tx) for _, work in works])

    def rewrite(self, session_id: str, turns: Sequence[NewTurn]) -> None:
        """Hide all turns that a session sees and record these in their place, in one transaction."""
        works = [self._recording(new) for new in turns]

        def rewrite(tx: Transaction) -> None:
            commands.rewind(tx, session_id, self._states, to=None, turns=INTEGER_MAX)
            for work in works:
                work(tx)

        self._transact(rewrite)

    def _recording(self, new: NewTurn) -> Callable[[Transaction], commands.Recorded]:
        turn, key = checked_turn(new)
        session_id = self._visible.id_of(new.session)
        return partial(commands.record_turn, session_id=session_id, turn=turn, states=self._states, key=key)

    def record_behind(
        self, session_id: str, turns: Sequence[tuple[TurnRecorded, str | None]], *, expected: Version
    ) -> list[commands.Recorded]:
        """Record turns if the stream is still at version `expected`. Raises `WrongExpectedVersion`."""
        return self._transact(lambda tx: commands.record_behind(tx, session_id, turns, self._states, expected=expected))


def checked_turn(new: NewTurn) -> tuple[TurnRecorded, str | None]:
    """Return the event that records a turn, and its key. Raises `InvalidInput`, `LimitExceeded`."""
    turn = session.new_turn(
        role=new.role,
        text=new.text,
        speaker=new.speaker,
        said_at=new.said_at,
        tool_calls=new.tool_calls,
        metadata=new.metadata,
        original=new.original,
    )
    return turn, None if new.key is None else session.checked_key(new.key)


def retry_on_conflict(attempt: Callable[[], Result]) -> Result:
    """Return what `attempt` returns. `WrongExpectedVersion` is retried; that of the last attempt is raised."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return attempt()
        except errors.WrongExpectedVersion:
            continue
    return attempt()
