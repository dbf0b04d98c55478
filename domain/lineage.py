"""The ancestors of a session, and the turns it sees: theirs up to the branch point, and its own.

It does not see turns of siblings, nor rewound turns. A branch keeps what it saw when it was created, whatever its
parent hides later.
"""

from __future__ import annotations

from collections.abc import Sequence

from mnemolog.domain.errors import OutsideSession
from mnemolog.domain.events import Event, RecordedEvent, SessionStarted, TurnsRewound
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import Position
from mnemolog.domain.session import opened, session_of
from mnemolog.domain.spans import Spans, cut, own
from mnemolog.domain.state import SessionState


def lineage(state: SessionState) -> tuple[str, ...]:
    """Return the ancestors of a session, root first, itself not included."""
    return state.ancestors


def unhidden(state: SessionState, beginnings: Sequence[RecordedEvent]) -> Spans:
    """Return what a session would see if nothing had ever been hidden.

    `beginnings` are the first events of its ancestors, root first. Their states are not needed.
    """
    chain = [(session_of(first.stream) or "", first.position, first.event) for first in beginnings]
    found: Spans = ()
    for session, position, event in [*chain, (state.session, state.started_position, state.started)]:
        at = event.branched_at if isinstance(event, SessionStarted) else None
        found = cut(found, upto=Position(0 if at is None else at)) + own(session, at=position)
    return found


def rewind(session_id: str, state: SessionState | None, *, to: int, head: Position) -> list[Event]:
    """Decide to hide every turn after the position `to`; no event if no visible turn is after it.

    `head` is the position of the last event in the session's stream, turns included. `to` must be in
    `[span.after, span.upto]` of a span of the session: the first position of its own span hides all of
    its own turns. Raises `UnknownSession`, `SessionAlreadyEnded`, `InvalidInput` or, for a position that is
    hidden, too early or not written yet, `OutsideSession`.
    """
    state = opened(session_id, state)
    target = checked_position("to", to)
    ends = [(span.after, head if span.upto is None else span.upto) for span in state.spans]
    last_seen = max((upto for after, upto in ends if upto > after), default=None)
    if target <= head and (last_seen is None or target >= last_seen):
        return []
    if not any(after <= target <= upto for after, upto in ends):
        raise OutsideSession(session_id, position=target, first=ends[0][0], last=last_seen or head)
    return [TurnsRewound(to=target)]


def last_seen(state: SessionState, position: Position, *, head: Position) -> Position:
    """Return the last position at or before `position` that a session sees; `position` if it saw nothing then.

    `head` is the position of the last event in the session's stream.
    """
    ends = [(span.after, head if span.upto is None else span.upto) for span in state.spans]
    return max((Position(min(position, upto)) for after, upto in ends if after <= position), default=position)
