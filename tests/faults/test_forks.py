"""P17: a store is not to be carried across a fork: the child is refused, the parent goes on as before."""

import gc
import multiprocessing
import threading
import warnings

import pytest

from mnemolog import MemoryStore
from tests.children.forking import in_child
from tests.children.workers import read_texts
from tests.faults.test_inherited import said_by
from tests.support import WAIT_S, HashEncoder, in_thread

pytestmark = pytest.mark.promise("P17")


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
