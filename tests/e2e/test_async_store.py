"""The store for asyncio: all that the blocking one does, from many tasks, which may be cancelled at any moment."""

import asyncio
import contextvars
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from mnemolog import MISSING, AsyncMemoryStore, AsyncSession, MemoryStore, MnemologError, NewTurn, StoreClosed
from mnemolog.adapters.importers import import_files
from mnemolog.adapters.support.store_access import log_of, with_pools
from mnemolog.aio.wrappers import READERS_MAX, RECALLERS_MAX, WRITERS_MAX
from mnemolog.domain.errors import StoreForked
from mnemolog.projections.recall.prefetch import PrefetchReason
from tests.children.forking import in_child
from tests.e2e.test_projector import PROMPT_S, projector_threads
from tests.support import WAIT_S, HashEncoder, StuckEncoder, in_thread, once, start_child, wait_for_queue, wait_until


async def seen(event: threading.Event) -> None:
    """Wait for what another thread does, without holding up the loop."""
    assert await asyncio.to_thread(event.wait, WAIT_S)


async def until(condition, *, what):
    await asyncio.to_thread(wait_until, condition, what=what)


class Heart:
    """Beats while the loop is free. `gap_s` is the longest time it was not."""

    def __init__(self):
        self.gap_s, self._beats, self._last = 0.0, 0, time.perf_counter()
        self._more = asyncio.Event()
        self._beat()

    def _beat(self):
        now = time.perf_counter()
        self.gap_s, self._last = max(self.gap_s, now - self._last), now
        self._beats += 1
        self._more.set()
        self._next = asyncio.get_running_loop().call_later(0.005, self._beat)

    async def beats(self, count):
        """Return after so many more."""
        end = self._beats + count
        async with asyncio.timeout(WAIT_S):
            while self._beats < end:
                self._more.clear()
                await self._more.wait()

    def stop(self):
        self._next.cancel()


class Held:
    """The log's writer, held by somebody else until it is let go."""

    def __init__(self, store):
        self.log = log_of(with_pools(store)[0])
        self.free, entered = threading.Event(), threading.Event()
        self._holder = in_thread(
            lambda: self.log.appends.transact(once(lambda: (entered.set(), self.free.wait(WAIT_S))))
        )
        assert entered.wait(WAIT_S)

    async def waiting(self, count):
        """Return when so many appends wait behind it."""
        await asyncio.to_thread(wait_for_queue, self.log, 1 + count)

    def let_go(self):
        self.free.set()
        self._holder.result()


def own_threads(*pools):
    """The threads that asyncio's side has, of these pools if any are named."""
    names = {f"mnemolog-{pool}" for pool in pools or ("writes", "reads", "recalls", "background", "startup")}
    return [thread for thread in threading.enumerate() if thread.name in names]


async def trip(store):
    return await store.start_session("trip", agent="assistant", scope="acme/alice")


def texts(folder):
    with MemoryStore.open(folder, model=None) as store:
        return [turn.text for turn in store.turns("trip", limit=10_000)]


async def test_a_store_does_all_that_the_blocking_one_does(folder, encoder):
    """From the first turn to the audit, with handles of its own kind."""
    async with AsyncMemoryStore.open(folder, model=encoder, background=False) as store:
        session = await store.switch("trip", reason="new", agent="assistant", scope="acme/alice")
        first = await session.record("user", "I moved to Lisbon in March.", key="t1")
        assert first == await store.record("trip", "user", "I moved to Lisbon in March.", key="t1")
        assert (store.path, session.id, session.title, session.agent) == (folder, "trip", "", "assistant")
        for by in (store, session):
            answer = await by.recall("moved to Lisbon", k=1, min_position=first.position)
            assert (answer.hits[0].position, answer.legs) == (first.position, ("text", "vector"))

        await session.set("budget", None)
        assert (await session.get("budget", MISSING), await session.get("other")) == (None, None)
        assert (await session.set_task("book", step=1, total=3)).step == 1
        await session.note("by train")
        asked = await session.checkpoint("asked")
        await session.set("budget", 900)
        plane = await store.switch("plane", reason="branch", session=session, at=asked.position)
        assert isinstance(plane, AsyncSession)
        assert (await session.restore("asked")).id == asked.id
        assert await session.all() == await plane.all() == {"budget": None}
        assert await (await session.at(asked.position + 1)).get("budget") == 900
        assert await session.notes(with_times=False) == ["by train"]
        assert (await store.current("assistant")).id == "plane"
        assert await store.current("nobody") is None
        assert await (await session.branch("ship", at="asked")).lineage() == ["trip", "ship"]
        assert [item.session for item in await store.sessions()] == ["trip", "plane", "ship"]

        head = await store.head()
        events = [event.position async for event in store.events()]
        assert events == list(range(1, head.position + 1))
        assert (await store.verify(expect_head=str(head))).sound
        assert (await store.status()).head == head.position
        assert await (await store.admin.quarantine()).items() == []
        assert [report.complete for report in await store.rebuild()] == [True, True]
    with MemoryStore.open(folder, model=None) as store:
        assert store.head() == head


