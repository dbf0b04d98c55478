"""End what a user said of all answers to come. See `MemoryStore.end_standing`."""

from __future__ import annotations

from collections.abc import Callable

from mnemolog.application import commands
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.events import Event, FactAsserted, StandingEnded, TurnRecorded
from mnemolog.domain.limits import checked_text
from mnemolog.domain.message import Role
from mnemolog.domain.position import Position
from mnemolog.domain.request import current_request_key
from mnemolog.domain.standing import standing_in
from mnemolog.infra.log.transaction import Transaction


def ending(
    visible: VisibleEvents, position: int, *, reason: str, proposal: Position | None = None
) -> Callable[[Transaction], bool]:
    """Return the work that ends the standing statements of a turn, and returns whether they stood."""
    why_ended = checked_text("reason", reason)
    ended = StandingEnded(turn=position, reason=why_ended, proposal=proposal)
    found = visible.log.event_at(Position(position))
    if found is not None and isinstance(found.event, FactAsserted) and visible.shows_stream(found.stream):
        why = f"position {position} asserts the fact {found.event.key!r}; retract_fact takes it back"
        raise errors.InvalidInput("position", why)

    def work(tx: Transaction) -> bool:
        visible.require_turns(tx, "position", [position])
        turn = None if found is None else found.event
        says = isinstance(turn, TurnRecorded) and turn.role == Role.USER and any(standing_in(turn.text))
        if found is None or not says:
            raise errors.InvalidInput("position", f"what position {position} says is said of no other answer")
        before = (item.event for item in tx.events(found.stream, since=position))
        known = any(isinstance(event, StandingEnded) and event.turn == position for event in before)
        new: list[Event] = [] if known else [ended]
        return bool(commands.append_once(tx, found.stream, lambda: new, key=current_request_key()))

    return work
