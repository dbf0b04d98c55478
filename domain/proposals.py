"""What was proposed, and what became of it. Derived from the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from immutables import Map
from msgspec.structs import replace

from mnemolog.domain.event import TO_EVENT, ShownAt
from mnemolog.domain.events import Act, ProposalDecided, ProposalMade, RecordedEvent
from mnemolog.domain.facts import stream_scope
from mnemolog.domain.result import Result
from mnemolog.domain.scope import Scope
from mnemolog.domain.stream_fold import Past
from mnemolog.domain.values import Micros, Position, UtcTime, to_datetime

OPEN_MAX: Final = 1_000
"""Proposals of one scope that wait at the same time."""
OPEN_OF_ACTOR_MAX: Final = 100
"""Those of them that one actor made."""

ProposalState = Literal["open", "approved", "declined", "expired"]


class Proposal(Result, frozen=True, kw_only=True):
    """An act that was proposed, and what became of it."""

    called_by = "position"

    position: Position
    """Of its event."""
    scope: Scope
    state: ProposalState = "open"
    act: Act | None = None
    """What was proposed; None if that was forgotten."""
    why: str = ""
    because: tuple[Annotated[Position, TO_EVENT], ...] = ()
    """The positions of the turns that it rests on."""
    until: UtcTime | None = None
    """When it expires; None for never."""
    proposed_at: UtcTime | None = None
    proposed_by: str = ""
    """Empty if no actor was given."""
    decided_at: UtcTime | None = None
    decided_by: str = ""
    """Who approved or declined it; empty if no actor was given."""
    reason: str = ""
    """Why it was declined."""
    done: Annotated[Position, TO_EVENT] | None = None
    """The position of the event that did it: for `Forget` of the request."""
    now: Any = None
    """While it is open: the value that the key has, or what the standing statements of the turn say."""
    then: Any = None
    """What that would be once it is approved."""
    now_at: ShownAt | None = None
    """The position of the assertion or the turn that `now` comes from."""
    takes: dict[str, int] | None = None
    """While it is open: what would be forgotten, by topic, or how many `turns and facts` would be distrusted."""

    def at(self, now: Micros) -> Proposal:
        """Return it as it is at a time: it may have expired."""
        is_over = self.state == "open" and self.until is not None and self.until <= to_datetime(now)
        return replace(self, state="expired") if is_over else self

    def _shown(self) -> Iterable[str]:
        yield from (f"@{self.position}", self.state, f"by {self.proposed_by!r}", repr(self.act))


Proposals = Map[Position, Proposal]
"""The proposals of one scope by position, in no order."""
NO_PROPOSALS: Final[Proposals] = Map()


def evolve_proposals(state: Proposals | None, recorded: RecordedEvent, _past: Past[Proposals]) -> Proposals | None:
    """Return the proposals of a scope after an event of its stream."""
    known = state or NO_PROPOSALS
    event = recorded.event
    at = to_datetime(recorded.recorded_at)
    scope = Scope(stream_scope(recorded.stream) or "")
    if isinstance(event, ProposalMade):
        made = Proposal(
            position=recorded.position,
            scope=scope,
            act=event.act,
            why=event.why,
            because=tuple(map(Position, event.because)),
            until=None if event.until is None else to_datetime(Micros(event.until)),
            proposed_at=at,
            proposed_by=event.actor,
        )
        return known.set(made.position, made)
    if isinstance(event, ProposalDecided):
        position = Position(event.proposal)
        decided = replace(
            known.get(position) or Proposal(position=position, scope=scope, proposed_by=event.proposed_by),
            state="approved" if event.approved else "declined",
            decided_at=at,
            decided_by=event.actor,
            reason=event.reason,
            done=event.done,
        )
        return known.set(position, decided)
    return known
