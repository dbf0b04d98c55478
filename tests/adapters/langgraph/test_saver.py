"""The saver under LangGraph's own graphs, and what the log holds of them.

LangGraph's own suite for checkpointers. What is forgotten of threads and items is in no file of the store any more.
Several processes on one thread, and a process that is killed.
"""

import asyncio
import itertools
import pickle
import subprocess
import sys
from dataclasses import dataclass

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, _DeltaSnapshot
from langgraph.types import Command

from mnemolog import MemoryStore
from mnemolog.adapters.langgraph import MnemologSaver, MnemologStore
from mnemolog.domain import errors, threads, values
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten
from mnemolog.projections.sql.embeddings import pack
from mnemolog.projections.sql.thread_index import FILE
from tests.adapters.langgraph.checkpoints import at, chain, checkpoint
from tests.adapters.langgraph.children import first_call, put_in
from tests.adapters.langgraph.graphs import asking, gather, normal, said, talk
from tests.support import nothing_written

FEW = range(7)


def everything(saver, thread):
    """All checkpoints of a thread in all namespaces, as what two savers must agree on, in no order."""
    return sorted((normal(found) for found in saver.list({"configurable": {"thread_id": thread}})), key=str)


def states(graph):
    """What a graph says it was at each checkpoint of thread `t`."""
    return [(state.values, state.next, state.metadata["step"]) for state in graph.get_state_history(at("t"))]


def run_talk(saver):
    graph = talk(saver)
    for number in FEW:
        graph.invoke(said(number), at("t"))
    old = next(found for found in graph.get_state_history(at("t")) if found.metadata["step"] == 4)
    graph.invoke(said(90), old.config)
    graph.update_state(at("t"), {"count": 41})
    return states(graph)


def run_gather(saver):
    graph = gather(saver)
    for wanted in (3, 0, 5, 2):
        graph.invoke({"notes": [f"round {wanted}"], "wanted": wanted}, at("t"))
    return states(graph)


def run_asking(saver):
    graph = asking(saver)
    for answer in ("tea", "cake"):
        graph.invoke({"answers": ["?"]}, at("t"))
        graph.invoke(Command(resume=answer), at("t"))
    return states(graph)


RUNS = {"talk": run_talk, "gather": run_gather, "asking": run_asking}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_graphs_end_and_are_remembered_as_with_the_saver_in_memory(folder, run):
    """Messages that come and go, parallel tasks in a delta channel, interrupts in a subgraph; forks and updates.

    Also when it is opened again, and when the index is rebuilt or deleted.
    """
    memory = InMemorySaver()

    def threads(saver):
        return everything(saver, "t"), everything(saver, "copy")

    with MemoryStore.open(folder, model=None) as store, MnemologSaver(store) as saver:
        assert run(saver) == run(memory)
        if run is not run_gather:  # That one shows a delta channel's snapshot at later checkpoints too.
            assert everything(saver, "t") == everything(memory, "t")
        saver.copy_thread("t", "copy")
        saver.prune(["t"], strategy="keep_latest")
        before = threads(saver)
        saver.threads._index.rebuild()
        assert threads(saver) == before
    with MnemologSaver.open(folder) as saver:
        assert threads(saver) == before
    for path in (folder / "projections").glob(f"{FILE}*"):
        path.unlink()
    with MnemologSaver.open(folder) as saver:
        assert threads(saver) == before


async def test_asyncio_graphs_run_on_it(folder):
    """Several at once, on threads of their own and on one store."""
    async with MnemologSaver.open(folder) as saver:
        graph = talk(saver)
        for number in FEW:
            await asyncio.gather(*(graph.ainvoke(said(number), at(f"t{thread}")) for thread in range(4)))
        states = [(await graph.aget_state(at(f"t{thread}"))).values for thread in range(4)]
        assert all(state == states[0] for state in states)
        assert [found.metadata["step"] async for found in saver.alist(at("t0"), limit=3)] == [26, 25, 24]
        history = await saver.aget_delta_channel_history(config=at("t0"), channels=["messages"])
        assert len(history["messages"]["seed"]) == len(states[0]["messages"])


def test_a_thread_does_not_grow_with_the_square_of_its_checkpoints(saver, store):
    """Twice the messages take little more than twice the bytes, although each checkpoint has all of them."""
    log = store.parts.log

    def stored(number):
        at_first = log.head().position
        messages = [f"message {n} " + "of some length " * 8 for n in range(number)]
        chain(saver, f"t{number}", [{"messages": messages[: n + 1]} for n in range(number)])
        return sum(len(row[4]) for rows in log.stored_rows(after=at_first, upto=1 << 40, batch_max=500) for row in rows)

    assert stored(400) < 2.5 * stored(200)
    assert saver.get_tuple(at("t400")).checkpoint["channel_values"]["messages"][-1].startswith("message 399 ")


