"""The queue of a process' appends, without a log behind it: order, groups, hand-over, interrupts, closing.

The condition that the projector and the indexer wait with: Ctrl-C at any line leaves it working. Work with a model
ends between two of its calls when it is told to, and nobody else's does. WorkerPools: threads that do what a loop
asks for, and tell it how that went.
"""

import asyncio
import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog import StoreClosed
from mnemolog.aio.wrappers import WorkerPool
from mnemolog.infra.embedding.encoder import ObjectEncoder, batches
from mnemolog.infra.log import group_commit
from mnemolog.infra.log.group_commit import GROUP_MAX, QUEUE_MAX, GroupCommit
from mnemolog.infra.runtime import cancellation, condition
from mnemolog.infra.runtime.condition import InterruptSafeCondition
from tests.interrupts import Interrupt, at_each_line, interrupted_when, line_of
from tests.support import WAIT_S, HashEncoder, in_thread, wait_until

CODE = {group_commit.__file__}


class Groups:
    """Runs groups as a writer would, and remembers them. `fail` makes the next groups raise."""

    def __init__(self):
        self.queue = GroupCommit(self.run)
        self.groups = []
        self.threads = []
        self.fail = []
        self.running = 0
        self.together_max = 0

    def run(self, group):
        self.running += 1
        self.together_max = max(self.together_max, self.running)
        try:
            self.groups.append(list(group))
            self.threads.append(threading.get_ident())
            if self.fail:
                error, settle = self.fail.pop(0)
                for request in group[:settle]:
                    self.settle(request)
                raise error
            for request in group:
                self.settle(request)
        finally:
            self.running -= 1

    def settle(self, request):
        try:
            request.result, request.error = request.work(None), None
        except Exception as error:
            request.error = error
        request.settled = True

    @property
    def waiting(self):
        return len(self.queue._queue)

    @property
    def waiting_for_room(self):
        return len(self.queue._room._waiters)

    def hold(self):
        """Occupy the queue. Call what is returned to let go; it returns when that request has returned."""
        entered, free = threading.Event(), threading.Event()

        def work(_):
            entered.set()
            assert free.wait(60)
            return "held"

        holder = in_thread(lambda: self.queue.submit(work))
        assert entered.wait(60)

        def let_go():
            free.set()
            return holder.result()

        return let_go

    def submit(self, value):
        """Submit from a thread of its own, and return when it is in the queue."""
        length = self.waiting
        outcome = in_thread(lambda: self.queue.submit(lambda _: value() if callable(value) else value))
        wait_until(lambda: self.waiting > length, what="a request in the queue")
        return outcome


@pytest.fixture
def groups():
    return Groups()


@pytest.fixture
def let_go(groups):
    """Lets the first group be written; until then all others wait."""
    return groups.hold()


def test_what_waits_is_written_in_groups_in_the_order_it_came(groups):
    """A lone request waits for no company. A group has a limit and runs in the thread of its first request."""
    assert [groups.queue.submit(lambda _, n=n: n) for n in range(3)] == [0, 1, 2]
    assert [len(group) for group in groups.groups] == [1, 1, 1]
    assert set(groups.threads) == {threading.get_ident()}
    let_go, ran, count = groups.hold(), [], GROUP_MAX + 10
    outcomes = [groups.submit(lambda n=n: ran.append(n) or n) for n in range(count)]
    let_go()
    assert [outcome.result() for outcome in outcomes] == list(range(count))
    assert ran == list(range(count))
    assert [len(group) for group in groups.groups[3:]] == [1, GROUP_MAX, 10]
    assert groups.threads[4] == outcomes[0].thread.ident


def test_one_group_runs_at_a_time(groups):
    """Sixteen threads, three thousand requests, never two groups at once, every answer to whom it belongs."""
    barrier = threading.Barrier(16)

    def many(name):
        barrier.wait()
        return [groups.queue.submit(lambda _, n=n: (name, n)) for n in range(200)]

    outcomes = [in_thread(lambda name=name: many(name)) for name in range(16)]
    assert [outcome.result() for outcome in outcomes] == [[(name, n) for n in range(200)] for name in range(16)]
    assert groups.together_max == 1
    assert sum(map(len, groups.groups)) == 16 * 200
    assert groups.waiting == 0


