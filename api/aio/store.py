"""The store for asyncio, its sessions and its services: the API of the blocking ones, method by method."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from mnemolog.aio.wrappers import (
    AsyncWrapper,
    Attribute,
    WorkerPools,
    in_background_pool,
    in_pages,
    in_read_pool,
    in_recall_pool,
    in_write_pool,
    wrapped,
)
from mnemolog.audit.service import AuditService
from mnemolog.domain.values import Position, checked_number
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.recall.prefetch import (
    Outcome,
    PrefetchReason,
    PrefetchResult,
    Request,
    Stamp,
    Ticket,
)
from mnemolog.session import MemoryView, Session, SessionAt
from mnemolog.store import MemoryStore

P = ParamSpec("P")
View_co = TypeVar("View_co", bound=MemoryView, covariant=True)


class AsyncTicket(AsyncWrapper[Ticket]):
    """A recall running in the background. See `Ticket`."""

    stamp = Attribute[Stamp]()
    """When, at which position and for which session it was requested."""
    request = Attribute[Request]()
    """The request."""
    outcome = Attribute[Outcome | None]()
    """How it ended; None while it has not."""
    id = Attribute[int]()
    """Number of the ticket, from 1."""
    done = Attribute[bool]()
    """Whether it has ended, with or without an answer."""
    reason = Attribute[PrefetchReason | None]()
    """Why there is no answer; None while it runs, and if there was an answer."""
    error = Attribute[str | None]()
    """The error of the recall, if the reason is `failed`."""

    async def wait(self, timeout_s: float) -> bool:
        """Return True once it is done, False after `timeout_s` seconds. Blocks no thread while it waits."""
        loop = asyncio.get_running_loop()
        told = asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(told.set)

        self._of.when_done(tell)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await told.wait()
        return self.done

    async def cancel(self) -> None:
        """Cancel it. If it has not started it never runs; an answer not yet returned is discarded."""
        self._of.cancel()


class AsyncMemoryView(AsyncWrapper[View_co]):
    """Working memory, read-only. Methods are those of `MemoryView`."""

    id = Attribute[str]()
    """Id of the session."""

    get = in_read_pool(MemoryView.get)
    keys = in_read_pool(MemoryView.keys)
    all = in_read_pool(MemoryView.all)
    task = in_read_pool(MemoryView.task)
    notes = in_read_pool(MemoryView.notes)
    checkpoints = in_read_pool(MemoryView.checkpoints)
    lineage = in_read_pool(MemoryView.lineage)


class AsyncSessionAt(AsyncMemoryView[SessionAt]):
    """A session as it was at a position of the log. See `SessionAt`."""

    position = Attribute[Position]()
    """The position."""
    ended = Attribute[bool]()
    """Whether the session had ended."""

    turns = in_read_pool(SessionAt.turns)


class AsyncSession(AsyncMemoryView[Session]):
    """A conversation. See `Session`: same methods, arguments and errors, but awaitable."""

    title = Attribute[str]()
    """The title the session was started with; empty if it has none."""
    agent = Attribute[str]()
    """The agent the session was started for."""
    scope = Attribute[str]()
    """The scope the session was started in."""

    assert_fact = in_write_pool(Session.assert_fact)
    record = in_write_pool(Session.record)
    record_many = in_write_pool(Session.record_many)
    recall = in_recall_pool(Session.recall)
    context = in_recall_pool(Session.context)
    turns = in_read_pool(Session.turns)
    messages = in_read_pool(Session.messages)
    rewind = in_write_pool(Session.rewind)
    branch = wrapped(lambda of, pools: AsyncSession(of, pools), in_write_pool(Session.branch))
    end = in_write_pool(Session.end)
    at = wrapped(AsyncSessionAt, in_read_pool(Session.at))
    prefetch = wrapped(AsyncTicket, in_read_pool(Session.prefetch))

    set = in_write_pool(Session.set)
    delete = in_write_pool(Session.delete)
    clear = in_write_pool(Session.clear)
    set_task = in_write_pool(Session.set_task)
    update_task = in_write_pool(Session.update_task)
    note = in_write_pool(Session.note)
    clear_notes = in_write_pool(Session.clear_notes)
    checkpoint = in_write_pool(Session.checkpoint)
    restore = in_write_pool(Session.restore)
    delete_checkpoint = in_write_pool(Session.delete_checkpoint)

    async def prefetch_result(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to this session's newest prefetch, once, or why there is none. See `Session`.

        Blocks no thread while it waits. If it is cancelled while waiting, the answer stays available.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + checked_number("wait_s", wait_s)
        while True:
            taken = await self._take(max_behind=max_behind)
            left_s = end - loop.time()
            if taken.reason is not PrefetchReason.NOT_READY or taken.ticket is None or left_s <= 0:
                return taken
            await AsyncTicket(taken.ticket, self._pools).wait(left_s)

    _take = in_read_pool(Session.prefetch_result)


class AsyncAuditService(AsyncWrapper[AuditService]):
    """Shows the history of a store, compares it and exports it. See `AuditService`."""

    append_head = in_background_pool(AuditService.append_head)
    event = in_read_pool(AuditService.event)
    diff = in_background_pool(AuditService.diff)
    export = in_background_pool(AuditService.export)
    subject = in_background_pool(AuditService.subject)
    scan_secrets = in_background_pool(AuditService.scan_secrets)
    receipts = in_background_pool(AuditService.receipts)
    effects = in_background_pool(AuditService.effects)
    judge = in_write_pool(AuditService.judge)
    judgements = in_background_pool(AuditService.judgements)
    forgotten = in_background_pool(AuditService.forgotten)
    erasures = in_read_pool(AuditService.erasures)
    pending_erasures = in_read_pool(AuditService.pending_erasures)
    timeline = in_pages(AuditService.timeline)


class AsyncModelService(AsyncWrapper[ModelService]):
    """Lists, adds, activates and drops embedding models. See `ModelService`."""

    list = in_read_pool(ModelService.list)
    add = in_background_pool(ModelService.add)
    activate = in_background_pool(ModelService.activate)
    drop = in_background_pool(ModelService.drop)
    load = in_recall_pool(ModelService.load)


class AsyncQuarantine(AsyncWrapper[Quarantine]):
    """The quarantine of a store. See `Quarantine`."""

    folder = Attribute[Path]()
    """The folder of the quarantine."""

    items = in_read_pool(Quarantine.items)
    paths = in_read_pool(Quarantine.paths)
    status = in_read_pool(Quarantine.status)
    add = in_background_pool(Quarantine.add)
    delete = in_background_pool(Quarantine.delete)
    purge = in_background_pool(Quarantine.purge)


class AsyncAdminService(AsyncWrapper[AdminService]):
    """Keeps the projections of a store healthy and up to date. See `AdminService`."""

    doctor = in_background_pool(AdminService.doctor)
    quarantine = wrapped(AsyncQuarantine, in_read_pool(AdminService.quarantine))
    catch_up_views = in_background_pool(AdminService.catch_up_views)
    catch_up_vectors = in_background_pool(AdminService.catch_up_vectors)
    language = in_read_pool(AdminService.language)
    set_language = in_write_pool(AdminService.set_language)
    redaction = in_read_pool(AdminService.redaction)
    set_redaction = in_write_pool(AdminService.set_redaction)
    retention = in_read_pool(AdminService.retention)
    set_retention = in_write_pool(AdminService.set_retention)
    hold = in_write_pool(AdminService.hold)
    lift_hold = in_write_pool(AdminService.lift_hold)
    apply_retention = in_background_pool(AdminService.apply_retention)
    nodes = in_read_pool(AdminService.nodes)
    remove_node = in_read_pool(AdminService.remove_node)
    create_token = in_write_pool(AdminService.create_token)
    tokens = in_read_pool(AdminService.tokens)
    rotate_token = in_write_pool(AdminService.rotate_token)
    revoke_token = in_write_pool(AdminService.revoke_token)
    reapply_erasures = in_background_pool(AdminService.reapply_erasures)


class Opening:
    """A store to open: with `await`, or with `async with`, which also closes it."""

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
        pools = WorkerPools()
        return AsyncMemoryStore(await pools.startup(self._open, MemoryStore.close), pools)


def opening(open_: Callable[P, MemoryStore]) -> Callable[P, Opening]:
    """Make a function that returns a store return it for asyncio, to be used with `await` or `async with`."""

    def opened(*args: P.args, **kwargs: P.kwargs) -> Opening:
        return Opening(partial(open_, *args, **kwargs))

    return update_wrapper(opened, open_, updated=())


def _session_or_none(found: Session | None, pools: WorkerPools) -> AsyncSession | None:
    return None if found is None else AsyncSession(found, pools)


class AsyncMemoryStore(AsyncWrapper[MemoryStore]):
    """An agent's memory, for asyncio. See `MemoryStore`: same methods, arguments and errors, but awaitable.

    No call blocks the event loop. Calls run in the store's own threads, in separate pools for writes, reads, recalls
    and background work, in the context (`contextvars`) of the caller. Callbacks (an encoder, a clock, `progress`) are
    called there, not in the loop.

    A call that is cancelled before it starts never runs. A write that has started is completed, but its caller does
    not learn the outcome; a retry with the same `key` finds out. A started recall or background call stops at its
    next step. docs/async.md has the rules.

    Safe for several event loops, also in several threads. Concurrent calls run in no particular order.
    """

    def __init__(self, of: MemoryStore, pools: WorkerPools, *, is_part: bool = False) -> None:
        super().__init__(of, pools)
        self._is_part = is_part
        self.audit = AsyncAuditService(of.audit, pools)
        self.models = AsyncModelService(of.models, pools)
        self.admin = AsyncAdminService(of.admin, pools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._of.path)!r})"

    open = staticmethod(opening(MemoryStore.open))

    async def close(self) -> None:
        """Wait for running calls and close all files. Later calls raise `StoreClosed`.

        Writes and reads are completed first, however long they take. Recalls and background calls stop at their next
        step and raise `StoreClosed`; those still running after a second are abandoned, as `MemoryStore.close` does.
        If `close` itself is cancelled, it still closes the store, then raises the cancellation.
        """
        if self._is_part:
            await self._pools.read(self._of.close)
        else:
            await self._pools.close(self._of.close)

    def within(self, scope: str | Sequence[str]) -> Self:
        """Return this store as `open(scope=)` does, at once and in the same threads. See `MemoryStore.within`."""
        return type(self)(self._of.within(scope), self._pools, is_part=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    path = Attribute[Path]()
    """The folder of the store."""

    start_session = wrapped(AsyncSession, in_write_pool(MemoryStore.start_session))
    session = wrapped(AsyncSession, in_write_pool(MemoryStore.session))
    find_session = wrapped(_session_or_none, in_read_pool(MemoryStore.find_session))
    end_session = in_write_pool(MemoryStore.end_session)
    find = in_background_pool(MemoryStore.find)
    assert_fact = in_write_pool(MemoryStore.assert_fact)
    retract_fact = in_write_pool(MemoryStore.retract_fact)
    retract_facts = in_write_pool(MemoryStore.retract_facts)
    fact = in_read_pool(MemoryStore.fact)
    facts = in_read_pool(MemoryStore.facts)
    fact_history = in_read_pool(MemoryStore.fact_history)
    record = in_write_pool(MemoryStore.record)
    record_many = in_write_pool(MemoryStore.record_many)
    recall = in_recall_pool(MemoryStore.recall)
    context = in_recall_pool(MemoryStore.context)
    standing = in_recall_pool(MemoryStore.standing)
    sessions = in_read_pool(MemoryStore.sessions)
    scopes = in_read_pool(MemoryStore.scopes)
    agents = in_read_pool(MemoryStore.agents)
    turns = in_read_pool(MemoryStore.turns)
    switch = wrapped(AsyncSession, in_write_pool(MemoryStore.switch))
    preview_switch = in_write_pool(MemoryStore.preview_switch)
    current = wrapped(_session_or_none, in_read_pool(MemoryStore.current))
    events = in_pages(MemoryStore.events)
    head = in_read_pool(MemoryStore.head)
    position_at = in_read_pool(MemoryStore.position_at)
    replay = in_background_pool(MemoryStore.replay)
    distrust = in_write_pool(MemoryStore.distrust)
    trust_again = in_write_pool(MemoryStore.trust_again)
    end_standing = in_write_pool(MemoryStore.end_standing)
    distrusts = in_read_pool(MemoryStore.distrusts)
    propose = in_write_pool(MemoryStore.propose)
    proposals = in_read_pool(MemoryStore.proposals)
    approve = in_background_pool(MemoryStore.approve)
    decline = in_write_pool(MemoryStore.decline)
    forget = in_background_pool(MemoryStore.forget)
    backup = in_background_pool(MemoryStore.backup)
    verify = in_background_pool(MemoryStore.verify)
    status = in_read_pool(MemoryStore.status)
    rebuild = in_background_pool(MemoryStore.rebuild)