def test_only_channels_that_changed_are_stored(saver, store):
    """Neither one whose version is that of the parent, nor one that has the same value under a new one."""
    first = checkpoint(1, {"a": "x" * 100, "b": "y" * 100})
    config = saver.put(at("t"), first, {}, {"a": 1, "b": 1})
    second = checkpoint(2, {"a": "x" * 100, "b": "y" * 100}, {"a": 1, "b": 2})
    saver.put(config, second, {}, {"b": 2})
    events = [recorded.event for recorded in store.events() if isinstance(recorded.event, ThreadCheckpointed)]
    assert [[value.name for value in event.values] for event in events] == [["a", "b"], []]
    assert events[1].kept == {"a": 1, "b": 1}
    assert saver.get_tuple(at("t")).checkpoint["channel_values"] == first["channel_values"]


def test_two_lines_of_a_thread_with_the_same_versions_keep_their_own_values(saver):
    """Versions are numbers, and a fork counts on from the same one. Nothing is lost that has an old version."""
    root = saver.put(at("t"), checkpoint(1, {"a": "root"}), {}, {"a": 1})
    left = saver.put(root, checkpoint(2, {"a": "left"}, {"a": 2}), {}, {"a": 2})
    right = saver.put(root, checkpoint(3, {"a": "right"}, {"a": 2}), {}, {"a": 2})
    for config, value in ((root, "root"), (left, "left"), (right, "right")):
        assert saver.get_tuple(config).checkpoint["channel_values"] == {"a": value}
    saver.put(at("t", "99999999"), checkpoint(4, {"a": 1, "b": 2}), {}, {})
    assert saver.get_tuple(at("t")).checkpoint["channel_values"] == {"a": 1, "b": 2}


def delta_chain(saver, held, *, thread="t"):
    """Put checkpoints with these values of channel `c`, and after each a write to it: its number."""
    made = chain(saver, thread, [{} if value is None else {"c": value} for value in held])
    for number, config in enumerate(made):
        saver.put_writes(config, [("c", number)], f"task-{number}")
    return made


def test_the_history_of_a_delta_channel_goes_back_to_the_nearest_value_or_the_root(saver):
    """Writes from that one's own on, oldest first; those at the checkpoint itself are still to come."""
    made = delta_chain(saver, [_DeltaSnapshot([0]), None, _DeltaSnapshot([7]), None, None])
    found = saver.get_delta_channel_history(config=made[-1], channels=["c", "other"])
    assert found["c"]["seed"].value == [7]
    assert [value for _, _, value in found["c"]["writes"]] == [2, 3]
    assert found["other"] == {"writes": []}
    assert saver.get_delta_channel_history(config=made[-1], channels=[]) == {}
    made = delta_chain(saver, [None, None, None], thread="without a value")
    found = saver.get_delta_channel_history(config=made[-1], channels=["c"])
    assert [value for _, _, value in found["c"]["writes"]] == [0, 1]
    assert "seed" not in found["c"]
    assert saver.get_delta_channel_history(config=at("none"), channels=["c"]) == {"c": {"writes": []}}


def test_writes_of_one_step_are_in_the_order_in_which_a_graph_applies_them(saver):
    """By the path of the task, then by task: not by when they came."""
    first, second = chain(saver, "t", [{}, {}])
    saver.put_writes(first, [("c", "second")], "task-0", "~pull, 2")
    saver.put_writes(first, [("c", "first"), ("c", "then")], "task-9", "~pull, 1")
    saver.put_writes(first, [("c", "input")], "task-5")
    ordered = ["input", "first", "then", "second"]
    assert [value for _, _, value in saver.get_tuple(first).pending_writes] == ordered
    history = saver.get_delta_channel_history(config=second, channels=["c"])
    assert [value for _, _, value in history["c"]["writes"]] == ordered


