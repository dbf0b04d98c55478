"""Keys: a write of a session and a switch are made once under theirs; an export is imported with those of its log."""

import pytest

from mnemolog import InvalidInput, MemoryStore, import_log
from mnemolog.domain import errors
from mnemolog.domain.request import request_key
from mnemolog.domain.session import session_stream
from tests.support import nothing_written, summary


@pytest.fixture
def trip(store):
    """A session with turns, a value, a task and a checkpoint."""
    session = store.session("trip")
    for text in ("one", "two", "three"):
        session.record("user", text)
    session.set("city", "Porto")
    session.set_task("book a train", total=3)
    session.checkpoint("booked")
    session.note("window seat")
    return session


WRITES = {
    "record": lambda store, trip: trip.record("user", "four").text,
    "record_many": lambda store, trip: [
        turn.text for turn in trip.record_many([{"role": "user", "content": text} for text in "ab"])
    ],
    "set": lambda store, trip: trip.set("city", "Lisbon"),
    "delete": lambda store, trip: trip.delete("city"),
    "clear": lambda store, trip: trip.clear(),
    "set_task": lambda store, trip: trip.set_task("book a bus").description,
    "update_task": lambda store, trip: trip.update_task(step=1).step,
    "note": lambda store, trip: trip.note("aisle seat"),
    "clear_notes": lambda store, trip: trip.clear_notes(),
    "checkpoint": lambda store, trip: trip.checkpoint("paid"),
    "restore": lambda store, trip: trip.restore("booked"),
    "delete_checkpoint": lambda store, trip: trip.delete_checkpoint("booked"),
    "rewind": lambda store, trip: trip.rewind(turns=2),
    "branch": lambda store, trip: trip.branch().id,
    "end": lambda store, trip: trip.end(),
    "start_session": lambda store, trip: store.start_session().id,
    "start a named session": lambda store, trip: store.start_session("boat").id,
    "session": lambda store, trip: store.session().id,
    "switch": lambda store, trip: store.switch(reason="reset", session=trip).id,
    "switch in place": lambda store, trip: store.switch(reason="rewind", session=trip, turns=1).id,
}


@pytest.mark.local
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_retry_with_the_key_of_its_request_writes_nothing(store, trip, write):
    """It returns what the first try returned, at once and after other events."""
    with request_key("r1"):
        first = write(store, trip)
    for between in (False, True):
        if between:
            store.session("other").record("user", "meanwhile")
            if not trip.at(store.head().position).ended:
                trip.record("user", "meanwhile, here")
        with nothing_written(store), request_key("r1"):
            assert write(store, trip) == first


@pytest.mark.local
def test_another_key_is_another_write(store, trip):
    """Two notes of the same words, wanted twice, are two notes."""
    for key in ("r1", "r2", "r2"):
        with request_key(key):
            trip.note("again")
    assert trip.notes() == ["window seat", "again", "again"]


@pytest.mark.local
def test_a_key_of_ones_own_comes_before_that_of_the_request(store, trip):
    """A turn keeps the key that its caller gave."""
    with request_key("r1"):
        assert trip.record("user", "four", key="mine").key == "mine"
        with pytest.raises(errors.DuplicateKey):
            trip.record("user", "five", key="mine")


@pytest.mark.local
def test_a_refused_write_takes_no_key(store, trip):
    """The same request may succeed later."""
    with request_key("r1"), pytest.raises(errors.CheckpointExists):
        trip.checkpoint("booked")
    trip.delete_checkpoint("booked")
    with request_key("r1"):
        assert trip.checkpoint("booked").name == "booked"


@pytest.mark.local
def test_a_retry_retracts_no_fact_that_came_later(store, trip):
    """It answers how many the first try retracted."""

    def undo(key):
        with request_key(key):
            return store.retract_facts(maker="extractor/1", reason="bad prompt")

    for n in range(3):
        trip.assert_fact(f"k/{n}", n, maker="extractor/1")
    assert undo("r1") == 3
    later, head = trip.assert_fact("k/4", 4, maker="extractor/1"), store.head()
    assert (undo("r1"), store.head()) == (3, head)
    assert undo("r2") == 4
    assert store.fact_history("k/4", scope="")[0].retracted > later.position


