"""Store internals for adapters: its sessions, model, threads and tables. Services are in `store.parts`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar, Unpack
from weakref import WeakKeyDictionary

from mnemolog.aio.store import AsyncMemoryStore, AsyncSession
from mnemolog.aio.wrappers import WorkerPools, run_in
from mnemolog.application.session_service import Attributes, Sessions, Switches, SwitchHow
from mnemolog.application.visible_events import VisibleEvents
from mnemolog.audit.exports import export_lines
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.export import encoded
from mnemolog.domain.values import ORIGIN, When
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.ports import Encoder
from mnemolog.projections.sql import opening
from mnemolog.projections.sql.database import TrackedTables
from mnemolog.session import Session
from mnemolog.store import MemoryStore

Answer = TypeVar("Answer")
Tables = TypeVar("Tables", bound=TrackedTables)

_POOLS: Final[WeakKeyDictionary[MemoryStore, WorkerPools]] = WeakKeyDictionary()


def log_of(store: MemoryStore) -> EventLog:
    """Return the log of a store, for streams of the adapter's own. Raises `OutsideScope` if it is open for a scope."""
    store.parts.boundary.require_none("the log")
    return store.parts.log


def trusted(store: MemoryStore, turns: Sequence[RecordedEvent]) -> list[RecordedEvent]:
    """Return those of these turns that are not distrusted now, without the calls of results that are, and vice versa.

    Providers refuse one without the other. Both have the same `call_id` in their metadata.
    """
    gone = store.parts.distrusts.among(turns)
    asked = [(turn, getattr(turn.event, "metadata", {}).get("call_id")) for turn in turns]
    lost = [call for turn, call in asked if turn.position in gone and call is not None]
    return [turn for turn, call in asked if turn.position not in gone and call not in lost]


def exported_lines(store: MemoryStore, *, after: When = ORIGIN, upto: When | None = None) -> Iterator[bytes]:
    """Return what `store.audit.export` writes, line by line. The lines raise `LogDamaged`; this as that method does."""
    first, last = store.audit._to_export(after, upto)
    return map(encoded, export_lines(store.parts.log, after=first, upto=last))


def sessions_of(of: MemoryStore | Session) -> Sessions:
    """Return what records turns in a store, and starts and ends its sessions."""
    return (of._parts if isinstance(of, Session) else of.parts).sessions


def switches_of(of: MemoryStore | Session) -> Switches:
    """Return what switches agents between the sessions of a store, and rewinds sessions."""
    return (of._parts if isinstance(of, Session) else of.parts).switches


def visible_of(of: MemoryStore | Session) -> VisibleEvents:
    """Return what is visible of a store: sessions, and turns as they are in the log, with their originals."""
    return (of._parts if isinstance(of, Session) else of.parts).visible


def known_session(store: MemoryStore, session_id: str) -> Session:
    """Return a handle on a session that was started. Raises `UnknownSession`."""
    state = visible_of(store).state(session_id)
    return store._handle(state.session, state.started)


async def known_async_session(store: AsyncMemoryStore, session_id: str) -> AsyncSession:
    """Return a handle for asyncio on a session that was started. Raises `UnknownSession`."""
    return AsyncSession(await store._pools.read(partial(known_session, store._of, session_id)), store._pools)


def begin_session(store: MemoryStore, session_id: str, **defaults: Unpack[Attributes]) -> Session:
    """Return a handle on a session of any agent; start it with these attributes if there is none: one append."""
    return store._handle(*sessions_of(store).get_or_start(session_id, joins=True, **defaults))


def enter_session(store: MemoryStore, to: str | None, **how: Unpack[SwitchHow]) -> Session:
    """Switch as `MemoryStore.switch` does, but resume the session `to` where another process has just started it."""
    return store._entered(switches_of(store).switch(to, joins=to is not None, **how))


async def in_async_session(
    enter: Callable[..., Session], store: AsyncMemoryStore, name: str | None, **how: Any
) -> AsyncSession:
    """Return what `begin_session` or `enter_session` returns, for asyncio."""
    return AsyncSession(await store._pools.write(partial(enter, store._of, name, **how)), store._pools)


def with_pools(store: MemoryStore | AsyncMemoryStore) -> tuple[MemoryStore, WorkerPools]:
    """Return the blocking store, and its worker threads for event loops: one set for all callers."""
    if isinstance(store, AsyncMemoryStore):
        return store._of, store._pools
    return store, _POOLS.get(store) or _POOLS.setdefault(store, WorkerPools())


async def read(store: AsyncMemoryStore, work: Callable[[MemoryStore], Answer]) -> Answer:
    """Return what `work` reads from a store: any number of reads, in one of its threads for reads."""
    return await run_in("read", store, work)


def encoder_of(store: MemoryStore) -> Encoder | None:
    """Return the active model of a store, None if the store was opened without one.

    Raises `ModelMismatch` if this process does not have the active model.
    """
    return store.parts.projections.vectors().encoder if store.parts.projections.has_model else None


def open_tables(store: MemoryStore, file_name: str, kind: type[Tables]) -> Tables:
    """Open tables in a file of their own in the store's folder of projections. Close them before the store."""
    return opening.open_tables(
        store.parts.layout, log_of(store), file_name, kind, busy_timeout_s=log_of(store).busy_timeout_s
    )