async def test_a_store_may_be_awaited_and_closed_by_hand(folder):
    """Or entered once it is there. Closing twice is no mistake."""
    store = await AsyncMemoryStore.open(folder, model=None)
    await trip(store)
    await asyncio.gather(store.close(), store.close())
    async with await AsyncMemoryStore.open(folder, model=None) as store:
        assert (await store.session("trip")).scope == "acme/alice"
    await store.close()
    wait_until(lambda: not own_threads(), what="the end of the last thread, which has closed the store")


async def test_after_close_everything_is_refused(folder, encoder):
    """Handles and iterators included; nothing hangs."""
    async with AsyncMemoryStore.open(folder, model=encoder) as store:
        session = await trip(store)
        events = store.events()
    for call in (
        lambda: store.record("trip", "user", "late"),
        lambda: session.get("budget"),
        lambda: session.recall("tea"),
        lambda: store.verify(),
        lambda: anext(events),
    ):
        with pytest.raises(StoreClosed):
            await call()


WRONG = {
    "no session": lambda store: store.record("nobody", "user", "hello"),
    "role": lambda store: store.record("trip", "king", "hello"),
    "key": lambda store: store.record("trip", "user", "other", key="k"),
    "query": lambda store: store.recall(""),
    "no model": lambda store: store.recall("tea", mode="vector"),
    "session exists": lambda store: store.start_session("trip", title="other"),
    "switch": lambda store: store.switch(reason="resume"),
    "position": lambda store: store.replay(to=99),
    "arguments": lambda store: store.record("trip"),
}


async def test_errors_are_those_of_the_blocking_store(folder):
    """Class and message."""

    with MemoryStore.open(folder, model=None) as store:
        store.start_session("trip").record("user", "hello", key="k")
        async with AsyncMemoryStore.open(folder, model=None) as other:
            for name, wrong in WRONG.items():
                with pytest.raises((MnemologError, TypeError)) as caught:
                    wrong(store)
                with pytest.raises(caught.type) as error:
                    await wrong(other)
                assert (error.type, str(error.value)) == (caught.type, str(caught.value)), name


@pytest.mark.log_file
async def test_what_cannot_be_opened_says_so(folder):
    """And leaves no thread."""
    with pytest.raises(MnemologError, match="no store"):
        await AsyncMemoryStore.open(folder, create=False)
    wait_until(lambda: not own_threads(), what="the end of the threads")


@pytest.mark.local
async def test_what_is_given_is_called_in_a_thread_with_the_context_of_the_call(folder):
    """As `asyncio.to_thread` has it."""
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="none")
    found = []

    def look(*_):
        found.append((request.get(), threading.current_thread().name))

    class Looking(HashEncoder):
        def encode(self, batch):
            look()
            return super().encode(batch)

    async with AsyncMemoryStore.open(folder, model=Looking(), background=False) as store:
        await (await store.session("said")).record("user", "tea")
        request.set("verify")
        await store.verify(progress=look)
        request.set("recall")
        await store.recall("tea")
    assert request.get() == "recall"
    assert set(found) == {("verify", "mnemolog-background"), ("recall", "mnemolog-recalls")}