@pytest.mark.parametrize("hide", ["prune", "delete_for_runs"])
def test_what_is_hidden_still_tells_the_delta_channels_of_what_is_left(saver, hide):
    """LangGraph warns that a saver may lose them here. The log keeps what was written."""
    made = chain(saver, "t", [{"c": _DeltaSnapshot([1])}, {}, {}], run="old")
    for number, config in enumerate(made):
        saver.put_writes(config, [("c", [number])], "task")
    last = saver.put(made[-1], checkpoint(9, {}), {"run_id": "new"}, {})
    saver.prune(["t"]) if hide == "prune" else saver.delete_for_runs(["old"])
    assert [found.config for found in saver.list(at("t"))] == [last]
    assert saver.get_tuple(made[0]) is None
    history = saver.get_delta_channel_history(config=last, channels=["c"])["c"]
    assert (history["seed"].value, [value for _, _, value in history["writes"]]) == ([1], [[0], [1], [2]])


def test_deleting_hides_what_was_and_not_what_comes(saver):
    """A thread of the same name begins anew. Its positions are those of its content, hidden or not."""
    (config,) = chain(saver, "t", [{"a": 1}])
    chain(saver, "other", [{"a": 1}])
    saver.put_writes(config, [("a", 2)], "task")
    saver.delete_thread("t")
    assert saver.get_tuple(at("t")) is None
    assert (saver.positions("t"), saver.positions("none")) == ([1, 3], [])
    (config,) = chain(saver, "t", [{"a": 3}])
    found = saver.get_tuple(config)
    assert (found.checkpoint["channel_values"], found.pending_writes) == ({"a": 3}, [])


def test_what_changes_nothing_appends_nothing(saver, store):
    """Deleting, pruning and copying what is not there; what a task has written already."""
    (config,) = chain(saver, "t", [{"a": 1}])
    saver.put_writes(config, [("a", 2), (ERROR, "no")], "task")
    assert saver.get_tuple(config).pending_writes == [("task", ERROR, "no"), ("task", "a", 2)]
    with nothing_written(store):
        saver.delete_thread("none")
        saver.delete_for_runs(["none"])
        saver.delete_for_runs([])
        saver.prune(["t", "none"])
        saver.copy_thread("none", "t")
        saver.copy_thread("t", "t")
        saver.put_writes(config, [("a", 99)], "task")


def test_errors_and_interrupts_of_a_task_are_replaced_and_its_writes_are_not(saver):
    """As LangGraph's index of special writes says."""
    (config,) = chain(saver, "t", [{}])
    saver.put_writes(config, [("a", 1), (ERROR, "first")], "task")
    saver.put_writes(config, [("a", 2), (ERROR, "second")], "task")
    assert saver.get_tuple(config).pending_writes == [("task", ERROR, "second"), ("task", "a", 1)]


def test_a_copy_costs_one_small_event_and_goes_its_own_way(saver, store):
    """It is the thread as it was then; neither sees what the other does afterwards."""
    made = chain(saver, "t", [{"a": "x" * 1_000, "n": n} for n in range(20)])
    before = store.head().position
    saver.copy_thread("t", "copy")
    assert store.head().position == before + 1
    saver.put(made[-1], checkpoint(50, {"a": "theirs"}), {}, {"a": 50})
    saver.put(at("copy", "00000019"), checkpoint(51, {"a": "ours", "n": 19}), {}, {"a": 51})
    assert [found.checkpoint["id"] for found in saver.list(at("copy"), limit=2)] == ["00000051", "00000019"]
    assert saver.get_tuple(at("t")).checkpoint["channel_values"] == {"a": "theirs"}
    saver.delete_thread("t")
    assert saver.get_tuple(at("copy")).checkpoint["channel_values"] == {"a": "ours", "n": 19}