@pytest.mark.parametrize("settled", [0, 1, 3])
@pytest.mark.parametrize("error", [Interrupt, RuntimeError])
def test_what_an_interrupted_group_left_unsettled_runs_again(groups, error, settled, let_go):
    """Who leads gets the interrupt; the others are settled once, by this group or the next."""
    ran = []
    outcomes = [groups.submit(lambda n=n: ran.append(n) or n) for n in range(5)]
    groups.fail = [(error(), settled)]
    let_go()
    ran_by_leader = [0] if settled else []
    with pytest.raises(error):
        outcomes[0].result()
    assert [outcome.result() for outcome in outcomes[1:]] == [1, 2, 3, 4]
    assert ran == [*ran_by_leader, 1, 2, 3, 4], "each ran once, in order"
    assert groups.queue.submit(lambda _: "after") == "after"


def test_those_who_come_during_an_interrupted_group_stay_behind_its_rest(groups, let_go):
    """The order of the queue outlives an interrupt."""
    ran, late = [], []

    def come_late():
        ran.append(0)
        late.append(groups.submit(lambda: ran.append("late")))

    outcomes = [groups.submit(come_late), groups.submit(lambda: ran.append(1)), groups.submit(lambda: ran.append(2))]
    groups.fail = [(Interrupt(), 1)]
    let_go()
    with pytest.raises(Interrupt):
        outcomes[0].result()
    for outcome in outcomes[1:] + late:
        outcome.result()
    assert ran == [0, 1, 2, "late"]


def interrupted_while_waiting(groups):
    """Submit from this (the main) thread behind others, and interrupt it while it waits."""
    this, length = threading.get_ident(), groups.waiting

    def ready():
        wait_until(lambda: groups.waiting > length, what="the request in the queue")
        wait_until(lambda: waits_at_a_gate(this), what="the main thread waiting")

    with interrupted_when(ready):
        groups.queue.submit(lambda _: pytest.fail("the caller has gone"))


def waits_at_a_gate(thread):
    return "acquire" in line_of(thread)


def test_an_interrupt_of_one_who_waits_takes_its_request_back(groups, let_go):
    """It is not run, and nobody waits for it: whether it was in the middle, the next in line, or the only one."""
    first = groups.submit(1)
    interrupted_while_waiting(groups)
    last = groups.submit(3)
    let_go()
    assert (first.result(), last.result()) == (1, 3)
    assert [len(group) for group in groups.groups] == [1, 2]
    let_go = groups.hold()
    interrupted_while_waiting(groups)
    second = groups.submit(2)
    let_go()
    assert second.result() == 2
    let_go = groups.hold()
    interrupted_while_waiting(groups)
    let_go()
    assert groups.waiting == 0
    assert groups.queue.submit(lambda _: "next") == "next"
    in_thread(groups.queue.close).result()


def test_an_interrupt_of_one_whose_group_is_being_written_leaves_the_group_whole(groups, let_go):
    """Its outcome is the group's; the caller is gone, the others get theirs, also the one that it would have woken."""
    writing, go_on = threading.Event(), threading.Event()
    leader = groups.submit(lambda: (writing.set(), go_on.wait(60)) and "leader")
    ran, after = [], []
    this = threading.get_ident()

    def ready():
        wait_until(lambda: groups.waiting == 3, what="the request in the queue")
        after.append(groups.submit("after"))
        let_go()
        assert writing.wait(60)
        wait_until(lambda: waits_at_a_gate(this), what="the main thread waiting")

    with interrupted_when(ready):
        groups.queue.submit(lambda _: ran.append("mine"))
    behind = groups.submit("behind")
    go_on.set()
    assert (leader.result(5), after[0].result(5), behind.result(5), ran) == ("leader", "after", "behind", ["mine"])
    assert [len(group) for group in groups.groups] == [1, 3, 1]
    assert groups.waiting == 0


def test_an_interrupt_at_any_line_leaves_a_queue_that_works():
    """Wherever Ctrl-C hits the one who writes: the next request is served, and closing does not hang."""
    for interrupted in at_each_line(CODE, more_than=10):
        groups = Groups()
        groups.queue.submit(lambda _: None)
        interrupted(lambda queue=groups.queue: queue.submit(lambda _: "mine"))
        later = in_thread(lambda queue=groups.queue: queue.submit(lambda _: "next"))
        assert later.result(5) == "next"
        in_thread(groups.queue.close).result(5)