async def test_recalls_stuck_in_the_model_delay_no_other_call(folder):
    """More of them than there are threads for them. Were the loop held up, this would never end."""
    model = StuckEncoder("stuck")
    async with AsyncMemoryStore.open(folder, model=model, background=False) as store:
        session, heart = await trip(store), Heart()
        recalls = [asyncio.create_task(store.recall(f"stuck {n}", mode="vector")) for n in range(RECALLERS_MAX + 2)]
        await seen(model.entered)
        turns = await asyncio.gather(*(session.record("user", f"tea {n}") for n in range(100)))
        assert (await store.recall("tea", mode="text", k=1)).head == max(turn.position for turn in turns)
        assert len(await session.turns()) == 100
        await session.set("budget", 900)
        assert await session.get("budget") == 900
        assert (await store.verify()).sound
        await heart.beats(20)
        assert heart.gap_s < PROMPT_S
        assert not any(task.done() for task in recalls)
        model.free.set()
        assert {(await task).legs for task in recalls} == {("vector",)}
        heart.stop()


@pytest.mark.local
async def test_the_loop_stays_responsive_during_a_long_catch_up(folder, tmp_path, encoder):
    """Each step is answered from the loop before the next one begins."""
    lines = (json.dumps({"session": f"s{n % 7}", "role": "user", "text": f"tea {n}"}) for n in range(4_000))
    (tmp_path / "said.jsonl").write_text("\n".join(lines))
    with MemoryStore.open(folder, model=None, background=False) as store:
        import_files(store, tmp_path / "said.jsonl")
    loop, answers = asyncio.get_running_loop(), 0

    def ask(_done, _total):
        nonlocal answers
        answered = threading.Event()
        loop.call_soon_threadsafe(answered.set)
        assert answered.wait(WAIT_S)
        answers += 1

    async with AsyncMemoryStore.open(folder, model=encoder, background=False) as store:
        heart = Heart()
        assert await store.admin.catch_up_views(progress=ask) == 4_007
        assert (await store.admin.catch_up_vectors(progress=ask)).complete
        assert answers > 20
        assert heart.gap_s < PROMPT_S
        heart.stop()


async def test_two_hundred_records_at_once_are_each_there_once(folder):
    """In few transactions: those that wait for a commit share the next one."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        await trip(store)
        commits = Counted()
        log_of(with_pools(store)[0]).followers.listen(commits)
        held = Held(store)
        tasks = [asyncio.create_task(store.record("trip", "user", f"tea {n}")) for n in range(200)]
        await held.waiting(WRITERS_MAX)
        held.let_go()
        turns = await asyncio.gather(*tasks)
        assert [turn.text for turn in turns] == [f"tea {n}" for n in range(200)]
        assert sorted(turn.position for turn in turns) == list(range(2, 202))
        assert commits.count <= 100
    assert sorted(texts(folder)) == sorted(f"tea {n}" for n in range(200))


class Counted:
    """Counts commits."""

    count = 0

    def set(self):
        self.count += 1


async def test_records_that_are_awaited_one_after_the_other_are_in_that_order(folder):
    """Whatever other tasks do meanwhile, recalls among it, which see what was recorded before them."""
    async with AsyncMemoryStore.open(folder, model=HashEncoder(dimension=16), synchronous="NORMAL") as store:

        async def talk(name):
            session = await store.start_session(name)
            for n in range(50):
                position = (await session.record("user", f"{name} tea{n}")).position
                if n % 10 == 0:
                    answer = await session.recall(f"tea{n}", k=1, min_position=position, timeout_s=WAIT_S)
                    assert answer.hits[0].position == position
            return [turn.text for turn in await session.turns()]

        said = await asyncio.gather(*(talk(f"s{n}") for n in range(4)))
        assert said == [[f"s{n} tea{m}" for m in range(50)] for n in range(4)]


@pytest.mark.local
async def test_a_prefetch_is_waited_for_without_a_thread(folder):
    """By more tasks than there are threads to read; a timeout and a cancellation leave it as it was."""
    model = StuckEncoder("stuck")
    async with AsyncMemoryStore.open(folder, model=model, background=False) as store:
        session = await trip(store)
        await session.record("user", "tea")
        ticket = await session.prefetch("stuck tea", mode="vector")
        await seen(model.entered)
        assert not await ticket.wait(0.0)
        assert (await session.prefetch_result()).reason is PrefetchReason.NOT_READY
        given_up = asyncio.create_task(session.prefetch_result(wait_s=WAIT_S))
        waiting = [asyncio.create_task(ticket.wait(WAIT_S)) for _ in range(3 * READERS_MAX)]
        # One is from the wait that timed out.
        await until(lambda: len(ticket._of._ending._done_callbacks) == len(waiting) + 2, what="all to wait")
        given_up.cancel()
        assert (await store.head()).position == 2
        model.free.set()
        assert all(await asyncio.gather(*waiting))
        taken = await session.prefetch_result(wait_s=WAIT_S)
        assert (taken.reason, taken.recall.hits[0].text) == (None, "tea")
        assert given_up.cancelled()
        await (await session.prefetch("tea")).cancel()


def test_loops_may_come_one_after_the_other_or_together(folder):
    """A store belongs to no loop."""

    async def opened():
        store = await AsyncMemoryStore.open(folder, model=None)
        await trip(store)
        return store

    async def say(store, text):
        await asyncio.gather(*(store.record("trip", "user", f"{text} {n}") for n in range(20)))

    store = asyncio.run(opened())
    asyncio.run(say(store, "one"))
    together = [in_thread(lambda text=text: asyncio.run(say(store, text))) for text in ("two", "three")]
    for loop in together:
        loop.result()
    asyncio.run(store.close())
    assert len(set(texts(folder))) == 60


DEVELOPING = """
import asyncio, contextlib, sys
from mnemolog import AsyncMemoryStore

