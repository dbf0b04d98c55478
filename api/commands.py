"""What a caller asks of the log, as units of work under its write lock.

Each runs alone, so its decision is made on the state it is written to: no conflict, no retry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mnemolog.domain import errors, session
from mnemolog.domain.events import RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.infra.transaction import Transaction


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A turn in the log. `deduplicated` when its key was there already and nothing was added."""

    event: RecordedEvent
    scope: str
    deduplicated: bool


class TurnToRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A checked turn with the session it goes to."""

    session: str
    turn: TurnRecorded
    key: str | None = None


def start_session(session_id: str, started: SessionStarted) -> Callable[[Transaction], SessionStarted]:
    """Start a session, or find it started in just this way."""

    def work(tx: Transaction) -> SessionStarted:
        stream = session.session_stream(session_id)
        for event in session.start(session_id, tx.fold(stream, session.evolve), started):
            tx.append(stream, event, expected=tx.version(stream))
        return started

    return work


def end_session(session_id: str, *, reason: str) -> Callable[[Transaction], None]:
    """End a session; ending it again adds nothing."""

    def work(tx: Transaction) -> None:
        stream = session.session_stream(session_id)
        for event in session.end(session_id, tx.fold(stream, session.evolve), reason=reason):
            tx.append(stream, event, expected=tx.version(stream))

    return work


def record_turns(turns: Sequence[TurnToRecord]) -> Callable[[Transaction], list[Recorded]]:
    """Record turns in the order given, all or none, each under the session it names."""
    return lambda tx: [record_turn(tx, item) for item in turns]


def record_turn(tx: Transaction, item: TurnToRecord) -> Recorded:
    """Record one turn, or find it recorded under its key."""
    stream = session.session_stream(item.session)
    state = tx.fold(stream, session.evolve)
    scope = "" if state is None else state.started.scope
    # A retry finds its turn even if the session has ended since.
    if item.key is not None and (known := tx.find(stream, item.key)) is not None:
        if known.event != item.turn:
            raise errors.DuplicateKey(stream=stream, key=item.key, position=known.position)
        return Recorded(event=known, scope=scope, deduplicated=True)
    session.record(item.session, state, item.turn)
    added = tx.append(stream, item.turn, expected=tx.version(stream), key=item.key)
    return Recorded(event=added, scope=scope, deduplicated=False)
