"""Cancelling what is awaited, and closing while something is: whole or not at all, and nothing is left held."""

import asyncio
import os
import threading
import time
from contextlib import suppress

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, StoreClosed
from mnemolog.adapters.support.store_access import with_pools
from mnemolog.aio.wrappers import RECALLERS_MAX, WRITERS_MAX
from tests.e2e.test_async_store import Held, own_threads, seen, texts, trip, until
from tests.e2e.test_projector import PROMPT_S, projector_threads
from tests.support import WAIT_S, HashEncoder, StuckEncoder, wait_until

pytestmark = pytest.mark.local


async def cancelled(*tasks):
    """Cancel tasks, and return when they are."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=WAIT_S)
    assert done == set(tasks)
    assert all(task.cancelled() for task in tasks)


async def closing_begins(store):
    """Return when the store refuses new work."""
    with suppress(StoreClosed):
        async with asyncio.timeout(WAIT_S):
            while await store.head():
                pass


async def test_a_call_that_has_not_begun_is_never_begun(folder):
    """All threads that write wait for somebody else's commit; the others are in line."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        await trip(store)
        held = Held(store)
        tasks = [asyncio.create_task(store.record("trip", "user", f"tea {n}")) for n in range(WRITERS_MAX + 20)]
        await held.waiting(WRITERS_MAX)
        await cancelled(*tasks[WRITERS_MAX:])
        held.let_go()
        await asyncio.gather(*tasks[:WRITERS_MAX])
    assert sorted(texts(folder)) == sorted(f"tea {n}" for n in range(WRITERS_MAX))


async def test_a_write_that_has_begun_is_whole_and_a_retry_finds_it(folder):
    """The cancellation comes at once, while the commit is still waited for."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        await trip(store)
        held = Held(store)
        task = asyncio.create_task(store.record("trip", "user", "tea", key="k"))
        await held.waiting(1)
        await cancelled(task)
        retry = asyncio.create_task(store.record("trip", "user", "tea", key="k"))
        await held.waiting(2)
        held.let_go()
        assert (await retry).position == 2
        await store.record("trip", "user", "more")
    assert texts(folder) == ["tea", "more"]


async def test_cancelled_at_any_moment_a_write_is_there_once_after_its_retry(folder, rng):
    """Several turns in one call, so that half of it would be seen; and nothing is left held."""
    async with AsyncMemoryStore.open(folder, model=None, synchronous="NORMAL") as store:
        await trip(store)

        def both(n):
            texts = (f"{n}a", f"{n}b")
            return store.record_many([NewTurn(session="trip", role="user", text=text, key=text) for text in texts])

        for round_ in range(20):
            tasks = [asyncio.create_task(both(round_ * 10 + n)) for n in range(10)]
            for _ in range(rng.randrange(4)):
                await asyncio.wait(tasks, timeout=rng.random() / 500)
            for task in rng.sample(tasks, 7):
                task.cancel()
            await asyncio.wait(tasks)
            halves = [text[-1] for text in await asyncio.to_thread(said, store)]
            assert halves.count("a") == halves.count("b")
        await asyncio.gather(*(both(n) for n in range(200)))
    assert sorted(texts(folder)) == sorted(f"{n}{half}" for n in range(200) for half in "ab")


def said(store):
    return [turn.text for turn in with_pools(store)[0].turns("trip", limit=10_000)]


async def test_a_recall_in_the_model_is_given_up_at_once_and_ends_before_the_next_batch(folder):
    """Its thread does no more for nobody; other recalls answer."""
    model = StuckEncoder("stuck")
    async with AsyncMemoryStore.open(folder, model=model, background=False) as store:
        session = await trip(store)
        await session.record("user", "stuck tea")
        limits = asyncio.timeout(None)

        async def ask():
            async with limits:
                await session.recall("first")

        task = asyncio.create_task(ask())
        await seen(model.entered)
        limits.reschedule(0)
        with pytest.raises(TimeoutError):
            await task
        others = [asyncio.create_task(session.recall("second")) for _ in range(RECALLERS_MAX + 1)]
        await until(lambda: len(own_threads("recalls")) == RECALLERS_MAX, what="recalls")
        await cancelled(*others)
        model.free.set()
        answer = await session.recall("tea", mode="vector", min_position=2, timeout_s=WAIT_S)
        assert answer.hits[0].text == "stuck tea"
        asked = {text for batch in model.calls for text in batch}
        assert not any("first" in text or "second" in text for text in asked)


class Slow(os.PathLike):
    """A path that is not told before `free` is set."""

    def __init__(self, path):
        self.path, self.asked, self.free = path, threading.Event(), threading.Event()

    def __fspath__(self):
        self.asked.set()
        assert self.free.wait(WAIT_S)
        return str(self.path)


@pytest.mark.parametrize("loop_is_gone", [True, False])
async def test_a_store_whose_opening_was_cancelled_is_closed(folder, loop_is_gone):
    """With all that it has started: the log holds turns, so a projector begins at once."""
    path = Slow(folder)

    async def opened():
        async with AsyncMemoryStore.open(path, model=HashEncoder()):
            raise AssertionError

    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip").record("user", "tea")
    task = asyncio.create_task(opened())
    await seen(path.asked)
    await cancelled(task)
    if not loop_is_gone:
        path.free.set()
        await until(lambda: not own_threads("door"), what="the end of the opening")
    path.free.set()
    wait_until(lambda: not (own_threads() or projector_threads()), what="the end of the threads")
    assert texts(folder) == ["tea"]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_close_waits_for_writes_however_often_it_is_cancelled(folder, times):
    """The body is cancelled, then its close is: both are seen, and nothing is lost."""
    stores, recorded, of_others = [], asyncio.Event(), set(own_threads())

    async def body():
        async with AsyncMemoryStore.open(folder, model=None) as store:
            stores.append(store)
            await trip(store)
            stores.append(Held(store))
            stores.append(asyncio.create_task(store.record("trip", "user", "tea")))
            recorded.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await recorded.wait()
    store, held, record = stores
    await held.waiting(1)
    for _ in range(times):
        task.cancel()
        await closing_begins(store)
    with pytest.raises(StoreClosed):
        await store.record("trip", "user", "late")
    assert not task.done()
    assert not record.done()
    held.let_go()
    assert (await record).text == "tea"
    await asyncio.wait([task])
    assert task.cancelled()
    assert set(own_threads("writes", "reads", "recalls", "background")) <= of_others
    assert texts(folder) == ["tea"]


async def test_a_close_does_not_wait_long_for_a_model_that_is_stuck(folder):
    """Recalls in it, behind it and waiting for a position are refused; its thread is abandoned, and harmless later."""
    model = StuckEncoder("stuck")

    async with AsyncMemoryStore.open(folder, model=model, background=False) as store:
        session = await trip(store)
        await session.record("user", "stuck tea")
        recalls = [asyncio.create_task(session.recall("tea", min_position=2, timeout_s=WAIT_S))]
        recalls += [asyncio.create_task(session.recall("tea")) for _ in range(RECALLERS_MAX + 3)]
        await seen(model.entered)
        began = time.monotonic()
    assert time.monotonic() - began < PROMPT_S
    for task in recalls:
        with pytest.raises(StoreClosed):
            await task
    assert own_threads("recalls")
    model.free.set()
    wait_until(lambda: not own_threads(), what="the end of the threads")
    assert texts(folder) == ["stuck tea"]
