"""Tables that adapters follow the log with: items by namespace and key, and what `status` and `doctor` say of them.

Threads of checkpoints, with no framework at all: bytes in, bytes out.
"""

from contextlib import closing, contextmanager
from functools import partial

import pytest
import sqlalchemy as sa
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Items
from mnemolog.adapters.support.store_access import encoder_of, open_tables
from mnemolog.cli import main
from mnemolog.domain.events import RecordedEvent, TurnRecorded
from mnemolog.domain.forgetting import copied_from, with_what_is_built_on
from mnemolog.domain.items import ItemDeleted, ItemPut
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten
from mnemolog.forgetting.service import STEPS
from mnemolog.projections.history.states import Contents
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.database import SqlProjection, empty, fetch
from mnemolog.projections.sql.item_tables import FILE

SAID_FILE = "said.db"


class Said(SqlProjection):
    """What was said, by position."""

    name = "said/1"
    metadata = sa.MetaData()
    taken = 0

    def take(self, connection, events):
        for recorded in events:
            if isinstance(recorded.event, TurnRecorded):
                self.taken += 1
                connection.exec_driver_sql("INSERT INTO said VALUES (?, ?)", (recorded.position, recorded.event.text))

    def erase(self, connection, erased, *, upto):
        """Nothing is forgotten here."""

    def texts(self):
        with self.database.reading() as connection:
            return [row[0] for row in fetch(connection, "SELECT text FROM said ORDER BY position")]


sa.Table("said", Said.metadata, sa.Column("position", sa.Integer, primary_key=True), sa.Column("text", sa.Text))


def test_tables_follow_the_log_and_take_each_event_once(store, session):
    """Also in another process' stead."""
    session.record("user", "tea")
    one, two = open_tables(store, SAID_FILE, Said), open_tables(store, SAID_FILE, Said)
    assert one.catch_up() == store.head().position
    session.record("user", "cake")
    two.catch_up()
    one.catch_up()
    assert one.texts() == two.texts() == ["tea", "cake"]
    assert (one.taken, two.taken, one.position()) == (1, 1, 3)
    one.database.close()
    two.database.close()


def test_a_rebuild_puts_what_does_not_belong_there_out(store):
    """The log alone says what is in them."""
    store.start_session("s").record("user", "tea")
    tables = open_tables(store, SAID_FILE, Said)
    tables.catch_up()
    with tables.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO said VALUES (99, 'planted')")
    assert tables.texts() == ["tea", "planted"]
    assert tables.rebuild() == 2
    assert tables.texts() == ["tea"]
    tables.database.close()


def test_tables_that_are_emptied_meanwhile_are_refilled_before_they_are_read(store, monkeypatch, session):
    """While they catch up, and between that and the read. What was read before would leave out what comes before it."""
    for number in range(40):
        session.record("user", f"turn {number}")
    tables, other = open_tables(store, SAID_FILE, Said), open_tables(store, SAID_FILE, Said)
    tables.batch_max = 2
    real, left = tables.database.writing, [1, 2, 5]

    @contextmanager
    def writing():
        with real() as connection:
            yield connection
        left[:] = [times - 1 for times in left]
        if 0 in left:
            empty(other.database)

    monkeypatch.setattr(tables.database, "writing", writing)
    with tables.current() as connection:
        assert len(fetch(connection, "SELECT text FROM said")) == 40
    assert left == [-7, -6, -3], "the last time, the tables had been filled"
    tables.database.close()
    other.database.close()


def test_what_is_forgotten_elsewhere_leaves_the_tables_of_adapters_as_they_are(store):
    """At each step, for who reads them without a look at the log."""
    turn = store.session("s").record("user", "a turn")
    items, threads = Items(store), Threads(store)
    value = Typed("text", b"value")
    how = {"parent": None, "checkpoint": value, "metadata": value, "channels": {}, "changed": []}
    threads.checkpoint("t", "", "0001", **how)
    with items.batch() as batch:
        batch.put(("a",), "b", {"n": 1})
    assert threads.find("t", "", None) is not None

    def rows():
        found = []
        for database, table in ((items.tables.database, "items"), (threads._index.database, "checkpoints")):
            with database.reading() as connection:
                found.append(connection.exec_driver_sql(f"SELECT * FROM {table}").all())
        return found

    with items.batch():
        before, seen = rows(), []
    store.parts.forgetting.reached = lambda _: seen.append(rows())
    assert store.forget(positions=[turn.position]).complete
    assert seen == [before] * len(STEPS)
    assert [len(found) for found in before] == [1, 1]
    items.close()
    threads.close()


