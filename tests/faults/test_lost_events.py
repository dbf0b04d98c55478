"""A database that has lost events, as after a fail-over to a standby that was behind: an older base backup restored."""

import json
import shutil
import uuid
from contextlib import suppress

import pytest

from mnemolog import MemoryStore, errors
from tests.e2e.conftest import run  # noqa: F401
from tests.support import HashEncoder

pytestmark = [pytest.mark.promise("P29"), pytest.mark.timeout(7200)]


KEPT, LOST = 4, 6
"""Turns before the base backup, and after it."""


class Node:
    """A local folder of a log, and the turns that it has recorded."""

    def __init__(self, server, log, folder):
        self._place = {"path": server.url, "log": log, "local": folder}
        self.folder = folder

    def open(self):
        return MemoryStore.open(**self._place, model=HashEncoder(), background=False, encrypt=False)

    def record(self, text, count):
        with self.open() as store:
            record(store, text, count)


def record(store, text, count):
    session = store.session("trip")
    for n in range(count):
        session.record("user", f"{text} number{n}")


@pytest.fixture
def new_node(stoppable, tmp_path):
    """Make nodes of one new log, by name."""
    log = uuid.uuid4().hex
    return lambda name: Node(stoppable, log, tmp_path / name)


@pytest.fixture
def node(new_node):
    return new_node("node")


@pytest.fixture
def other(new_node):
    return new_node("other")


def set_back(server, store):
    """Record turns, and set the server back to before them: positions 6 to 11 are lost."""
    record(store, "kept", KEPT)
    kept = server.base_backup()
    record(store, "lost", LOST)
    server.restore(kept)


ENDS = "the log ends at position 5; this node has seen position 11: the database lost events 6 to 11"
REUSED = (
    "the log has another event at position 11 than this node has seen there: the database lost events, and others took "
    "their positions"
)


@pytest.mark.parametrize("reused", [False, True], ids=["lost", "reused"])
def test_running_nodes_stop_and_neither_answer_from_lost_history_nor_append(stoppable, node, other, new_node, reused):
    """The next read or append of each raises: what it remembers may be lost."""
    message, reading = REUSED if reused else ENDS, new_node("reading")
    with node.open() as store, reading.open() as reader:
        session = store.session("trip")
        record(store, "kept", KEPT)
        reader.recall("number1")
        kept = stoppable.base_backup()
        record(store, "lost", LOST)
        reader.head()
        stoppable.restore(kept)
        if reused:
            other.record("new", LOST + 3)
        for call in (
            *[lambda: session.record("user", "into a log that lost events")] * 2,
            lambda: reader.recall("number1"),
            lambda: reader.turns("trip"),
            reader.head,
            lambda: reader.session("trip"),
        ):
            with pytest.raises(errors.StoreReplaced) as caught:
                call()
            assert str(caught.value) == message
    with other.open() as store:
        assert store.head().position == (14 if reused else 5)
        assert "into a log that lost events" not in {turn.text for turn in store.turns("trip")}


@pytest.mark.parametrize("reused", [False, True], ids=["lost", "reused"])
def test_nodes_that_are_opened_later_neither_read_nor_append(stoppable, other, new_node, reused):
    """Whether their views are missing, behind the lost part or within it; afterwards no lost turn is served."""
    nodes = {reads: new_node(reads) for reads in ("never", "before", "after")}
    with nodes["never"].open() as store, nodes["before"].open() as before, nodes["after"].open() as after:
        record(store, "kept", KEPT)
        before.recall("number1")
        kept = stoppable.base_backup()
        record(store, "lost", LOST)
        before.head()
        after.recall("number1")
        after.admin.catch_up_vectors()
    stoppable.restore(kept)
    if reused:
        other.record("new", LOST + 3)
    message = REUSED if reused else ENDS
    for reads, node in nodes.items():
        with node.open() as store:
            check_opened_later(store, reads, message)
    with nodes["after"].open() as store:
        assert store.admin.doctor(accept_loss=True, reason="the primary is gone").healthy
    for reads, node in nodes.items():
        with node.open() as store:
            for mode in ("text", "vector", "hybrid"):
                found = {hit.text for hit in store.recall("number1", k=50, mode=mode).hits}
                assert not [text for text in found if text.startswith("lost")]
            texts = [turn.text for turn in store.turns("trip")]
            assert texts == [f"kept number{n}" for n in range(KEPT)] + [
                f"new number{n}" for n in range(9 if reused else 0)
            ]
            assert any(item.was == "views.db" for item in store.admin.quarantine().items()) == (reads == "after")
            assert "the primary is gone" in store.verify().accepted[-1]
            assert store.verify().sound


def check_opened_later(store, reads, message):
    """Nothing is read or appended, and the doctor names the lost turns where there are any."""
    for _ in range(2):
        with pytest.raises(errors.StoreReplaced) as caught:
            store.session("trip").record("user", "into a log that lost events")
        assert str(caught.value) == message
        assert "`admin.doctor()`" in caught.value.hint
    assert any(warning.startswith(message) for warning in store.status().warnings)
    finding = store.admin.doctor().findings[0]
    assert (finding.severity, finding.state, finding.why) == (
        "log",
        "ahead" if message == ENDS else "diverged",
        message,
    )
    has_them = "6 turns from position 6 to 11 are still in projections/views.db" in finding.matters
    assert has_them == (reads == "after")
    assert ("this store has no turns" in finding.matters) != has_them
    for call in (lambda: store.recall("number1"), lambda: store.turns("trip"), store.head):
        with pytest.raises(errors.HistoryLost):
            call()
    assert not store.verify().sound


