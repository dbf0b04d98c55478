"""Which names a log has, for names that are written in more than one way (`mnemolog.domain.spelling`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mnemolog.application.tokens import tokens_of
from mnemolog.domain.events import RETENTION_STREAM
from mnemolog.domain.retention import NO_RETENTION, evolve_retention
from mnemolog.domain.scope import Scope, covers
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.sql.database import fetch

_BELOW: Final = "{name} = ?1 OR ({name} >= ?1 || '/' AND {name} < ?1 || '0')"
_SCOPE: Final = " UNION ALL ".join(
    f"SELECT 1 FROM {table} WHERE {_BELOW.format(name='scope')}" for table in ("sessions", "fact_keys")
)
_KEY: Final = f"SELECT 1 FROM fact_keys WHERE scope = ?2 AND ({_BELOW.format(name='key')})"


class NamesInUse:
    """The scopes and the keys of facts of a log."""

    def __init__(self, log: EventLog, projections: ProjectionSet) -> None:
        self._log, self._projections = log, projections
        self.people: Callable[[], Iterable[str]] = tuple
        """Returns the scopes of the people whom a server knows."""

    def has_scope(self, name: str) -> bool:
        """Whether a session, a fact, a token, a person, a rule of retention or a hold is in a scope, or below it."""
        tokens = (scope for token in tokens_of(self._log) for scope in token.scopes)
        kept = self._log.fold(RETENTION_STREAM, evolve_retention).state or NO_RETENTION
        ruled = [rule.scope for rule in kept.rules] + [hold.scope for hold in kept.holds]
        bound = any(covers(Scope(name), Scope(scope)) for scope in (*self.people(), *tokens, *ruled))
        return bound or self._found(_SCOPE, name)

    def has_key(self, scope: str, name: str) -> bool:
        """Whether a fact of a scope has a key, or one below it."""
        return self._found(_KEY, name, scope)

    def _found(self, query: str, *names: str) -> bool:
        with self._projections.to_answer()[0].database.reading() as connection:
            return bool(fetch(connection, f"{query} LIMIT 1", *names))
