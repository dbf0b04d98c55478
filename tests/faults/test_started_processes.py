"""P17: processes that are started by spawn or a fork server get the path of a store, never the store itself."""

import asyncio
import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

from mnemolog import AsyncMemoryStore, MemoryStore, errors
from mnemolog.adapters.support.graph_checkpoints import Threads
from mnemolog.adapters.support.items import Items
from tests.children.workers import record_one
from tests.faults.conftest import Processes
from tests.support import WAIT_S

pytestmark = [pytest.mark.promise("P17"), pytest.mark.timeout(120)]


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


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_a_store_and_each_handle_on_it_refuse_to_be_pickled(store, way):
    """With one clear error that says what to do instead."""
    for name, handle in handles(store).items():
        if way is copy.copy and name not in ("store", "session", "log"):
            continue  # A shallow copy shares the store, in the same process.
        with pytest.raises(errors.StoreError, match=r"cannot be pickled or copied.*pass the path of the store"):
            way(handle)


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


def test_an_error_in_a_worker_process_arrives_as_it_was_raised(folder):
    """With its message and its attributes. An error that cannot be unpickled would stop the whole pool."""
    MemoryStore.open(folder, model=None).close()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        raised = pool.submit(raise_unknown_session, folder).exception(WAIT_S)
    with pytest.raises(errors.UnknownSession) as here:
        raise_unknown_session(folder)
    assert type(raised) is errors.UnknownSession
    assert (str(raised), vars(raised)) == (str(here.value), vars(here.value))


def test_each_error_can_be_pickled():
    """Whatever arguments it takes."""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.MnemologError):
            error = kind.__new__(kind, "what happened")
            error.position = 7
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), again.args, again.position) == (kind, ("what happened",), 7)
