"""P17: processes that are forked or started, interrupted, or that make their first calls together.

P17: what a forked child inherits is never touched, whatever the other threads of the parent do at the fork.
"""

import asyncio
import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import mnemolog
from mnemolog import AsyncMemoryStore, MemoryStore, errors
from mnemolog.adapters.importers.transcripts.reading import Transcripts
from mnemolog.adapters.support.graph_checkpoints import Threads
from mnemolog.adapters.support.items import Items
from mnemolog.infra.runtime import fork_guard
from mnemolog.projections.vectors.folders import IndexerLock
from tests.children import first_calls
from tests.children.forking import CHILD_S, in_child
from tests.children.workers import append_under_interrupts, messages, read_texts, record_one
from tests.e2e import test_bound_scope
from tests.faults.conftest import Processes
from tests.limits import children
from tests.server.serving import server
from tests.support import WAIT_S, HashEncoder, in_thread, projections_of, read_all, texts_of, wait_until


def append(store):
    store.record("trip", "user", "from a child")


CHILDREN = {
    "append": append,
    "read": lambda store: store.head(),
    "recall": lambda store: store.recall("turn", mode="text"),
    "remember": lambda store: store.session("trip").set("a", 1),
    "close": lambda store: (store.close(), append(store)),
    "collect": lambda store: (gc.collect(), append(store)),
    "back up": lambda store: store.backup(store.path.with_name("child-backup")),
}