def test_values_of_any_size_come_back(saver, rng):
    """Larger than a value of working memory may be, and such as nothing can be made smaller of."""
    sizes = (0, 63, 64, 300_000, 5_000_000)
    values = [made for n in sizes for made in (rng.randbytes(n), "ü" * (n // 2), [{"n": m} for m in range(n // 100)])]
    chain(saver, "t", [{"a": value} for value in values])
    assert [found.checkpoint["channel_values"]["a"] for found in saver.list(at("t"))] == values[::-1]


def test_beyond_the_limits_nothing_is_written(saver, monkeypatch, store):
    """Of a channel, a checkpoint and writes; the message says that."""
    monkeypatch.setattr(threads, "BLOB_BYTES_MAX", 1_000)
    (config,) = chain(saver, "t", [{"a": "x" * 900}])
    with nothing_written(store):
        with pytest.raises(errors.LimitExceeded):
            saver.put(config, checkpoint(2, {"a": "x" * 1_100}), {}, {"a": 2})
        with pytest.raises(errors.LimitExceeded):
            saver.put_writes(config, [("a", "x" * 1_100)], "task")
        monkeypatch.setattr("mnemolog.adapters.support.graph_checkpoints.CHECKPOINT_BYTES_MAX", 1_500)
        with pytest.raises(errors.LimitExceeded):
            saver.put(config, checkpoint(2, {"a": "y" * 900, "b": "x" * 900}), {}, {"a": 2, "b": 2})
    assert values.BLOB_BYTES_MAX == 64 << 20


@dataclass
class Unlike:
    """What LangGraph's serialiser cannot hold without pickle."""

    made: object


def test_nothing_is_pickled_unless_a_serialiser_is_given_that_does(folder, saver, store):
    """And then it is that one which reads it, and no other."""
    unlike = lambda: None  # noqa: E731
    with pytest.raises(TypeError):
        saver.put(at("t"), checkpoint(1, {"a": {1, Unlike, type(unlike)}}), {}, {"a": 1})
    assert store.head().position == 0
    saver.put(at("p"), checkpoint(1, {"a": pickle.dumps([1])}), {}, {"a": 1})
    assert saver.get_tuple(at("p")).checkpoint["channel_values"]["a"] == pickle.dumps([1])
    assert isinstance(saver.serde, JsonPlusSerializer)
    assert not saver.serde.pickle_fallback


def test_it_shares_a_store_with_sessions(folder):
    """Each passes over the events of the other: turns, recall, replay, verify and status."""
    with MemoryStore.open(folder, model=None) as store, MnemologSaver(store) as saver:
        session = store.start_session("talk")
        session.record("user", "I like tea")
        chain(saver, "t", [{"a": "tea " * n} for n in range(5)])
        session.record("user", "and cake")
        assert [turn.text for turn in session.turns()] == ["I like tea", "and cake"]
        assert [hit.text for hit in store.recall("tea").hits] == ["I like tea"]
        assert [found.session for found in store.sessions()] == ["talk"]
        assert store.verify().findings == ()
        store.replay()
        assert saver.get_tuple(at("t")).checkpoint["channel_values"] == {"a": "tea " * 4}
    with pytest.raises(errors.StoreClosed):
        saver.get_tuple(at("t"))


def test_an_invalid_query_is_refused_with_nothing_written(saver, store):
    """One sentence each, as everywhere."""
    for why, call in {
        "thread_id": lambda: saver.get_tuple({"configurable": {}}),
        "checkpoint_id": lambda: saver.put_writes(at("t"), [("a", 1)], "task"),
        "keep_latest": lambda: saver.prune(["t"], strategy="keep_some"),
        "NUL": lambda: saver.put(at("a\0b"), checkpoint(1, {}), {}, {}),
    }.items():
        with pytest.raises(errors.InvalidInput, match=why):
            call()
    assert store.head().position == 0


async def test_the_saver_passes_every_capability_of_the_conformance_suite(tmp_path):
    """Base and extended, none skipped, on a store of its own for each."""
    made = iter(range(1_000))

    @checkpointer_test(name="MnemologSaver")
    async def savers():
        async with MnemologSaver.open(tmp_path / str(next(made))) as saver:
            yield saver

    report = await validate(savers)
    assert report.results.keys() == {capability.value for capability in ALL_CAPABILITIES}
    assert [failure for result in report.results.values() for failure in result.failures] == []
    assert all(result.passed for result in report.results.values())
    assert report.conformance_level() == "FULL"


SECRET = "the secret of Alice"


@pytest.mark.parametrize("kind", [ThreadCheckpointed, ThreadWritten])
def test_forgetting_one_position_removes_what_was_built_on_it_and_the_graph_continues(store, saver, kind):
    """From the checkpoint before, through LangGraph's own calls: nothing there is found to be damaged.

    In which order LangGraph's threads put checkpoints and writes is not ours to say: the position is looked for.
    """
    graph = talk(saver)
    for number in range(4):
        graph.invoke(said(number), at("t"))
    before = [state.values for state in graph.get_state_history(at("t"))]
    of_kind = [position for position in saver.positions("t") if store.audit.event(position).topic == kind.topic]
    named = of_kind[len(of_kind) // 2]
    would = store.forget(positions=[named], dry_run=True)
    report = store.forget(positions=[named])
    assert (report.counts, report.dependents) == (would.counts, would.dependents)
    left = [state.values for state in graph.get_state_history(at("t"))]
    assert len(left) > 0
    if kind is ThreadCheckpointed:  # On what was written behind one, nothing need be built.
        assert report.dependents > 0
        assert len(left) < len(before)
    assert left == before[-len(left) :]
    graph.invoke(said(9), at("t"))
    assert [state.values for state in graph.get_state_history(at("t"))][-len(left) :] == left
    assert store.verify(contents=True).findings == ()


@pytest.mark.parametrize("hidden", [False, True])
def test_what_is_forgotten_is_in_no_file_and_the_rest_stays(folder, encoder, hidden):
    """Of a thread and a namespace, deleted before or not; also in a store that had both open."""
    with (
        MemoryStore.open(folder, model=encoder, background=False) as store,
        MnemologSaver(store) as saver,
        MnemologStore(store) as items,
    ):
        (config, *_) = chain(saver, "t", [{"a": SECRET, "n": n} for n in range(5)])
        saver.put_writes(config, [("a", SECRET)], "task")
        chain(saver, "other", [{"a": "harmless"}])
        saver.copy_thread("t", "copy")
        items.put(("alice",), "k", {"text": SECRET})
        items.put(("bob",), "k", {"text": "harmless"})
        assert items.search((), query="secret")[0].value == {"text": SECRET}
        if hidden:
            saver.delete_thread("t")
            items.delete(("alice",), "k")
        assert store.forget(positions=[*saver.positions("t"), *items.positions(("alice",))]).pending is None
        for _ in range(2):
            assert saver.get_tuple(at("t")) is None
            assert list(saver.list(at("copy"))) == []
            assert saver.get_tuple(at("other")).checkpoint["channel_values"] == {"a": "harmless"}
            assert [item.key for item in items.search(())] == ["k"]
            saver.threads._index.rebuild()
        assert store.verify().findings == ()
        vector = encoder.encode([f'{{"text": "{SECRET}"}}'])
        left = (SECRET.encode(), vector.tobytes(), pack(vector).tobytes())
        for path in folder.rglob("*"):
            if path.is_file():
                assert not any(data in path.read_bytes() for data in left), path


PROCESSES, CHECKPOINTS, KILLS = 3, 15, 2


def child(*arguments):
    command = [sys.executable, "-m", "tests.adapters.langgraph.children", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def acknowledged(lines, put, wrote):
    """Note the numbers of what was put, and of what was written behind it."""
    for line in lines:
        what, number = line.split()
        (put if what == "put" else wrote).add(int(number))


def test_processes_on_one_thread_each_see_their_own_line_whole(folder, store, saver):
    """A value of one process is never a delta against one of another, and nothing is lost."""
    saver.put(at("t"), checkpoint(0, {"name": ["root"], "shared": "x" * 200}), {}, {"name": 0, "shared": 0})
    children = [child("put_some", folder, name, CHECKPOINTS) for name in "abc"[:PROCESSES]]
    for started in children:
        started.communicate()
    assert [started.returncode for started in children] == [0] * PROCESSES
    found = {item.config["configurable"]["checkpoint_id"]: item for item in saver.list(at("t"))}
    assert len(found) == PROCESSES * CHECKPOINTS + 1
    for name in "abc"[:PROCESSES]:
        for number in range(CHECKPOINTS):
            item = found[f"{number + 1:08d}{name}"]
            held = {"name": [name, *range(number)], "shared": "x" * 200}
            assert item.checkpoint["channel_values"] == held
            assert item.pending_writes == [(f"task-{name}", "name", number)]
    assert store.verify().findings == ()


def test_a_killed_process_loses_nothing_that_was_acknowledged(folder, rng):
    """Neither the checkpoint between `put` and `put_writes`, nor its base, is lost; the next one continues from it."""
    put, wrote = {0}, set()
    for _ in range(KILLS):
        with child("put_for_ever", folder) as started:
            acknowledged(itertools.islice(started.stdout, rng.randrange(3, 60)), put, wrote)
            started.kill()
            acknowledged(started.stdout, put, wrote)
        with MnemologSaver.open(folder) as saver:
            found = list(saver.list(at("t")))
            numbers = [int(item.config["configurable"]["checkpoint_id"]) for item in found]
            assert numbers == list(range(numbers[0], 0, -1))
            assert max(put) <= numbers[0] <= max(put) + 1
            for item, number in zip(found, numbers, strict=True):
                assert item.checkpoint["channel_values"]["messages"] == [f"message {n}" for n in range(number)]
                if number in wrote:
                    assert item.pending_writes == [(f"task-{number}", "messages", number)]
            put.add(numbers[0])


def test_first_calls_that_meet_are_all_recorded(race):
    """Checkpoints of one thread, and items of one namespace."""
    race(first_call, kept=put_in)
