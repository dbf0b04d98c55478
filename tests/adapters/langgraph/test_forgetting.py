"""What is forgotten of threads and items is in no file of the store any more."""

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.langgraph import MnemologSaver, MnemologStore
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten
from mnemolog.projections.sql.embeddings import pack
from tests.adapters.langgraph.checkpoints import at, chain
from tests.adapters.langgraph.graphs import said, talk

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