def fork_and_ask(use, store, *, way):
    """Fork by hand, or by multiprocessing, whose children end as a process ends; return what the child said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and newer: there are threads. That is meant.
        if way == "multiprocessing":
            context = multiprocessing.get_context("fork")
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=lambda: sending.send(said_by(lambda: use(store))))
            process.start()
            assert receiving.poll(WAIT_S)
            said = receiving.recv()
            process.join(WAIT_S)
            assert process.exitcode == 0
            return said
    return in_child(lambda: said_by(lambda: use(store)))


@pytest.mark.promise("P17")
@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "forks")
def test_forks_are_refused_and_leave_the_parent_as_it_was(folder, processes, tries):
    """Whatever the child tries and however it ends, while a thread of the parent continues to record."""
    with MemoryStore.open(folder, model=HashEncoder()) as store:
        store.start_session("trip").record("user", "first")
        store.recall("first")
        end, recorded = threading.Event(), ["first"]

        def record():
            while not end.wait(0.002):
                recorded.append(store.record("trip", "user", f"turn {len(recorded)}").text)

        recording = in_thread(record)
        for number in range(tries):
            name = list(CHILDREN)[number % len(CHILDREN)]
            way = ("fork", "multiprocessing")[number // len(CHILDREN) % 2]
            assert fork_and_ask(CHILDREN[name], store, way=way) == "refused", (number, name, way)
            store.record("trip", "user", f"after child {number}")
            # Were the parent's locks gone, one who opens and closes the log now would take its newest commits away.
            _, pipe = processes.start(read_texts, str(folder), "trip") if number % 8 == 0 else (None, None)
            assert pipe is None or (pipe.poll(WAIT_S) and f"after child {number}" in pipe.recv())
        end.set()
        recording.result()
        store.record("trip", "user", "last")
        expected = {*recorded, *(f"after child {n}" for n in range(tries)), "last"}
        assert {turn.text for turn in store.turns("trip", limit=1_000_000)} == expected
        assert store.verify().sound
    with MemoryStore.open(folder, model=None) as store:
        assert {turn.text for turn in store.turns("trip", limit=1_000_000)} == expected
        assert store.admin.doctor(deep=True).healthy
    assert not (folder.parent / "child-backup").exists()


@pytest.mark.promise("P17")
@pytest.mark.timeout(120)
@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "started processes")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_opens_the_store_of_another_by_its_path(folder, method, tries):
    """While that one has it open, records in it, and closes it before the other has ended."""
    processes = Processes(multiprocessing.get_context(method))
    try:
        expected = []
        for number in range(tries):
            with MemoryStore.open(folder, model=None, background=False) as store:
                store.session("trip").record("user", f"from this process {number}")
                _, pipe = processes.start(record_one, str(folder), f"from the other {number}")
                assert pipe.poll(WAIT_S)
                expected += [f"from this process {number}", f"from the other {number}"]
                assert pipe.recv() == expected[-100:] == [turn.text for turn in store.turns("trip")]
        with MemoryStore.open(folder, model=None) as store:
            assert [turn.text for turn in store.turns("trip", limit=1_000_000)] == expected
            assert store.verify().sound
    finally:
        processes.end()


def handles(store):
    session = store.session("trip")
    return {
        "store": store,
        "session": session,
        "session as it was": session.at(store.head().position),
        "audit": store.audit,
        "models": store.models,
        "admin": store.admin,
        "log": store.parts.log,
        "parts": store.parts,
        "items": Items(store),
        "graph checkpoints": Threads(store),
    }


@pytest.mark.promise("P17")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_store_and_each_handle_on_it_refuse_to_be_pickled(store, way):
    """With one clear error that says what to do instead."""
    for name, handle in handles(store).items():
        if way is copy.copy and name not in ("store", "session", "log"):
            continue  # A shallow copy shares the store, in the same process.
        with pytest.raises(errors.StoreError, match=r"cannot be pickled or copied.*pass the path of the store"):
            way(handle)


@pytest.mark.promise("P17")
@pytest.mark.timeout(120)
def test_an_asyncio_store_refuses_to_be_pickled(folder):
    """As the store that it wraps."""

    async def pickled():
        async with AsyncMemoryStore.open(folder, model=None) as store:
            session = await store.session("trip")
            for handle in (store, session, store.audit):
                with pytest.raises(errors.StoreError, match="cannot be pickled"):
                    pickle.dumps(handle)

    asyncio.run(pickled())


def raise_unknown_session(folder):
    with MemoryStore.open(folder, model=None, background=False) as store:
        store.end_session("nobody")


@pytest.mark.promise("P17")
@pytest.mark.timeout(120)
def test_an_error_in_a_worker_process_arrives_as_it_was_raised(folder):
    """With its message and its attributes. An error that cannot be unpickled would stop the whole pool."""
    MemoryStore.open(folder, model=None).close()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        raised = pool.submit(raise_unknown_session, folder).exception(WAIT_S)
    with pytest.raises(errors.UnknownSession) as here:
        raise_unknown_session(folder)
    assert type(raised) is errors.UnknownSession
    assert (str(raised), vars(raised)) == (str(here.value), vars(here.value))


@pytest.mark.promise("P17")
@pytest.mark.timeout(120)
def test_each_error_can_be_pickled():
    """Whatever arguments it takes."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.MnemologError):
            error = kind.__new__(kind, "what happened")
            error.position = 7
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), again.args, again.position) == (kind, ("what happened",), 7)


@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "first calls")
@pytest.mark.parametrize("agents", [2, 3])
@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (first_calls.remember, first_calls.said),
        (first_calls.set_values, first_calls.said),
        (first_calls.switch, first_calls.said),
        (first_calls.begin_for_framework, first_calls.said),
        (first_calls.record, first_calls.said),
        (first_calls.import_file, first_calls.said),
        (first_calls.watch, first_calls.said),
        (first_calls.put_checkpoint, first_calls.checkpoints_in),
        (first_calls.put_item, first_calls.items_in),
    ],
)
def test_first_calls_that_meet_are_all_recorded(tmp_path, processes, call, kept, agents, tries):
    """Each with an agent, a title or a scope of its own, in a store that the first of them creates."""
    first_calls.race_in_folders(processes, call, tmp_path, tries=tries, agents=agents, kept=kept)


@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "first calls")
def test_first_calls_over_http_are_all_recorded(folder, processes, tries):
    """Three clients begin one session at once."""
    sessions, names = [f"shared {number}" for number in range(tries)], [f"agent {n}" for n in range(3)]
    with server(folder) as (url, _):
        first_calls.race(processes, first_calls.call_server, [f"{url}#{session}" for session in sessions], names)
    with MemoryStore.open(folder, model=None) as store:
        for session in sessions:
            assert sorted(turn.text for turn in store.turns(session)) == names


