"""Distrust sources, trust them again, and list what is distrusted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.clock import UtcTime, to_datetime
from mnemolog.domain.distrust import DISTRUST_STREAM, checked_reason, new_distrust
from mnemolog.domain.events import RecordedEvent, SourceDistrusted, SourceTrusted
from mnemolog.domain.moments import checked_position
from mnemolog.domain.position import Position
from mnemolog.domain.result import Result
from mnemolog.domain.scope import covered, parse_scopes
from mnemolog.domain.session import SessionLike
from mnemolog.infra.log.transaction import Transaction
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql import distrust as tables


class Distrust(Result, frozen=True, kw_only=True):
    """Sources of which nothing is shown as an answer."""

    position: Position | None
    """Of its event; None for one that was only tried (`dry_run`)."""
    at: UtcTime
    reason: str
    by: str = ""
    """Who distrusts; empty if none was named."""
    positions: tuple[Position, ...] = ()
    sessions: tuple[str, ...] = ()
    actor: str = ""
    maker: str = ""
    scopes: tuple[str, ...] = ()
    """Only what is at or below any of these; empty for everything."""
    covers: int
    """How many turns and facts are from these sources, without facts that only rest on them."""
    undone: Position | None = None
    """Where it ended; None while it lasts."""


class Distrusts:
    """What is distrusted in one log, as far as its boundary shows it."""

    def __init__(self, visible: VisibleEvents, projections: ProjectionSet) -> None:
        self._visible, self._projections, self._log = visible, projections, visible.log

    def distrust(
        self,
        *,
        positions: int | Iterable[int],
        session: SessionLike | Sequence[SessionLike],
        actor: str,
        maker: str,
        scope: str | Sequence[str],
        reason: str,
        dry_run: bool,
    ) -> Distrust:
        """Append that sources are distrusted. See `MemoryStore.distrust`."""
        sessions = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        event = new_distrust(
            turns=[positions] if isinstance(positions, int) else positions,
            sessions=[self._visible.id_of(item) for item in sessions],
            actor=actor,
            maker=maker,
            scopes=self._visible.boundary.narrow(parse_scopes(scope)),
            reason=reason,
        )
        self._visible.require(event.sessions, ())

        def work(tx: Transaction) -> RecordedEvent:
            self._visible.require_turns(tx, "positions", event.turns)
            return tx.append(DISTRUST_STREAM, event)

        recorded = self._visible.transact(work, dry_run=dry_run)
        with self._projections.current_views().database.reading() as connection:
            made = _distrust(recorded, event, tables.State(None, len(tables.covered(connection, event))))
        return msgspec.structs.replace(made, position=None) if dry_run else made

    def trust_again(self, distrust: int, *, reason: str) -> Distrust:
        """Append that a distrust has ended. See `MemoryStore.trust_again`."""
        position = checked_position("distrust", distrust)
        found = next((item for item in self.all() if item.position == position), None)
        if found is None:
            raise errors.InvalidInput("distrust", f"position {position} distrusts nothing")
        if found.undone is not None:
            return found
        ended = SourceTrusted(distrust=position, reason=checked_reason(reason) if reason else "")
        recorded = self._visible.transact(lambda tx: tx.append(DISTRUST_STREAM, ended))
        return msgspec.structs.replace(found, undone=recorded.position)

    def all(self) -> Iterator[Distrust]:
        """Yield every distrust that was made within the boundary, in order."""
        with self._projections.current_views().database.reading() as connection:
            states = tables.states(connection)
        within = self._visible.boundary.scopes
        for recorded in self._log.read_at(list(states)):
            event = recorded.event
            if isinstance(event, SourceDistrusted) and all(covered(within, item) for item in event.scopes or [""]):
                yield _distrust(recorded, event, states[recorded.position])

    def among(self, events: Sequence[RecordedEvent]) -> set[Position]:
        """Return the positions of those of these turns that are distrusted now."""
        if not self._log.version(DISTRUST_STREAM):
            return set()
        with self._projections.current_views().database.reading() as connection:
            return tables.among(connection, [item.position for item in events], self._log.head().position)


def _distrust(recorded: RecordedEvent, event: SourceDistrusted, state: tables.State) -> Distrust:
    return Distrust(
        position=recorded.position,
        at=to_datetime(recorded.recorded_at),
        by=event.actor,
        positions=tuple(map(Position, event.turns)),
        sessions=tuple(event.sessions),
        actor=event.appended_by,
        maker=event.maker,
        scopes=tuple(event.scopes),
        reason=event.reason,
        covers=state.covers,
        undone=state.undone,
    )
