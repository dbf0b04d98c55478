"""The store for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from datetime import datetime
from functools import partial, update_wrapper
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from mnemolog.aio.session import AsyncSession
from mnemolog.aio.worker_pools import Lanes
from mnemolog.aio.wrappers import Face, chores, gives, reads, recalls, writes
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.switching import SwitchReason
from mnemolog.projections.history.timeline import Moment
from mnemolog.projections.ports import Progress
from mnemolog.projections.quarantine import Quarantine
from mnemolog.store import MemoryStore

EVENTS_PER_CALL: Final = 500
"""As many as the log reads at once."""

P = ParamSpec("P")
Item = TypeVar("Item")


class AsyncQuarantine(Face[Quarantine]):
    """The quarantine of a store. See `Quarantine`."""

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self._of.folder

    items = reads(Quarantine.items)
    status = reads(Quarantine.status)
    add = chores(Quarantine.add)
    purge = chores(Quarantine.purge)


class Opening:
    """A store to be opened: by `await`, or by `async with`, which closes it as well."""

    def __init__(self, open_: Callable[[], MemoryStore]) -> None:
        self._open = open_
        self._store: AsyncMemoryStore | None = None

    def __await__(self) -> Generator[Any, None, AsyncMemoryStore]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncMemoryStore:
        self._store = await self._opened()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()

    async def _opened(self) -> AsyncMemoryStore:
        lanes = Lanes()
        return AsyncMemoryStore(await lanes.open(self._open, MemoryStore.close), lanes)


def _opening(open_: Callable[P, MemoryStore]) -> Callable[P, Opening]:
    def opening(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(partial(open_, *args, **kwargs))

    return update_wrapper(opening, open_)


class AsyncMemoryStore(Face[MemoryStore]):
    """An agent's memory, for asyncio. See `MemoryStore`: methods, arguments and errors are the same, to be awaited.

    No call blocks the event loop. Calls go to threads of the store's own, those that write, read, recall and do
    chores apart, in the context (`contextvars`) of the caller. What is given to be called (an encoder, a clock,
    `progress`, `told`) is called there, not in the loop.

    A call that is cancelled before it has begun never begins. One that has begun goes on unheard: a write is then
    whole, and whether it was made is unknown, unless a retry with the same `key` asks. A recall or a chore stops
    at its next step. docs/async.md has the rules.

    Safe for several event loops, also in several threads. Calls made at the same time are done in no given order.
    """

    open = staticmethod(_opening(MemoryStore.open))

    async def close(self) -> None:
        """Wait for calls in flight and close all files. What is called after this raises `StoreClosed`.

        Writes and reads are done first, however long they take. Recalls and chores stop at their next step and
        raise `StoreClosed`; those that have not stopped after a second are abandoned, as what `MemoryStore.close`
        waits for is. Cancelled meanwhile, it closes all the same and is cancelled then.
        """
        await self._lanes.close(self._of.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def path(self) -> Path:
        """The folder of the store."""
        return self._of.path

    start_session = gives(AsyncSession, writes(MemoryStore.start_session))
    session = gives(AsyncSession, reads(MemoryStore.session))
    end_session = writes(MemoryStore.end_session)
    record = writes(MemoryStore.record)
    append_turn = writes(MemoryStore.append_turn)
    record_many = writes(MemoryStore.record_many)
    import_files = chores(MemoryStore.import_files)
    recall = recalls(MemoryStore.recall)
    load_model = recalls(MemoryStore.load_model)
    audit_recalls = chores(MemoryStore.audit_recalls)
    sessions = reads(MemoryStore.sessions)
    find_session = reads(MemoryStore.find_session)
    turns = reads(MemoryStore.turns)
    enter = gives(AsyncSession, writes(MemoryStore.enter))
    preview_switch = writes(MemoryStore.preview_switch)
    head = reads(MemoryStore.head)
    note_head = chores(MemoryStore.note_head)
    event = reads(MemoryStore.event)
    diff = chores(MemoryStore.diff)
    export = chores(MemoryStore.export)
    replay = chores(MemoryStore.replay)
    vectors = recalls(MemoryStore.vectors)

    models = reads(MemoryStore.models)
    add_model = chores(MemoryStore.add_model)
    activate_model = chores(MemoryStore.activate_model)
    drop_model = chores(MemoryStore.drop_model)

    forget = chores(MemoryStore.forget)
    forgotten = chores(MemoryStore.forgotten)
    erasures = reads(MemoryStore.erasures)
    reapply_erasures = chores(MemoryStore.reapply_erasures)

    backup = chores(MemoryStore.backup)
    verify = chores(MemoryStore.verify)
    status = reads(MemoryStore.status)
    watch_projector = reads(MemoryStore.watch_projector)
    doctor = chores(MemoryStore.doctor)
    quarantine = gives(AsyncQuarantine, reads(MemoryStore.quarantine))
    catch_up_views = chores(MemoryStore.catch_up_views)
    catch_up_vectors = chores(MemoryStore.catch_up_vectors)
    rebuild = chores(MemoryStore.rebuild)

    async def switch(
        self,
        to: str | None = None,
        *,
        reason: SwitchReason | str,
        session: AsyncSession | str | None = None,
        agent: str | None = None,
        at: int | None = None,
        turns: int | None = None,
        name: str | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> AsyncSession:
        """Switch an agent to the session `to`, as one append. See `MemoryStore.switch`; raises as that does."""
        left = session.id if isinstance(session, AsyncSession) else session
        switched = await self._lanes.write(
            partial(
                self._of.switch,
                to,
                reason=reason,
                session=left,
                agent=agent,
                at=at,
                turns=turns,
                name=name,
                scope=scope,
                key=key,
            )
        )
        return AsyncSession(switched, self._lanes)

    async def current(self, agent: str = DEFAULT_AGENT) -> AsyncSession | None:
        """Return the session that the agent was last switched to, by any process; None before any switch.

        Raises `InvalidInput` for what cannot name an agent.
        """
        found = await self._lanes.read(partial(self._of.current, agent))
        return None if found is None else AsyncSession(found, self._lanes)

    async def events(self, *, after: Position = ORIGIN, upto: Position | None = None) -> AsyncIterator[RecordedEvent]:
        """Yield the events of `(after, upto]` in order; up to the head when `upto` is None."""
        async for event in self._pages(lambda: self._of.events(after=after, upto=upto)):
            yield event

    async def timeline(
        self,
        *,
        after: int = ORIGIN,
        upto: int | None = None,
        session: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        progress: Progress | None = None,
    ) -> AsyncIterator[Moment]:
        """Yield what happened, event by event, in words. See `MemoryStore.timeline`; raises as that does."""
        asked = partial(
            self._of.timeline,
            after=after,
            upto=upto,
            session=session,
            since=since,
            until=until,
            progress=progress,
        )
        async for moment in self._pages(asked):
            yield moment

    async def _pages(self, begin: Callable[[], Iterator[Item]]) -> AsyncIterator[Item]:
        items = await self._lanes.read(begin)
        while page := await self._lanes.read(lambda: list(islice(items, EVENTS_PER_CALL))):
            for item in page:
                yield item