@pytest.mark.promise("P1")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "interrupts")
@pytest.mark.parametrize("helpers", [0, 3])
def test_interrupts_leave_a_store_that_records_on(processes, folder, rng, seed, tries, helpers):
    """Thousands of interrupts: no thread hangs, nothing acknowledged is missing, nothing is recorded twice."""
    pipe = processes.start(append_under_interrupts, str(folder), rng.randrange(2**32), tries, helpers)[1]
    (answer,) = messages(pipe)
    assert isinstance(answer, tuple), f"{answer}, seed {seed}"
    acknowledged, failures, last = answer
    assert failures == [], f"seed {seed}"
    with MemoryStore.open(folder, model=None) as store:
        events = read_all(store.parts.log)
        texts = texts_of(events)
        assert len(texts) == len(set(texts)), f"recorded twice: {sorted({t for t in texts if texts.count(t) > 1})[:5]}"
        by_position = {event.position: event.event.text for event in events[1:]}
        assert {by_position.get(position) for position in acknowledged.values()} == acknowledged.keys(), f"seed {seed}"
        assert events[-1].position == last
        assert sum(text.startswith("helper") for text in texts) == helpers * tries, f"seed {seed}"
        assert store.verify().findings == (), f"seed {seed}"


ROOT = Path(__file__).parents[2]


class Part(NamedTuple):
    """A part of a store that has a connection, and can be closed."""

    driver: Any
    close: Any
    use: Any


def driver_of(engine):
    """A connection that is idle in the pool of an engine."""
    with engine.connect() as connection:
        return connection.connection.driver_connection


def the_embeddings(store):
    vectors = projections_of(store).vectors()
    vectors.projection()
    return Part(
        driver_of(vectors._cache.database.engine), projections_of(store).models.close, lambda: store.recall("turn")
    )


def items(store):
    items = Items(store)

    def use():
        with items.batch() as batch:
            batch.get(["a"], "b")

    return Part(driver_of(items.tables.database.engine), items.close, use)


def graph_checkpoints(store):
    threads = Threads(store)
    return Part(driver_of(threads._index.database.engine), threads.close, lambda: threads.find("a", "", None))


def offsets_of_transcripts(store):
    transcripts = Transcripts(store)
    database = transcripts._offsets.database
    return Part(driver_of(database.engine), transcripts.close, lambda: transcripts._offsets.database.engine.connect())


PARTS = {
    "log": lambda store: Part(driver_of(store.parts.log.engine.pool), store.parts.log.close, store.head),
    "writer": lambda store: Part(
        store.parts.log.appends.connection.driver,
        store.parts.log.close,
        lambda: store.record("trip", "user", "from the child"),
    ),
    "keys": lambda store: Part(
        store.parts.log.keyring.engine._opened,
        store.parts.log.keyring.close,
        store.parts.log.keyring.last_erasure,
    ),
    "snapshots": lambda store: Part(
        driver_of(store.parts.snapshots._database().engine),
        store.parts.snapshots.close,
        lambda: store.session("trip").get("a"),
    ),
    "views": lambda store: Part(
        driver_of(projections_of(store).views().database.engine),
        projections_of(store).close,
        lambda: store.recall("turn"),
    ),
    "embeddings": the_embeddings,
    "items": items,
    "graph checkpoints": graph_checkpoints,
    "offsets of transcripts": offsets_of_transcripts,
}


@contextmanager
def inside_sqlite(driver):
    """Another thread is inside SQLite, and holds the mutex of this connection, until the block ends."""
    entered, leave = threading.Event(), threading.Event()

    def stay():
        entered.set()
        leave.wait(WAIT_S)
        return 1

    driver.create_function("stay", 0, stay)
    running = in_thread(lambda: driver.execute("SELECT stay()").fetchone())
    assert entered.wait(WAIT_S)
    try:
        yield
    finally:
        leave.set()
        running.result()


