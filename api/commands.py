"""What a caller asks of the log, as units of work under its write lock.

Each runs alone, so its decision is made on the state it is written to: no conflict, no retry.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mnemolog.domain import errors, session
from mnemolog.domain.events import RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.infra.transaction import Transaction


class Recorded(msgspec.Struct, frozen=True):
    """A turn in the log. `deduplicated` when its key was there already and nothing was added."""

    event: RecordedEvent
    scope: str
    deduplicated: bool


def start_session(session_id: str, started: SessionStarted) -> Callable[[Transaction], SessionStarted]:
    """Start a session, or find it started in just this way."""

    def work(tx: Transaction) -> SessionStarted:
        stream = session.session_stream(session_id)
        for event in session.start(session_id, tx.fold(stream, session.evolve), started):
            tx.append(stream, event)
        return started

    return work


def end_session(session_id: str, *, reason: str) -> Callable[[Transaction], None]:
    """End a session; ending it again adds nothing."""

    def work(tx: Transaction) -> None:
        stream = session.session_stream(session_id)
        for event in session.end(session_id, tx.fold(stream, session.evolve), reason=reason):
            tx.append(stream, event)

    return work


def record_turn(session_id: str, turn: TurnRecorded, *, key: str | None) -> Callable[[Transaction], Recorded]:
    """Record a turn, or find it recorded under its key with the same content."""
    stream = session.session_stream(session_id)

    def work(tx: Transaction) -> Recorded:
        state = tx.fold(stream, session.evolve)
        scope = "" if state is None else state.started.scope
        # A retry finds its turn even if the session has ended since.
        if key is not None and (known := tx.find(stream, key)) is not None:
            if known.event != turn:
                raise errors.DuplicateKey(stream=stream, key=key, position=known.position)
            return Recorded(known, scope, True)
        session.record(session_id, state, turn)
        return Recorded(tx.append(stream, turn, key=key), scope, False)

    return work
