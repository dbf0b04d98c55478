"""Threads of checkpoints, with no framework at all: bytes in, bytes out."""

from functools import partial

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.cli import main
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.forgetting import copied_from, with_what_is_built_on
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten
from mnemolog.projections.history.states import Contents

META = Typed("json", b"{}")


@pytest.fixture
def threads(store):
    """The threads of a store."""
    threads = Threads(store)
    yield threads
    threads.close()


def put(threads, thread, number, parent, ns="", metadata=META, **channels):
    """Put checkpoint `number` behind another one, with the text of channels. Return its id."""
    threads.checkpoint(
        thread,
        ns,
        f"{number:04d}",
        parent=parent,
        checkpoint=Typed("text", b"checkpoint %d" % number),
        metadata=metadata,
        channels={name: partial(Typed, "text", text.encode()) for name, text in channels.items()},
        changed=channels.keys(),
    )
    return f"{number:04d}"


def line(threads, thread, count, *, first=0, parent=None):
    """Put checkpoints one behind the other, each with all that was said so far, and a write behind each."""
    for number in range(first, first + count):
        said = "".join(f"sentence {n} of a long talk. " for n in range(number + 1))
        parent = put(threads, thread, number, parent, said=said, topic="the weather")
        threads.write(thread, "", parent, "task", "", [(0, "said", Typed("text", b"next"))])


def seen(threads, thread):
    """The ids of the checkpoints of a thread; every one of them can be read, one by one as well."""
    listed = list(threads.listed(thread=thread))
    for found in listed:
        assert threads.find(thread, found.ns, found.id) == found
        threads.history(thread, found.ns, found.id, ["said", "other"])
    assert threads.find(thread, "", None) == (listed[0] if listed else None)
    return [found.id for found in reversed(listed)]


@pytest.mark.parametrize("named", [0, 3, 9])
def test_forgetting_one_checkpoint_takes_what_is_built_on_it_and_leaves_the_rest(threads, store, named):
    """The plan says so before; the thread then ends before it, in this process and in one that is opened anew."""
    line(threads, "t", 10)
    line(threads, "other", 3)
    position = threads.positions("t")[2 * named]
    would = store.forget(positions=[position], dry_run=True)
    left = 10 - named
    assert (would.counts, would.dependents) == (
        {ThreadCheckpointed.topic: left, ThreadWritten.topic: left},
        2 * left - 1,
    )
    assert len(seen(threads, "t")) == 10
    report = store.forget(positions=[position])
    assert (report.counts, report.dependents, report.complete) == (would.counts, would.dependents, True)
    expected = [f"{number:04d}" for number in range(named)]
    assert seen(threads, "t") == expected
    assert seen(threads, "other") == ["0000", "0001", "0002"]
    assert (
        threads.positions("t") == [item.position for item in store.events() if item.stream == "thread/t"][: 2 * named]
    )
    threads._index.rebuild()
    assert seen(threads, "t") == expected
    assert store.verify(contents=True).findings == ()
    assert store.forget(positions=[position]).events == 0


def test_a_thread_continues_after_what_was_forgotten(threads, store):
    """With a parent that is gone, all that the next one has is stored whole: it needs nothing of it. Branches stay."""
    line(threads, "t", 5)
    store.forget(positions=[threads.positions("t")[4]])
    line(threads, "t", 3, first=5, parent="0004")
    assert seen(threads, "t") == ["0000", "0001", "0005", "0006", "0007"]
    assert threads.find("t", "", None).values["said"].data.endswith(b"sentence 7 of a long talk. ")
    line(threads, "t", 2, first=8, parent="0001")
    assert seen(threads, "t")[-2:] == ["0008", "0009"]
    store.forget(positions=[threads.positions("t")[4]])
    assert seen(threads, "t") == ["0000", "0001", "0008", "0009"]


def test_copies_lose_what_is_built_on_it_and_keep_what_is_not(threads, store):
    """Also a copy of a copy, and what either has appended since."""
    line(threads, "t", 4)
    threads.copy("t", "copy")
    line(threads, "copy", 2, first=4, parent="0003")
    line(threads, "copy", 2, first=8, parent="0000")
    put(threads, "copy", 7, "0003", other="nothing that was said before")
    threads.write("copy", "", "0002", "late", "", [(0, "said", Typed("text", b"late"))])
    threads.copy("copy", "again")
    line(threads, "again", 1, first=10, parent="0005")
    threads.delete("t")
    would = store.forget(positions=[threads.positions("t")[2]], dry_run=True)
    assert would.counts == {ThreadCheckpointed.topic: 7, ThreadWritten.topic: 7}
    assert store.forget(positions=[threads.positions("t")[2]]).complete
    assert seen(threads, "copy") == seen(threads, "again") == ["0000", "0008", "0009"]
    assert store.verify(contents=True).findings == ()


def test_forgetting_what_was_written_takes_the_steps_that_it_led_to(threads, store):
    """Their channels may be told by it. The checkpoint itself was there before, and stays, with the other writes."""
    line(threads, "t", 3)
    threads.write("t", "", "0001", "other", "", [(0, "other", Typed("text", b"stays"))])
    store.forget(positions=[threads.positions("t")[3]])
    assert seen(threads, "t") == ["0000", "0001"]
    assert [found.task for found in threads.find("t", "", "0001").writes] == ["other"]


def test_a_checkpoint_that_was_put_again_stands_for_itself(threads, store):
    """What came after the one that it replaced goes with that one, what comes after it does not."""
    line(threads, "t", 2)
    put(threads, "t", 0, None, said="anew")
    put(threads, "t", 5, "0000", said="anew and on")
    store.forget(positions=[threads.positions("t")[0]])
    assert seen(threads, "t") == ["0000", "0005"]


