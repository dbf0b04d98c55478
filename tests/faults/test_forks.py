"""P17: processes that are forked or started, interrupted, or that make their first calls together."""

import asyncio
import copy
import gc
import multiprocessing
import pickle
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, errors
from mnemolog.adapters.support.graph_checkpoints import Threads
from mnemolog.adapters.support.items import Items
from tests.children import first_calls
from tests.children.forking import in_child
from tests.children.workers import append_under_interrupts, messages, read_texts, record_one
from tests.faults.conftest import Processes
from tests.faults.test_inherited import said_by
from tests.server.serving import server
from tests.support import WAIT_S, HashEncoder, in_thread, read_all, texts_of


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