@contextmanager
def all_locks_held():
    """Another thread holds each lock of the library until the block ends."""
    held, leave = threading.Event(), threading.Event()

    def hold():
        with ExitStack() as locks:
            for lock in list(fork_guard._locks):
                locks.enter_context(lock)
            held.set()
            leave.wait(WAIT_S)

    holding = in_thread(hold)
    assert held.wait(WAIT_S)
    try:
        yield
    finally:
        leave.set()
        holding.result()


def said_by(use):
    """What a child gets when it uses what it inherited."""
    try:
        return repr(use())
    except mnemolog.errors.StoreForked as error:
        return "refused" if (error.opened_in, error.used_in) == (os.getppid(), os.getpid()) else str(error)
    except mnemolog.StoreClosed:
        return "refused"  # It was closed in the child.


def opens_its_own(folder):
    with MemoryStore.open(folder, model=None, background=False) as own:
        own.record("trip", "user", "from the child's own store")
        return own.recall("own", mode="text").hits[0].text


@pytest.fixture
def filled(folder):
    """A store that has all of its connections open."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        session = store.session("trip")
        session.record("user", "a turn")
        session.set("a", 1)
        store.recall("turn")
        yield store


def is_as_it_was(store, *, turns):
    store.record("trip", "user", "after the fork")
    assert [turn.text for turn in store.turns("trip")] == ["a turn", *turns, "after the fork"]
    assert store.recall("after", mode="text").hits
    assert store.verify().sound


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", PARTS)
def test_a_child_uses_nothing_that_it_inherited_while_a_thread_of_the_parent_is_inside_sqlite(filled, folder, part):
    """It is refused before it takes a lock of the parent, closes what it inherited, and opens a store of its own."""
    made = PARTS[part](filled)

    def child():
        before = said_by(made.use)
        made.close()
        filled.close()
        gc.collect()
        return before, said_by(made.use), opens_its_own(folder)

    with inside_sqlite(made.driver), all_locks_held():
        assert in_child(child) == ("refused", "refused", "from the child's own store")
    is_as_it_was(filled, turns=["from the child's own store"])


CALLS = {
    name: call
    for table in test_bound_scope.SURFACE.values()
    for name, calls in table.items()
    for call in calls[-1:]
    if name not in ("load", "add", "activate", "quarantine")  # They begin without the log.
}


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
@pytest.mark.timeout(600)
def test_every_public_call_is_refused_in_a_child(filled):
    """None of them waits for a lock of the parent, and none does a part of its work before it is refused."""
    for name, call in CALLS.items():
        with all_locks_held():
            said = in_child(lambda call=call: said_by(lambda: test_bound_scope.texts(call(filled))))
        assert said == "refused", name


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("works", [True, False], ids=["on disk", "nowhere"])
def test_a_child_that_may_not_map_memory_files_loads_sqlite_from_disk_or_says_why_not(filled, folder, works):
    """Nothing is opened with the library that it inherited."""

    def refuse(*_, **__):
        raise PermissionError("not here")

    def child():
        os.memfd_create = refuse
        if not works:
            tempfile.NamedTemporaryFile = refuse
        try:
            return opens_its_own(folder)
        except mnemolog.errors.StoreError as error:
            return str(error)

    said = in_child(child)
    assert said == "from the child's own store" if works else "forked from one that used it: not here" in said


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
def test_a_child_neither_releases_nor_keeps_a_lock_on_a_file(tmp_path):
    """The parent holds it until it releases it, while the child lives and after it has ended."""
    lock, other = (IndexerLock(tmp_path, "f" * 64) for _ in range(2))
    done = os.pipe()

    def is_free():
        try:
            with other.held(wait_s=0):
                return True
        except mnemolog.errors.IndexerBusy:
            return False

    def child():
        gc.collect()
        os.read(done[0], 1)

    with lock.held():
        assert in_child(gc.collect) is not None
        assert not is_free()
        living = in_thread(lambda: in_child(child))
        wait_until(lambda: bool(list(children())), what="the child to begin")
    try:
        assert is_free()
    finally:
        os.write(done[1], b".")
        living.result()


def output_of(program, folder):
    """What a program that forks prints."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, folder, str(CHILD_S)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * CHILD_S, check=False)
    return ran.stdout, ran.stderr