def follow(groups, came_through):
    """Submit from this thread as the second of a group of three, interrupted. Return the outcomes of the other two."""
    let_go = groups.hold()
    outcomes = [groups.submit("first")]

    def once_we_wait():
        wait_until(lambda: groups.waiting >= 3, what="three in the queue")
        outcomes.append(groups.submit("third"))
        let_go()

    helping = in_thread(once_we_wait)
    # Where it hit before we were in the queue, let another take our place.
    if not came_through(lambda: groups.queue.submit(lambda _: "second")) and groups.waiting == 2:
        outcomes.append(in_thread(lambda: groups.queue.submit(lambda _: "second")))
    helping.result()
    return outcomes


def test_an_interrupt_at_any_line_of_one_who_is_woken_wakes_the_next():
    """Those of a group wake one another: the interrupted one passes the waking on."""
    for interrupted in at_each_line(CODE, more_than=10):
        groups = Groups()
        assert {"first", "third"} <= {outcome.result() for outcome in follow(groups, interrupted)}
        later = in_thread(lambda queue=groups.queue: queue.submit(lambda _: "next"))
        assert later.result() == "next"
        in_thread(groups.queue.close).result()


def test_a_leader_waits_for_those_of_the_last_group_and_no_longer_than_writing_took(groups, let_go):
    """They come back in a moment: one group again. One who writes alone is not waited for by the next."""
    outcomes = [groups.submit(n) for n in range(3)]
    let_go()
    assert [outcome.result() for outcome in outcomes] == [0, 1, 2]
    assert 0 < groups.queue._patience_s <= group_commit.GATHER_S_MAX
    groups.queue._patience_s = 60
    again = [in_thread(lambda n=n: groups.queue.submit(lambda _: n)) for n in range(3)]
    assert [outcome.result() for outcome in again] == [0, 1, 2]
    groups.queue._patience_s = 0.001
    assert groups.queue.submit(lambda _: "alone") == "alone"
    groups.queue._patience_s = 60
    assert groups.queue.submit(lambda _: "again") == "again"
    assert [len(group) for group in groups.groups] == [1, 3, 3, 1, 1]


def test_a_full_queue_blocks_until_there_is_room(groups, monkeypatch):
    """Beyond `QUEUE_MAX` a caller waits for room, in the end everybody is served, in order."""
    assert QUEUE_MAX > GROUP_MAX
    monkeypatch.setattr(group_commit, "QUEUE_MAX", 8)
    let_go = groups.hold()
    ran = []
    inside = [groups.submit(lambda n=n: ran.append(n)) for n in range(7)]
    assert groups.waiting == 8
    begun = threading.Semaphore(0)

    def one_more(n):
        begun.release()
        return groups.queue.submit(lambda _: ran.append(n))

    outside = [in_thread(lambda n=n: one_more(n)) for n in range(7, 12)]
    for _ in outside:
        begun.acquire()
    wait_until(lambda: groups.waiting_for_room == 5, what="five that wait for room")
    assert groups.waiting == 8
    let_go()
    for outcome in inside + outside:
        outcome.result()
    assert ran[:7] == list(range(7))
    assert sorted(ran) == list(range(12))


def test_closing_serves_what_is_queued_and_refuses_what_comes_or_waits_for_room(groups, monkeypatch):
    """`close()`, in each of two threads, returns when everything accepted is settled; nothing after it is accepted."""
    monkeypatch.setattr(group_commit, "QUEUE_MAX", 6)
    let_go = groups.hold()
    outcomes = [groups.submit(n) for n in range(5)]
    outside = in_thread(lambda: groups.queue.submit(lambda _: "outside"))
    wait_until(lambda: groups.waiting_for_room, what="one that waits for room")
    closing = [in_thread(groups.queue.close) for _ in range(2)]
    with pytest.raises(StoreClosed):
        outside.result()
    with pytest.raises(StoreClosed):
        groups.queue.submit(lambda _: "late")
    assert all(outcome.running for outcome in closing)
    let_go()
    for outcome in closing:
        outcome.result()
    groups.queue.close()
    assert [outcome.result() for outcome in outcomes] == list(range(5))
    with pytest.raises(StoreClosed):
        groups.queue.submit(lambda _: "later")