def test_tables_of_another_log_or_version_are_not_used(store, tmp_path):
    """Those of another log are set aside, those of another version made anew in place."""
    store.start_session("s").record("user", "tea")
    tables = open_tables(store, SAID_FILE, Said)
    tables.catch_up()
    tables.database.close()

    class Newer(Said):
        name = "said/2"

    newer = open_tables(store, SAID_FILE, Newer)
    assert (newer.position(), newer.texts()) == (0, [])
    newer.catch_up()
    newer.database.close()
    with MemoryStore.open(tmp_path / "other", model=None) as other:
        (other.path / "projections").mkdir(exist_ok=True)
        with dbapi2.connect(store.path / "projections" / SAID_FILE) as source:
            source.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        source.close()
        (other.path / "projections" / SAID_FILE).write_bytes((store.path / "projections" / SAID_FILE).read_bytes())
        theirs = open_tables(other, SAID_FILE, Newer)
        assert (theirs.position(), theirs.texts()) == (0, [])
        assert [item.state for item in Quarantine(StoreLayout(other.path).quarantine).items()] == ["other-log"]
        theirs.database.close()


def test_an_adapter_gets_the_log_the_clock_and_the_model_of_a_store(store, clock, encoder, tmp_path):
    """Those that the store itself goes by."""
    assert store.parts.log.head().position == store.head().position
    assert store.parts.clock is clock
    made = encoder_of(store)
    assert made is not None
    assert made.fingerprint == store.parts.projections.vectors().fingerprint
    with MemoryStore.open(tmp_path / "none", model=None) as bare:
        assert encoder_of(bare) is None


@pytest.fixture
def folder_with_items(folder):
    """A store that has an item, and is closed."""
    with MemoryStore.open(folder, model=None) as store, closing(Items(store)) as items:
        with items.batch() as batch:
            batch.put(("a",), "k", {"n": 1})
        with items.batch() as batch:
            assert batch.get(("a",), "k").value == {"n": 1}
    return folder


