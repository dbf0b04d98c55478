"""WorkerPools: threads that do what a loop asks for, and tell it how that went."""

import asyncio
import gc
import threading

import pytest

from mnemolog import StoreClosed
from mnemolog.aio.wrappers import WorkerPool
from tests.support import WAIT_S, wait_until


def threads_of(pool):
    """The threads of a pool that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == f"mnemolog-{pool}"]


def raising(error):
    def work():
        raise error

    return work


async def test_work_is_begun_in_the_order_in_which_it_came():
    """With one thread it is done in that order."""
    done = []

    pool = WorkerPool("test", threads_max=1)
    await asyncio.gather(*(pool(lambda n=n: done.append(n)) for n in range(100)))
    pool.shut()
    assert pool.join() == []
    assert done == list(range(100))


async def test_there_are_no_more_threads_than_are_allowed_and_none_when_there_is_nothing_to_do():
    """The next work finds a new one."""
    pool, together = WorkerPool("three", threads_max=3, linger_s=0.0), threading.Barrier(3)
    for _ in range(3):
        await asyncio.gather(*(pool(lambda: together.wait(WAIT_S)) for _ in range(6)))
        assert len(threads_of("three")) <= 3
        await asyncio.to_thread(wait_until, lambda: not threads_of("three"), what="the end of the threads")


@pytest.mark.parametrize("how", ["cancelled in the same moment", "dropped"])
async def test_an_error_without_a_waiting_caller_reaches_no_other_caller(how):
    """Python would report it as never looked at."""
    reported, begun, free = [], threading.Event(), threading.Event()

    def fail():
        begun.set()
        assert free.wait(WAIT_S)
        raise ValueError("late")

    def cancel_when_it_has_failed(pool, task):
        # It holds up the loop, on purpose: the outcome is on its way there, and the cancellation comes right behind.
        assert begun.wait(WAIT_S)
        free.set()
        wait_until(lambda: not pool._running, what="the failure")
        asyncio.get_running_loop().call_soon(task.cancel)

    loop, pool = asyncio.get_running_loop(), WorkerPool("test", threads_max=1)
    loop.set_exception_handler(lambda _, context: reported.append(context))
    if how == "dropped":
        call = pool(fail)
        call.send(None)
        await asyncio.to_thread(begun.wait, WAIT_S)
        call.close()
        free.set()
    else:
        call = asyncio.create_task(pool(fail))
        loop.call_soon(cancel_when_it_has_failed, pool, call)
        await asyncio.wait([call])
        assert call.cancelled()
    assert await pool(int) == 0
    del call
    gc.collect()
    assert reported == []


@pytest.mark.parametrize(
    ("raised", "seen"), [(ValueError("x"), ValueError), (StopIteration(), RuntimeError), (SystemExit(3), SystemExit)]
)
async def test_whatever_the_work_raises_is_raised_where_it_was_asked_for(raised, seen):
    """`StopIteration` would never arrive, so it comes wrapped."""
    with pytest.raises(seen):
        await WorkerPool("test", threads_max=1)(raising(raised))


async def test_without_a_thread_nothing_is_left_in_the_queue(monkeypatch):
    """The system has no more of them; later it has."""
    pool = WorkerPool("test", threads_max=2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _: raising(RuntimeError("can't start new thread"))())
        with pytest.raises(RuntimeError, match="new thread"):
            await pool(int)
    assert await pool(int) == 0


def test_a_loop_that_is_gone_is_not_waited_for():
    """Its work is finished all the same, and the pool goes on."""
    begun, free = threading.Event(), threading.Event()
    done = []
    pool = WorkerPool("test", threads_max=1)

    def work():
        begun.set()
        assert free.wait(WAIT_S)
        done.append(1)

    async def leave():
        asyncio.create_task(pool(work))  # noqa: RUF006
        await asyncio.to_thread(begun.wait, WAIT_S)

    asyncio.run(leave())
    free.set()
    assert asyncio.run(pool(lambda: len(done))) == 1


@pytest.mark.parametrize("stops", [True, False])
async def test_what_waits_when_a_lane_is_shut_is_turned_away_or_done(stops):
    """And nothing more is taken."""
    begun, free = threading.Event(), threading.Event()
    pool = WorkerPool("test", threads_max=1, stops=stops)
    first = asyncio.create_task(pool(lambda: (begun.set(), free.wait(WAIT_S))))
    await asyncio.to_thread(begun.wait, WAIT_S)
    second = asyncio.create_task(pool(lambda: "done"))
    await asyncio.to_thread(wait_until, lambda: pool._queue, what="the second to wait")
    pool.shut()
    with pytest.raises(StoreClosed):
        await pool(int)
    free.set()
    await first
    if stops:
        with pytest.raises(StoreClosed):
            await second
    else:
        assert await second == "done"