def test_an_interrupt_at_any_line_leaves_a_condition_that_works():
    """Of a thread that waits, and of one that notifies: the next change reaches all, and no lock is left taken."""
    for interrupted in at_each_line({condition.__file__}, more_than=10):
        changed, ready = InterruptSafeCondition(), threading.Event()

        def found(ready=ready):
            return True if ready.is_set() else None

        def change(changed=changed):
            with changed.mutex:
                changed.notify_all()

        def wait_and_notify(changed=changed, change=change, found=found):
            changed.wait_for(found, timeout_s=0.001)
            change()

        waiting = in_thread(lambda changed=changed, found=found: changed.wait_for(found, timeout_s=None))
        wait_until(lambda changed=changed: len(changed._gates) == 1, what="the thread that waits")
        interrupted(wait_and_notify)
        ready.set()
        in_thread(change).result(5)
        assert waiting.result(5) is True
        assert changed._gates == []


def test_waking_a_thread_twice_is_no_error():
    """An interrupt may have ended the first attempt halfway."""
    waiting, woken = threading.Lock(), threading.Lock()
    waiting.acquire()
    changed = InterruptSafeCondition()
    with changed.mutex:
        changed._gates += [woken, waiting]
        changed.notify_all()
    assert not waiting.locked()


def test_an_encoder_stops_before_its_next_batch(monkeypatch):
    """What it was doing is finished, and nothing of it is given back."""
    model = HashEncoder()
    monkeypatch.setattr("mnemolog.infra.embedding.encoder.OBJECT_BATCH_SIZE", 2)
    encoder = ObjectEncoder(model)
    with cancellation.when(lambda: len(model.calls) == 2), pytest.raises(cancellation.Stopped):
        encoder.encode([f"tea {n}" for n in range(10)])
    assert [len(batch) for batch in model.calls] == [2, 2]


def test_even_after_the_last_batch():
    """So that one who was abandoned writes nothing."""
    model = HashEncoder()
    with cancellation.when(lambda: bool(model.calls)), pytest.raises(cancellation.Stopped):
        ObjectEncoder(model).encode(["tea"])


def test_only_the_work_of_that_thread_and_block_is_stopped():
    """A recall that uses the same encoder meanwhile goes on."""
    encoder = ObjectEncoder(HashEncoder())
    with cancellation.when(lambda: True):
        assert in_thread(lambda: encoder.encode(["tea"])).result().shape == (1, 384)
        with pytest.raises(cancellation.Stopped):
            encoder.encode(["tea"])
    assert encoder.encode(["tea"]).shape == (1, 384)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 40), st.integers(1, 2_000))
def test_batches_hold_every_text_once_within_both_limits(tokens, size_max, tokens_max):
    """Longest first; only a text that is too long by itself exceeds the limit, and it is alone."""
    made = list(batches(tokens, size_max=size_max, tokens_max=tokens_max))
    order = [number for batch in made for number in batch]
    assert sorted(order) == list(range(len(tokens)))
    assert [tokens[number] for number in order] == sorted(tokens, reverse=True)
    for batch in made:
        assert len(batch) <= size_max
        assert len(batch) == 1 or max(tokens[number] for number in batch) * len(batch) <= tokens_max


def test_short_texts_still_fill_a_batch():
    """Thirty-two turns of chat are one call, as before there was a limit."""
    assert [len(batch) for batch in batches([32] * 64, size_max=32, tokens_max=1_024)] == [32, 32]


def test_work_inside_other_work_is_stopped_with_it():
    """Whoever says so, the inner or the outer."""
    told = []
    with cancellation.when(lambda: "outer" in told):
        with cancellation.when(lambda: "inner" in told):
            cancellation.check()
            told.append("inner")
            with pytest.raises(cancellation.Stopped):
                cancellation.check()
            told[:] = ["outer"]
            with pytest.raises(cancellation.Stopped):
                cancellation.check()
        told[:] = ["inner"]
        cancellation.check()


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
