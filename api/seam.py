"""What an adapter with events of its own builds on: a store's log, clock and model, and tables that follow the log."""

from __future__ import annotations

from typing import TypeVar

from mnemolog import bootstrap
from mnemolog.domain.clock import Clock
from mnemolog.infra.log import EventLog
from mnemolog.projections.ports import Encoder
from mnemolog.projections.tables import Tables
from mnemolog.sessions import Sessions
from mnemolog.store import MemoryStore

Followed = TypeVar("Followed", bound=Tables)


def log_of(store: MemoryStore) -> EventLog:
    """Return the log of a store, to append to streams of the adapter's own, and to read them."""
    return store._log


def sessions_of(store: MemoryStore) -> Sessions:
    """Return the sessions of a store: their states, and decisions on them."""
    return store._sessions


def clock_of(store: MemoryStore) -> Clock:
    """Return what says the time in a store."""
    return store._sessions.clock


def encoder_of(store: MemoryStore) -> Encoder | None:
    """Return the model that answers in a store, None where the store was opened without one.

    Raises `ModelMismatch` where one was activated that this process does not have.
    """
    return store._projections.vectors().encoder if store._projections.has_model else None


def open_tables(store: MemoryStore, file_name: str, kind: type[Followed]) -> Followed:
    """Open tables in a file of their own among the projections of a store. To be closed before the store."""
    return bootstrap.open_tables(store.path, log_of(store), file_name, kind)