@pytest.mark.local
@pytest.mark.parametrize("name", ["set", "set_task", "note", "checkpoint"])
def test_a_retry_of_what_was_forgotten_is_refused(store, trip, name):
    """It would be written again."""
    with request_key("r1"):
        WRITES[name](store, trip)
    store.forget(session=trip)
    with request_key("r1"), pytest.raises(errors.ContentForgotten):
        WRITES[name](store, trip)


@pytest.fixture
def switched(store):
    """The session that the agent is in, with three turns."""
    session = store.switch("trip", reason="new", agent="assistant")
    for text in ("one", "two", "three"):
        session.record("user", text, key=text)
    return session


@pytest.mark.local
@pytest.mark.parametrize(
    "how", [{"reason": "compress"}, {"reason": "rewind", "turns": 1}, {"reason": "resume", "to": "trip"}]
)
def test_a_switch_in_place_is_made_once_under_its_key(store, switched, how):
    """However often it is asked for, and whatever has come after."""
    for _ in range(2):
        assert store.switch(**how, session=switched, key="k1").id == "trip"
        switched.record("user", "four", key="four")
    seen = [turn.text for turn in switched.turns()]
    assert seen == (["one", "two", "four"] if how["reason"] == "rewind" else ["one", "two", "three", "four"])
    assert [event.key for event in store.events() if event.stream == "agent/assistant"] == [None, "k1"]


def test_a_session_that_a_keyed_switch_made_up_is_found_again(store, switched):
    """Without the key another one would be started."""
    other = store.switch(reason="branch", session=switched, key="k1")
    store.switch("trip", reason="resume", agent="assistant")
    assert store.switch(reason="branch", session=switched, key="k1").id == other.id
    assert store.switch(reason="branch", session=switched).id != other.id


def test_a_key_of_another_switch_is_refused(store, switched):
    """Another reason, another session to go to or to leave, or none to go to. Nothing is written."""
    store.start_session("sea", agent="assistant")
    store.switch("plane", reason="new", session=switched, key="k1")
    store.switch("trip-2", reason="compress", session=switched, key="k2")
    with nothing_written(store):
        for other in (
            {"reason": "reset", "to": "plane", "key": "k1"},
            {"reason": "new", "to": "ship", "key": "k1"},
            {"reason": "new", "to": "plane", "session": "sea", "key": "k1"},
            {"reason": "compress", "session": "trip", "key": "k2"},
        ):
            with pytest.raises(errors.DuplicateKey):
                store.switch(**other, agent="assistant")


def test_each_agent_has_keys_of_its_own(store, switched):
    """The key is one of the stream that the switch lies in."""
    store.switch("a", reason="new", agent="one", key="k")
    assert store.switch("b", reason="new", agent="two", key="k").id == "b"


def test_a_session_may_work_for_another(store, switched):
    """It names it as its parent, sees nothing of it and moves no agent; after a restart as well."""
    helper = store.start_session("helper", agent="assistant", parent="trip")
    helper.record("user", "Look it up.")
    assert [turn.text for turn in helper.turns()] == ["Look it up."]
    assert helper.lineage() == ["helper"]
    assert store.current("assistant").id == "trip"
    assert summary(store, "helper").parent == "trip"
    assert summary(store, "helper").branched_at is None
    assert store.session("helper", agent="assistant", parent="trip").id == "helper"
    with pytest.raises(errors.SessionExists):
        store.start_session("helper", agent="assistant")
    with pytest.raises(errors.UnknownSession):
        store.start_session("other", parent="nobody")
    with MemoryStore.open(store.path, model=None, background=False) as again:
        assert [turn.text for turn in again.session("helper").turns()] == ["Look it up."]
        held = next(item for item in again.replay().sessions if item.session == "helper")
        assert (held.parent, held.branched_at) == ("trip", None)