def test_a_crash_of_the_server_may_take_what_was_not_synced(stoppable, node):
    """With NORMAL, once by this folder: a process that is open stops, the next one names the loss and goes on."""
    with MemoryStore.open(**node._place, model=None, background=False, encrypt=False, synchronous="NORMAL") as store:
        set_back(stoppable, store)
        with pytest.raises(errors.StoreReplaced):
            store.head()
    with node.open() as store:
        assert store.session("trip").record("user", "goes on").position == 7
        assert "11:" in store.status().warnings[0]
        assert store.verify().findings[0].detail == store.status().warnings[0]


def test_a_node_that_saw_none_of_the_lost_events_keeps_recording(stoppable, node, other):
    """It has no evidence and no reason to stop; the one that wrote the lost events does."""
    with node.open() as store, other.open() as reader:
        record(store, "kept", KEPT)
        assert len(reader.turns("trip")) == KEPT
        kept = stoppable.base_backup()
        record(store, "lost", LOST)
        stoppable.restore(kept)
        assert reader.session("trip").record("user", "goes on").position == 6
        with pytest.raises(errors.StoreReplaced, match="lost events 7 to 11"):
            store.session("trip").record("user", "no")


def test_a_node_that_was_opened_while_the_server_was_away_stops_when_it_answers(stoppable, node):
    """It answers from its views alone, and says so; then it finds that the log does not have what it has seen."""
    with node.open() as store:
        record(store, "kept", KEPT)
        kept = stoppable.base_backup()
        record(store, "lost", LOST)
        store.recall("number1")
    stoppable.kill()
    with node.open() as store:
        assert store.recall("number1").stale is not None
        stoppable.restore(kept)
        for call in (lambda: store.recall("number1"), lambda: store.session("trip")):
            with pytest.raises(errors.StoreReplaced) as caught:
                call()
            assert str(caught.value) == ENDS


def test_a_log_that_is_gone_is_not_created_again(stoppable, node):
    """The base backup is older than the log. A new one would hand out its positions from the first."""
    kept = stoppable.base_backup()
    node.record("lost", LOST)
    stoppable.restore(kept)
    with pytest.raises(errors.StoreReplaced, match=r"there is no log .*; this node has seen position 7 of it"):
        node.open()
    shutil.move(node.folder / "head.json", node.folder.parent)
    with node.open() as store:
        assert store.head().position == 0


def test_the_commands_name_the_lost_events_and_the_next_step(stoppable, node, run):  # noqa: F811
    """`record` refuses, `status` warns, `doctor` names the turns and the command, which works as printed."""
    with node.open() as store:
        store.recall("nothing yet")
        set_back(stoppable, store)
        with suppress(errors.StoreReplaced):
            store.head()
    node_ = str(node.folder)
    refused = run("record", node_, "trip", "no")
    assert refused.returncode != 0
    assert ENDS in refused.stderr.replace("\n", " ")
    assert f"mnemolog doctor {node_}" in refused.stderr.replace("\n", " ")
    assert ENDS in json.loads(run("status", node_, "--json").stdout)["warnings"][0]
    found = json.loads(run("doctor", node_, "--json").stdout)["findings"][0]
    assert f"`mnemolog doctor {node_} --accept-loss --reason REASON`" in found["action"]
    assert run("doctor", node_, "--accept-loss", "--reason", "gone").returncode == 0
    assert run("record", node_, "trip", "goes on").returncode == 0


@pytest.mark.promise("P29", "restored base backups")
def test_an_older_base_backup_is_always_found(stoppable, tmp_path, rng, tries):
    """Whatever the nodes did before, and whoever appends afterwards: each that has seen lost events stops."""
    for number in range(tries):
        log, nodes = uuid.uuid4().hex, []
        for n in range(3):
            nodes.append(Node(stoppable, log, tmp_path / f"{number}-{n}"))
        stores = [node.open() for node in nodes]
        record(stores[0], "kept", rng.randint(1, 5))
        kept, before = stoppable.base_backup(), stores[0].head().position
        seen = [before if rng.random() < 0.5 else 0 for _ in stores]
        for _ in range(rng.randint(1, 6)):
            who = rng.randrange(3)
            did = rng.choice([lambda s: record(s, "lost", 1), lambda s: s.recall("lost"), lambda s: s.head()])
            did(stores[who])
            if stores[who].parts.log.engine.seen.known.position > before:
                seen[who] = stores[who].parts.log.engine.seen.known.position
        if max(seen) <= before:
            record(stores[0], "lost", 1)
            seen[0] = before + 1
        closed = [rng.random() < 0.5 for _ in stores]
        for store, is_closed in zip(stores, closed, strict=True):
            if is_closed:
                store.close()
        stoppable.restore(kept)
        if rng.random() < 0.5:
            Node(stoppable, log, tmp_path / f"{number}-new").record("new", rng.randint(1, 12))
        found = 0
        for n, store in enumerate(stores):
            if seen[n] <= before:
                continue
            if closed[n]:
                store = stores[n] = nodes[n].open()
            with pytest.raises(errors.StoreReplaced, match="the database lost"):
                rng.choice([lambda s: record(s, "no", 1), lambda s: (s.head(), record(s, "no", 1))])(store)
            found += 1
        assert found, (number, seen)
        for store in stores:
            store.close()
        shutil.rmtree(kept)
