"""The sessions of a store, and the scopes and agents that they belong to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sized

from mnemolog.application.session_service import Sessions
from mnemolog.domain import errors
from mnemolog.domain.closest import closest
from mnemolog.domain.limits import LABEL_BYTES_MAX, checked_label, checked_text
from mnemolog.domain.moments import Time, parse_time
from mnemolog.domain.result import Results
from mnemolog.domain.scope import ROOT, parse_scope
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import AgentSummary, ScopeSummary, SessionSummary
from mnemolog.projections.sql import queries


class SessionList:
    """Lists sessions, as far as the store's own scope shows them."""

    def __init__(self, projections: ProjectionSet, sessions: Sessions) -> None:
        self._projections, self._sessions = projections, sessions

    def sessions(
        self, *, scope: str = "", agent: str | None = None, title: str | None = None, since: Time | None = None
    ) -> Results[SessionSummary]:
        """Return the sessions that match all filters. See `MemoryStore.sessions`."""
        within = self._sessions.boundary.narrow(parse_scope(scope))
        of = None if agent is None else checked_label("agent", agent)
        part = "" if title is None else checked_text("title", title, bytes_max=LABEL_BYTES_MAX).casefold()
        started = None if since is None else parse_time("since", since)
        views, _, stale = self._projections.to_answer()
        with views.database.reading() as connection:
            found = queries.sessions(connection, scope=within, agent=of, since=started)
        shown = Results(
            item for item in found if part in item.title.casefold() and self._sessions.shows_session(item.session)
        )
        shown.stale = stale
        return shown

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
        state = self._sessions.agent(agent)
        return state.current if state is not None and self._sessions.shows_session(state.current) else None

    def warn_if_empty(self, found: Sized, *scopes: str) -> None:
        """Warn the caller's caller, if nothing was found, of each scope that no session is at or below."""
        for scope in () if found else scopes:
            if scope == ROOT or self._holds(scope):
                continue
            known = [item.scope for item in self.scopes() if item.scope]
            there = f"the closest scopes: {', '.join(closest(scope, known))}" if known else "no session has a scope"
            why = f"no session is at or below the scope {scope!r}; {there}"
            warnings.warn(errors.ScopeWarning(why), stacklevel=3)

    def _holds(self, scope: str) -> bool:
        with self._projections.to_answer()[0].database.reading() as connection:
            return queries.has_sessions(connection, parse_scope(scope))


def _grouped(
    items: Iterable[SessionSummary], by: Callable[[SessionSummary], str]
) -> list[tuple[str, list[SessionSummary]]]:
    groups: dict[str, list[SessionSummary]] = {}
    for item in items:
        groups.setdefault(by(item), []).append(item)
    return sorted(groups.items())