def execute(path, statement):
    with closing(dbapi2.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_tables_are_listed_where_there_are_any(folder_with_items):
    """In step, and behind when something was recorded that they have not read."""
    with MemoryStore.open(folder_with_items, model=None) as store:
        (found,) = store.status().tables
        assert (found.name, found.state, found.position, found.behind_events) == (FILE, "current", 1, 0)
        store.start_session("s")
        (found,) = store.status().tables
        assert (found.state, found.behind_events) == ("behind", store.head().position - 1)
        assert [item for item in store.admin.doctor().findings if item.what == "tables"] == []


@pytest.mark.parametrize(
    ("statement", "state", "severity"),
    [
        ("UPDATE tracking SET log_id = 'another'", "other-log", "problem"),
        ("UPDATE tracking SET position = 99", "ahead", "log"),
        ("UPDATE tracking SET digest = x'00'", "diverged", "log"),
        (None, "damaged", "problem"),
    ],
)
def test_unusable_tables_are_found_and_quarantined(folder_with_items, statement, state, severity):
    """And made anew by who asks next: nothing is lost."""
    path = folder_with_items / "projections" / FILE
    if statement is None:
        path.write_bytes(b"no database " * 1_000)
    else:
        execute(path, statement)
    with MemoryStore.open(folder_with_items, model=None) as store:
        assert store.status().tables[0].state == state
        (found,) = (item for item in store.admin.doctor().findings if item.what == "tables")
        assert (found.state, found.severity, found.where) == (state, severity, f"projections/{FILE}")
        (fixed,) = (item for item in store.admin.doctor(fix=True).findings if item.what == "tables")
        assert fixed.fixed
        assert store.status().tables == ()
        with closing(Items(store)) as items, items.batch() as batch:
            assert batch.get(("a",), "k").value == {"n": 1}
        assert store.status().tables[0].state == "current"


ALICE = ("users", "alice")


@pytest.fixture
def items(store):
    """The items of a store."""
    items = Items(store)
    yield items
    items.close()


def put(items, namespace, key, value, **how):
    with items.batch() as batch:
        batch.put(namespace, key, value, **how)


def get(items, namespace, key, **how):
    with items.batch() as batch:
        return batch.get(namespace, key, **how)


def search(items, *arguments, **how):
    with items.batch() as batch:
        return batch.search(*arguments, **how)


def topics(store):
    return [recorded.event.topic for recorded in store.events()]


def test_a_batch_reads_what_was_before_and_writes_at_its_end(items, store):
    """The last put of a key counts; deleting what is not there appends nothing."""
    with items.batch() as batch:
        batch.put(ALICE, "tea", {"n": 1})
        batch.put(ALICE, "tea", {"n": 2})
        batch.delete(ALICE, "none")
        assert batch.get(ALICE, "tea") is None
        assert store.head().position == 0
    assert topics(store) == [ItemPut.topic]
    found = get(items, ALICE, "tea")
    assert (found.namespace, found.key, found.value, found.score) == (ALICE, "tea", {"n": 2}, None)
    with items.batch() as batch:
        batch.delete(ALICE, "tea")
    assert topics(store) == [ItemPut.topic, ItemDeleted.topic]
    assert get(items, ALICE, "tea") is None


def test_a_query_ranks_by_the_model_of_the_store(items):
    """By the whole value, or by the fields that an item names; one with none comes last."""
    put(items, ALICE, "tea", {"text": "I like tea"})
    put(items, ALICE, "field", {"text": "rain", "noise": "x"}, paths=["text"])
    put(items, ALICE, "hidden", {"text": "rain"}, paths=[])
    found = search(items, ("users",), query='{"text": "rain"}')
    assert [item.key for item in found] == ["field", "tea", "hidden"]
    assert found[0].score == pytest.approx(1.0, abs=1e-5)
    assert found[2].score is None
    assert [item.key for item in search(items, ("users",), query="rain", where={"text": {"$ne": "rain"}})] == ["tea"]


def rows_of(tables):
    with tables.database.reading() as connection:
        return connection.exec_driver_sql("SELECT * FROM items ORDER BY namespace, key").all()


def test_in_any_history_forgetting_leaves_the_rows_of_a_rebuild(items, store, clock, rng):
    """Values that were replaced come back, with the time since when they are there; other namespaces are not read."""
    for number in range(120):
        namespace, key = ("users", rng.choice("ab")), rng.choice("xyz")
        match rng.choice(["put", "put", "put", "get", "delete", "forget", "wait"]):
            case "put":
                put(items, namespace, key, {"n": number}, ttl_s=rng.choice([None, 50]))
            case "get":
                get(items, namespace, key)
            case "delete":
                with items.batch() as batch:
                    batch.delete(namespace, key)
            case "wait":
                clock.advance(seconds=20)
            case "forget" if positions := items.positions(namespace):
                store.forget(positions=rng.sample(positions, min(len(positions), 2)))
                items.tables.catch_up()
                found = rows_of(items.tables)
                items.tables.rebuild()
                assert found == rows_of(items.tables)


def test_the_vectors_of_items_go_when_one_is_forgotten_and_stay_when_a_turn_is(items, store):
    """Whose a vector is cannot be told: all are computed again when they are needed."""
    turn = store.session("s").record("user", "a turn")
    put(items, ALICE, "tea", {"text": "I like tea"})
    search(items, query="tea")

    def vectors():
        with items.tables.database.reading() as connection:
            return connection.exec_driver_sql("SELECT count(*) FROM embeddings").scalar_one()

    store.forget(positions=[turn.position])
    assert vectors() == 1
    store.forget(positions=items.positions(ALICE))
    assert (vectors(), search(items, query="tea")) == (0, [])


META = Typed("json", b"{}")


@pytest.fixture
def threads(store):
    """The threads of a store."""
    threads = Threads(store)
    yield threads
    threads.close()


def put_checkpoint(threads, thread, number, parent, ns="", metadata=META, **channels):
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
        parent = put_checkpoint(threads, thread, number, parent, said=said, topic="the weather")
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
    put_checkpoint(threads, "copy", 7, "0003", other="nothing that was said before")
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
    put_checkpoint(threads, "t", 0, None, said="anew")
    put_checkpoint(threads, "t", 5, "0000", said="anew and on")
    store.forget(positions=[threads.positions("t")[0]])
    assert seen(threads, "t") == ["0000", "0005"]


def test_a_checkpoint_that_was_replaced_is_back_when_the_later_one_is_forgotten(threads, store):
    """Also in copies, and with the writes after it: as a rebuild has them."""
    put_checkpoint(threads, "t", 0, None, said="first")
    threads.write("t", "", "0000", "task", "", [(-1, "said", Typed("text", b"first"))])
    for word in (b"second", b"first"):  # Of these the first one counts.
        threads.write("t", "", "0000", "task", "", [(0, "said", Typed("text", word))])
    put_checkpoint(threads, "t", 0, None, said="second")
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
        told[thread, put_checkpoint(threads, thread, number, parent, **channels)] = channels
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
