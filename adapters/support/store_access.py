"""What adapters and `transcripts` build on beside a store's face: its log, sessions, clock, model, threads, tables."""

from __future__ import annotations

from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.worker_pools import WorkerPools
from mnemolog.application.session_service import Sessions
from mnemolog.domain.clock import Clock
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Encoder
from mnemolog.projections.recall.service import Recalls
from mnemolog.projections.sql import opening
from mnemolog.projections.sql.projection import SqlProjection
from mnemolog.session import Session
from mnemolog.store import MemoryStore

Followed = TypeVar("Followed", bound=SqlProjection)

_POOLS: Final[WeakKeyDictionary[MemoryStore, WorkerPools]] = WeakKeyDictionary()


def log_of(store: MemoryStore) -> EventLog:
    """Return the log of a store, to append to streams of the adapter's own, and to read them."""
    return store.parts.log


def sessions_of(of: MemoryStore | Session) -> Sessions:
    """Return the sessions of a store: what they see as it is in the log, originals of turns included."""
    return of._sessions if isinstance(of, Session) else of.parts.sessions


def recalls_of(session: Session) -> Recalls:
    """Return the recalls of the store that a session is in."""
    return session._recalls


def discard_prefetch(session: Session) -> None:
    """Drop what was prefetched for a session, whether or not it has been answered."""
    session._prefetcher.discard(session.id)


def with_pools(store: MemoryStore | AsyncMemoryStore) -> tuple[MemoryStore, WorkerPools]:
    """Return a store, and the threads in which event loops have its work done: one set, however many ask for it."""
    if isinstance(store, AsyncMemoryStore):
        return store._of, store._pools
    return store, _POOLS.get(store) or _POOLS.setdefault(store, WorkerPools())


def clock_of(store: MemoryStore) -> Clock:
    """Return what says the time in a store."""
    return store.parts.sessions.clock


def encoder_of(store: MemoryStore) -> Encoder | None:
    """Return the model that answers in a store, None where the store was opened without one.

    Raises `ModelMismatch` where one was activated that this process does not have.
    """
    return store.parts.projections.vectors().encoder if store.parts.projections.has_model else None


def open_tables(store: MemoryStore, file_name: str, kind: type[Followed]) -> Followed:
    """Open tables in a file of their own among the projections of a store. To be closed before the store."""
    return opening.open_tables(
        store.parts.layout, log_of(store), file_name, kind, busy_timeout_s=log_of(store).busy_timeout_s
    )
