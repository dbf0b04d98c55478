"""Sources that are distrusted, and standing statements that end: said once, and no longer to count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from mnemolog.application import commands
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.events import (
    DISTRUST_STREAM,
    Event,
    FactAsserted,
    RecordedEvent,
    SourceDistrusted,
    SourceTrusted,
    StandingEnded,
    TurnRecorded,
)
from mnemolog.domain.limits import checked_label, checked_text
from mnemolog.domain.message import Role
from mnemolog.domain.position import Position, UtcTime, checked_position, to_datetime
from mnemolog.domain.request import current_request_key
from mnemolog.domain.result import Result, name_of
from mnemolog.domain.scope import covered
from mnemolog.domain.standing import standing_in
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql import distrust as tables


class Distrust(Result, frozen=True, kw_only=True):
    """Sources of which nothing is shown as an answer."""

    called_by = "position"

    position: Position | None
    """Of its event; None for one that was only tried (`dry_run`)."""
    at: UtcTime
    source: SourceDistrusted
    """The event: turns, sessions, `appended_by` (an actor), maker, scopes, reason, and the actor who distrusts."""
    covers: int
    """How many turns and facts are from these sources, without facts that only rest on them."""
    undone: Position | None = None
    """Where it ended; None while it lasts."""


class Distrusts:
    """What is distrusted in one log, as far as its boundary shows it."""

    def __init__(self, visible: VisibleEvents, projections: ProjectionSet) -> None:
        self._visible = visible
        self._projections = projections
        self._log = visible.log

    def distrust(
        self, turns: Iterable[int], sessions: Iterable[str], *, actor: str, maker: str, reason: str, dry_run: bool
    ) -> Distrust:
        """Append that sources are distrusted. See `MemoryStore.distrust`."""
        source, work = self.distrusting(turns, sessions, actor=actor, maker=maker, reason=reason)
        made = self._visible.transact(work, dry_run=dry_run)
        return Distrust(
            position=None if dry_run else made.position,
            at=to_datetime(made.recorded_at),
            source=source,
            covers=self.covers(source),
        )

    def covers(self, source: SourceDistrusted) -> int:
        """Return how many turns and facts are of a source."""
        with self._projections.current_views().database.reading() as connection:
            return len(tables.covered(connection, source))

    def distrusting(
        self,
        turns: Iterable[int],
        sessions: Iterable[str],
        *,
        actor: str,
        maker: str,
        reason: str,
        proposal: Position | None = None,
    ) -> tuple[SourceDistrusted, Callable[[Transaction], RecordedEvent]]:
        """Return the event of a distrust, and the work that appends it."""
        source = SourceDistrusted(
            turns=sorted({checked_position("positions", position) for position in turns}),
            sessions=sorted(set(sessions)),
            appended_by=checked_label("actor", actor) if actor else "",
            maker=checked_label("maker", maker) if maker else "",
            scopes=list(self._visible.boundary.scopes),
            reason=checked_text("reason", reason),
            proposal=proposal,
        )
        if not (source.turns or source.sessions or actor or maker):
            raise errors.InvalidInput("positions", "say what to distrust: turns, sessions, an actor or a maker")
        self._visible.require(source.sessions, ())

        def work(tx: Transaction) -> RecordedEvent:
            self._visible.require_turns(tx, "positions", source.turns)
            return tx.append(DISTRUST_STREAM, source)

        return source, work

    def trust_again(self, distrust: Distrust | int, *, reason: str) -> Distrust:
        """Append that a distrust has ended. See `MemoryStore.trust_again`."""
        position = checked_position("distrust", name_of(distrust, Distrust, "distrust"))
        found = next((item for item in self.all() if item.position == position), None)
        if found is None:
            raise errors.InvalidInput("distrust", f"position {position} distrusts nothing")
        if found.undone is not None:
            return found
        ended = SourceTrusted(distrust=position, reason=reason and checked_text("reason", reason))
        return replace(found, undone=self._visible.transact(lambda tx: tx.append(DISTRUST_STREAM, ended)).position)

    def all(self) -> Iterator[Distrust]:
        """Yield every distrust that was made within the boundary, in order."""
        with self._projections.current_views().database.reading() as connection:
            states = tables.states(connection)
        within = self._visible.boundary.scopes
        for recorded in self._log.read_at(list(states)):
            position, source = recorded.position, recorded.event
            if isinstance(source, SourceDistrusted) and all(covered(within, item) for item in source.scopes or [""]):
                at, (undone, covers) = to_datetime(recorded.recorded_at), states[position]
                yield Distrust(position=position, at=at, source=source, covers=covers, undone=undone)

    def among(self, events: Sequence[RecordedEvent]) -> set[Position]:
        """Return the positions of those of these turns that are distrusted now."""
        if not self._log.version(DISTRUST_STREAM):
            return set()
        with self._projections.current_views().database.reading() as connection:
            return tables.among(connection, [item.position for item in events], self._log.head().position)


def ending(
    visible: VisibleEvents, position: int, *, reason: str, proposal: Position | None = None
) -> Callable[[Transaction], bool]:
    """Return the work that ends the standing statements of a turn, and returns whether they stood."""
    ended = StandingEnded(turn=position, reason=checked_text("reason", reason), proposal=proposal)
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