def test_a_key_says_where_its_event_lies(store, switched, log):
    """Forgotten or not."""
    at = log.position_of(session_stream("trip"), "two")
    assert [turn.position for turn in store.turns("trip") if turn.text == "two"] == [at]
    assert log.position_of(session_stream("trip"), "five") is None
    store.forget(positions=[at])
    assert log.position_of(session_stream("trip"), "two") == at
    assert log.appends.transact(lambda tx: tx.position_of(session_stream("trip"), "two")) == at


@pytest.fixture
def exported(store, tmp_path):
    """The export of a store with two sessions, one of them without turns, and a forgotten turn."""
    first = store.start_session("a", title="the harbour")
    for text in ("I moved to Lisbon in March.", "Olá, Inês! ☕", "This is to be forgotten."):
        first.record("user", text)
    store.forget(positions=[first.turns()[-1].position])
    store.start_session("b", title="nothing was said here").set("city", {"name": "Lisbon"})
    store.audit.export(tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


@pytest.mark.local
def test_an_import_with_the_keys_of_the_source_answers(store, exported, tmp_path, run):
    """From the store itself, which is open, or from a copy of its keys; by the library and by the command."""
    store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    for number, keys in enumerate((store.path, tmp_path / "keys")):
        copy = tmp_path / f"copy{number}"
        done = import_log(exported, copy, keys=keys)
        assert (done.needs_keys, done.head) == (False, store.head())
        assert sorted(path.name for path in copy.iterdir()) == ["keys.db", "log.db"]
        with MemoryStore.open(copy, model=None, create=False) as again:
            assert again.verify(contents=True).sound
            assert again.replay() == store.replay()
            assert again.session("b").get("city") == {"name": "Lisbon"}
            wanted = store.recall("Lisbon", mode="text").hits[0]
            assert again.recall("Lisbon", mode="text").hits[0].text == wanted.text
    assert not run("import", tmp_path / "copy2", exported, "--keys", store.path, "--json").json["needs_keys"]


@pytest.mark.local
def test_wrong_keys_are_refused_and_leave_nothing_behind(store, exported, tmp_path, run):
    """Of another log, damaged, too old, missing; the message names the folder."""
    other = tmp_path / "other"
    MemoryStore.open(other, model=None, background=False).close()
    damaged, old, none = tmp_path / "damaged", tmp_path / "old", tmp_path / "none"
    for folder in (damaged, none):
        folder.mkdir()
    (damaged / "keys.db").write_bytes(b"no database at all")
    store.backup(tmp_path / "backup", keys=old)
    store.start_session("later").record("user", "this takes another key")
    store.audit.export(tmp_path / "later.jsonl")
    before = sorted(path.name for path in tmp_path.iterdir())
    for keys, export in ((other, exported), (damaged, exported), (none, exported), (old, tmp_path / "later.jsonl")):
        with pytest.raises(InvalidInput, match=str(keys)):
            import_log(export, tmp_path / "copy", keys=keys)
        assert run("import", tmp_path / "copy", export, "--keys", keys).returncode == 2
        assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "with `--keys FOLDER`" in run("import", tmp_path / "copy", exported).stdout


@pytest.mark.local
def test_keys_are_refused_where_there_are_none_to_give(store, exported, tmp_path, run):
    """For a log in clear text, and for conversations."""
    with MemoryStore.open(tmp_path / "plain", model=None, background=False, encrypt=False) as plain:
        plain.session("a").record("user", "hello")
        plain.audit.export(tmp_path / "plain.jsonl")
    with pytest.raises(InvalidInput, match="not encrypted"):
        import_log(tmp_path / "plain.jsonl", tmp_path / "copy", keys=store.path)
    (tmp_path / "said.jsonl").write_text('{"session": "s", "role": "user", "text": "hello"}\n')
    ran = run("import", tmp_path / "copy", tmp_path / "said.jsonl", "--keys", store.path).exited(2)
    assert "--keys needs an exported log" in ran.stderr
    assert not (tmp_path / "copy").exists()
