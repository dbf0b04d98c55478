"""The sessions of a store, and the scopes and agents that they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from mnemolog.application.switches import Agents
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.domain import errors
from mnemolog.domain.limits import INTEGER_MAX, checked_label, checked_text
from mnemolog.domain.moments import Time, When, parse_time, position_at
from mnemolog.domain.position import Position
from mnemolog.domain.result import Results
from mnemolog.domain.scope import Scope, covers, parse_scopes
from mnemolog.domain.similar_labels import closest
from mnemolog.infra.runtime.caller_warnings import warn
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import AgentSummary, ScopeSummary, SessionSummary
from mnemolog.projections.sql import queries, session_pages

if TYPE_CHECKING:
    from mnemolog.projections.sql.filtering import TurnTimes

_SILENT: Final[ContextVar[bool]] = ContextVar("mnemolog_no_scope_warnings", default=False)


@contextmanager
def without_scope_warnings() -> Iterator[None]:
    """Give no `ScopeWarning` within the block: for a server, whose callers see that nothing was found."""
    token = _SILENT.set(True)
    try:
        yield
    finally:
        _SILENT.reset(token)


class SessionList:
    """Lists sessions, as far as the store's own scope shows them."""

    def __init__(self, projections: ProjectionSet, visible: VisibleEvents, agents: Agents) -> None:
        self._projections, self._visible, self._agents = projections, visible, agents

    def sessions(
        self,
        *,
        scope: str | Sequence[str] = "",
        agent: str | None = None,
        title: str | None = None,
        since: Time | None = None,
    ) -> Results[SessionSummary]:
        """Return the sessions that match all filters. See `MemoryStore.sessions`."""
        within = self._visible.boundary.narrow(parse_scopes(scope))
        of = None if agent is None else self._visible.boundary.forms(checked_label("agent", agent))
        part = "" if title is None else checked_text("title", title).casefold()
        started = None if since is None else parse_time("since", since)
        views, _, stale = self._projections.to_answer()
        with views.database.reading() as connection:
            found = queries.sessions(connection, scopes=within, agents=of, since=started)
        shown = Results(
            item for item in found if part in item.title.casefold() and self._visible.shows_session(item.session)
        )
        shown.stale = stale
        return shown

    def page(
        self,
        *,
        agent: str | None = None,
        title: str = "",
        as_of: When | None = None,
        before: Position | None = None,
        after: Position | None = None,
        limit: int,
    ) -> list[SessionSummary]:
        """Return up to `limit` sessions that had started at `as_of`, a position or a time; the last ones first.

        They started before the position `before`; or with `after` they are the first ones that started after it, first
        to last. Numbers of turns are those of the moment. Raises `InvalidInput`.
        """
        which = session_pages.Which(
            scopes=self._visible.boundary.scopes,
            agents=None if agent is None else self._visible.boundary.forms(checked_label("agent", agent)),
            title=title and checked_text("title", title),
        )
        views, _, _ = self._projections.to_answer()
        moment = self._moment(as_of)
        with views.database.reading() as connection:
            # Sessions that the store's own scope does not show are read past, so a page is full all the same.
            found = session_pages.page(connection, which, as_of=moment, before=before, after=after, limit=INTEGER_MAX)
            shown = list(islice((item for item in found if self._visible.shows_session(item.session)), limit))
            return queries.with_said(connection, shown, upto=moment.position)

    def groups(self, by: session_pages.By, *, as_of: When | None = None) -> list[session_pages.Group]:
        """Return the numbers of sessions and turns at `as_of`, by scope or by agent. Raises `InvalidInput`."""
        within = self._visible.boundary.scopes
        if within:  # Without sessions that inherit from outside.
            items = _grouped(self.page(as_of=as_of, limit=INTEGER_MAX), attrgetter(by))
            count = session_pages.Group
            return [count(name=name, sessions=len(of), turns=sum(one.turns for one in of)) for name, of in items]
        views, _, _ = self._projections.to_answer()
        upto = self._moment(as_of).position
        with views.database.reading() as connection:
            return session_pages.groups(connection, by=by, scopes=within, upto=upto)

    def families(
        self,
        *,
        session: str = "",
        as_of: When | None = None,
        before: Position | None = None,
        limit: int,
    ) -> session_pages.Families:
        """Return sessions that are related by their parents, as of a moment: those of `session`, or the newest.

        See `session_pages.families`. Raises `InvalidInput`, `UnknownSession`.
        """
        within = self._visible.boundary.scopes
        if session:
            self._visible.state(session)
        views, _, _ = self._projections.to_answer()
        moment = self._moment(as_of)
        with views.database.reading() as connection:
            if session:
                found = session_pages.family(connection, session, as_of=moment, limit=limit)
            else:
                found = session_pages.families(connection, scopes=within, as_of=moment, before=before, limit=limit)
        return found._replace(sessions=[item for item in found.sessions if self._visible.shows_session(item.session)])

    @contextmanager
    def turn_times(self) -> Iterator[TurnTimes]:
        """Yield the turns that the store's own scope shows, with the times when they were recorded."""
        from mnemolog.projections.sql.filtering import TurnTimes  # Imports numpy.

        views, _, _ = self._projections.to_answer()
        with views.database.reading() as connection:
            yield TurnTimes(connection, self._visible.boundary.scopes)

    def _moment(self, as_of: When | None) -> session_pages.AsOf:
        log = self._visible.log
        position = log.head().position if as_of is None else position_at("as_of", as_of, log)
        return session_pages.AsOf(position, log.recorded_at(position))

    def scopes(self) -> Results[ScopeSummary]:
        """Return each scope with its sessions and turns. See `MemoryStore.scopes`."""
        sessions = self.sessions()
        found = Results(
            ScopeSummary(scope=scope, sessions=len(items), turns=sum(item.turns for item in items))
            for scope, items in _grouped(sessions, lambda item: item.scope)
        )
        found.stale = sessions.stale
        return found

    def agents(self) -> Results[AgentSummary]:
        """Return each agent with its sessions and turns. See `MemoryStore.agents`."""
        return Results(
            AgentSummary(
                agent=agent,
                sessions=len(items),
                turns=sum(item.turns for item in items),
                current=self._current(agent),
            )
            for agent, items in _grouped(self.sessions(), lambda item: item.agent)
        )

    def _current(self, agent: str) -> str | None:
        state = self._agents.state(agent)
        return state.current if state is not None and self._visible.shows_session(state.current) else None

    def warn_if_empty(self, found: Sized, scopes: str | Sequence[str]) -> None:
        """Warn the caller, if nothing was found, of each scope that no session is at or below."""
        if found or _SILENT.get() or not scopes:
            return
        with self._projections.to_answer()[0].database.reading() as connection:
            known = queries.scopes(connection, self._visible.boundary.scopes)
        for scope in parse_scopes(scopes):
            if not any(covers(scope, Scope(item)) for item in known):
                warn(scope_warning(scope, known))


def scope_warning(scope: str, scopes: Iterable[str]) -> errors.ScopeWarning:
    """Return the warning that no session is at or below `scope`; it names the closest of the `scopes` there are."""
    known = [item for item in scopes if item]
    there = f"the closest scopes: {', '.join(closest(scope, known))}" if known else "no session has a scope"
    return errors.ScopeWarning(f"no session is at or below the scope {scope!r}; {there}")


def _grouped(
    items: Iterable[SessionSummary], by: Callable[[SessionSummary], str]
) -> list[tuple[str, list[SessionSummary]]]:
    groups: dict[str, list[SessionSummary]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return sorted(groups.items())