async def main(folder):
    async with AsyncMemoryStore.open(folder, model=None) as store:
        session = await store.start_session("trip")
        await asyncio.gather(*(session.record("user", f"tea {n}") for n in range(50)))
        late = [asyncio.create_task(session.record("user", f"late {n}")) for n in range(50)]
        await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        for task in late:
            task.cancel()
        async for event in store.events():
            break
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await store.recall("tea")

for name in ("one", "two"):
    asyncio.run(main(sys.argv[1] + name), debug=True)
"""


def test_nothing_is_left_open_or_unheard_in_development_mode(tmp_path):
    """Python's own checks: loops, coroutines, futures, files."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", DEVELOPING, str(tmp_path / "memory-")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)
    slow = [line for line in ran.stderr.splitlines() if line.startswith("Executing <") and " took " in line]
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if line not in slow]) == (0, [])


LEFT_OPEN = """
import asyncio, os, sys, threading
from mnemolog import AsyncMemoryStore
from mnemolog.adapters.support.store_access import with_pools, log_of
from tests.support import HashEncoder

class Stuck(HashEncoder):
    def encode(self, texts):
        entered.set()
        while not free.wait(0.05): pass
        return super().encode(texts)

entered, free = threading.Event(), threading.Event()

async def main():
    store = await AsyncMemoryStore.open(sys.argv[1], model=Stuck(), background=False)
    await store.start_session("trip")
    asyncio.create_task(store.recall("tea", mode="vector"))
    await asyncio.to_thread(entered.wait)
    await store.record("trip", "user", "tea")

asyncio.run(main())
print("done")
"""


@pytest.mark.local
def test_a_process_ends_though_a_store_was_left_open_with_a_recall_in_the_model(folder, tmp_path):
    """Its thread is interrupted, not waited for."""
    (script := tmp_path / "left_open.py").write_text(LEFT_OPEN)
    child = start_child(script, folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert (child.communicate(timeout=WAIT_S)[0], child.returncode) == ("done\n", 0)
    assert texts(folder) == ["tea"]


def test_a_fork_has_no_store(folder):
    """It is told so, and closing it there leaves the parent's alone."""
    store = asyncio.run(start_in(folder))

    async def child():
        try:
            await store.record("trip", "user", "from the child")
        except StoreForked:
            await store.close()
            return 7
        return 1

    assert in_child(lambda: asyncio.run(child())) == 7
    asyncio.run(store.record("trip", "user", "from the parent"))
    asyncio.run(store.close())
    assert texts(folder) == ["from the parent"]


async def start_in(folder):
    store = await AsyncMemoryStore.open(folder, model=None)
    await trip(store)
    return store


async def cancelled(*tasks):
    """Cancel tasks, and return when they are."""
    for task in tasks:
        task.cancel()
    done, _ = await asyncio.wait(tasks, timeout=WAIT_S)
    assert done == set(tasks)
    assert all(task.cancelled() for task in tasks)


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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
        with suppress(StoreClosed):
            async with asyncio.timeout(WAIT_S):
                while await store.head():
                    pass
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


@pytest.mark.local
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