def test_a_checkpoint_that_was_replaced_is_back_when_the_later_one_is_forgotten(threads, store):
    """Also in copies, and with the writes after it: as a rebuild has them."""
    put(threads, "t", 0, None, said="first")
    threads.write("t", "", "0000", "task", "", [(-1, "said", Typed("text", b"first"))])
    for word in (b"second", b"first"):  # Of these the first one counts.
        threads.write("t", "", "0000", "task", "", [(0, "said", Typed("text", word))])
    put(threads, "t", 0, None, said="second")
    threads.write("t", "", "0000", "task", "", [(-1, "said", Typed("text", b"second"))])
    threads.copy("t", "copy")
    threads.copy("t", "copy")

    def said(thread):
        found = threads.find(thread, "", "0000")
        return found.values["said"].data, [write.value.data for write in found.writes]

    assert [said("t"), said("copy")] == [(b"second", [b"second", b"second"])] * 2
    store.forget(positions=[threads.positions("t")[place] for place in (2, 4, 5)])
    for _ in range(2):
        assert [said("t"), said("copy")] == [(b"first", [b"first", b"first"])] * 2
        threads._index.rebuild()


def test_a_checkpoint_that_is_made_while_its_parent_is_forgotten_can_be_read(threads, store, monkeypatch):
    """The request may come when all is ready to be appended."""
    line(threads, "t", 3)
    named, real, done = threads.positions("t")[0], Contents.changed, []

    def changed(self, *arguments):
        if not done:
            done.append(store.forget(positions=[named]))
        return real(self, *arguments)

    monkeypatch.setattr(Contents, "changed", changed)
    line(threads, "t", 2, first=3, parent="0002")
    assert done[0].counts[ThreadCheckpointed.topic] == 3
    assert seen(threads, "t") == ["0003", "0004"]


def test_readers_never_meet_what_is_half_forgotten(threads, store):
    """At no step, neither with an index that was there before nor by one of another process."""
    line(threads, "t", 6)
    found = threads.listed(thread="t")
    assert next(found).id == "0005"
    seen_then = {}

    def look(reached):
        with MemoryStore.open(store.path, model=None, background=False) as other:
            theirs = Threads(other)
            seen_then[reached] = [seen(threads, "t"), seen(theirs, "t")]
            theirs.close()

    store.parts.forgetting.reached = look
    store.forget(positions=[threads.positions("t")[4]])
    steps = ["requested", "destroyed", "recorded", "wiped", "purged", "completed"]
    assert seen_then == dict.fromkeys(steps, [["0000", "0001"]] * 2)
    assert [item.id for item in found] == ["0001", "0000"]


def test_the_command_says_what_goes_along(threads, store, capsys, monkeypatch):
    """Before anything is done."""
    line(threads, "t", 4)
    position = threads.positions("t")[2]
    monkeypatch.setattr("sys.argv", ["mnemolog", "forget", str(store.path), "--position", str(position), "--dry-run"])
    with pytest.raises(SystemExit):
        main()
    said = capsys.readouterr().out
    assert "3 thread.written.v1" in said
    assert "5 of them were not named: they depend on events that were, and are forgotten with them" in said
    assert "6 events would be forgotten" in said


def test_in_any_history_what_remains_depends_on_nothing_forgotten(threads, store, rng):
    """Random threads, branches, copies and requests: all that can be listed can be read, and says what it was."""
    told = {}
    for number in range(60):
        thread = rng.choice("tuv")
        known = [name for of, name in told if of == thread]
        parent = rng.choice([*known, None])
        before = told.get((thread, parent), {})
        channels = {**before, rng.choice("ab"): f"{number} " * rng.randrange(1, 60), "c": str(number % 4)}
        told[thread, put(threads, thread, number, parent, **channels)] = channels
        if rng.random() < 0.1:
            source, target = rng.choice(["tu", "uv", "vt"])
            threads.copy(source, target)
            told |= {(target, name): held for (of, name), held in told.items() if of == source}
        if rng.random() < 0.1 and (content := threads.positions(rng.choice("tuv"))):
            store.forget(positions=rng.sample(content, min(len(content), 2)))
            told = {name: held for name, held in told.items() if threads.find(name[0], "", name[1])}
            found = list(threads.listed())
            threads._index.rebuild()
            assert found == list(threads.listed())
    for thread in "tuv":
        for found in threads.listed(thread=thread):
            held = {name: value.data.decode() for name, value in found.values.items()}
            assert held == told[thread, found.id]
    assert store.verify(contents=True).findings == ()


def test_what_is_built_on_what_is_a_matter_of_the_events_alone():
    """Values that are kept or differ, parents, and writes; in the order of the log."""
    events = [
        ThreadCheckpointed(id="1", checkpoint=None, metadata=None),
        ThreadCheckpointed(id="2", parent="1", checkpoint=None, metadata=None),
        ThreadWritten(checkpoint="2", task="", writes=[]),
        ThreadCheckpointed(id="3", checkpoint=None, metadata=None, kept={"a": 2}),
        ThreadCheckpointed(id="4", checkpoint=None, metadata=None),
    ]
    recorded = [
        RecordedEvent(position=n, stream="thread/t", version=n, recorded_at=0, key=None, event=event)
        for n, event in enumerate(events, start=1)
    ]
    for named, gone in (({1}, [1, 2, 3, 4]), ({2}, [2, 3, 4]), ({3}, [3]), ({5}, [5]), ((), [])):
        assert [item.position for item in with_what_is_built_on(recorded, named)] == gone
    pairs = [("b", "c"), ("a", "b"), ("x", "y")]
    assert copied_from({"a"}, pairs) == {"a", "b", "c"}