ENDS = """
import contextlib, faulthandler, gc, os, sys
from mnemolog import MemoryStore
from tests.faults.test_forks import PARTS, inside_sqlite
from tests.support import HashEncoder

store = MemoryStore.open(sys.argv[1], model=HashEncoder(), background=False)
store.session("trip").record("user", "a turn")
store.recall("turn")
made = [part(store) for part in PARTS.values()]
with contextlib.ExitStack() as threads:
    for driver in {id(part.driver): part.driver for part in made}.values():
        threads.enter_context(inside_sqlite(driver))
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
        del store, made, driver
        gc.collect()
        sys.exit(7)  # Everything is freed, as at the end of every program.
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, store.record("trip", "user", "after").position > 0, store.verify().sound)
"""


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
def test_a_child_ends_while_threads_of_the_parent_are_inside_sqlite_in_each_part(folder):
    """The interpreter frees all objects at its end: inherited connections are not among them."""
    assert output_of(ENDS, folder) == ("7 True True\n", "")


ENDS_WITH_THREADS = """
import asyncio, faulthandler, os, sys, threading
from mnemolog import AsyncMemoryStore, MemoryStore
from tests.support import HashEncoder

class Slow(HashEncoder):
    began, free = threading.Event(), threading.Event()

    def encode(self, texts):
        self.began.set()
        self.free.wait()
        return super().encode(texts)

model = Slow()
store = MemoryStore.open(sys.argv[1], model=model)
session = store.session("trip")
session.record("user", "a turn")
session.prefetch("a question")
other = asyncio.run(AsyncMemoryStore.open(sys.argv[1], model=None).__aenter__())
asyncio.run(other.head())
assert model.began.wait(60)
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(float(sys.argv[2]), exit=True)
    store.close()
    asyncio.run(other.close())
    sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
model.free.set()
print(status, store.recall("turn", min_position=store.head().position).hits[0].text)
asyncio.run(other.close())
store.close()
"""


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
def test_a_child_ends_while_threads_of_the_parent_embed_recall_and_serve_event_loops(folder):
    """It waits for none of them: they are in the parent only."""
    assert output_of(ENDS_WITH_THREADS, folder) == ("7 a turn\n", "")


@pytest.mark.promise("P17")
@pytest.mark.timeout(60)
@pytest.mark.timeout(1_200)
@pytest.mark.promise("P17", "stores of children")
def test_what_a_child_commits_in_its_own_store_stays_when_the_parent_closes_its_one(folder, tries):
    """The last to close a database deletes its write-ahead log: a child holds the locks that prevent that."""
    expected = []
    for number in range(tries):
        store = MemoryStore.open(folder, model=None, background=False)
        store.session("trip").record("user", f"from parent {number}")
        ready, closed = os.pipe(), os.pipe()

        def child(number=number, ready=ready, closed=closed):
            with MemoryStore.open(folder, model=None, background=False) as own:
                own.record("trip", "user", f"before the parent closed {number}")
                os.write(ready[1], b".")
                os.read(closed[0], 1)
                own.record("trip", "user", f"after that {number}")
            return in_child(lambda: opens_its_own(folder))

        def close(store=store, ready=ready, closed=closed):
            os.read(ready[0], 1)
            store.close()
            os.write(closed[1], b".")

        closing = in_thread(close)
        assert in_child(child) == "from the child's own store", "a grandchild, too"
        closing.result()
        for descriptor in (*ready, *closed):
            os.close(descriptor)
        texts = "from parent {}", "before the parent closed {}", "after that {}", "from the child's own store"
        expected += [text.format(number) for text in texts]
    with MemoryStore.open(folder, model=None) as store:
        assert [turn.text for turn in store.turns("trip", limit=1_000_000)] == expected
        assert store.verify().sound
