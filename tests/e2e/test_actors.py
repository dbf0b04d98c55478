"""Who did it: each event has the name of the actor that appended it, and whoever looks at the history sees it."""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mnemolog import AsyncMemoryStore, DuplicateKey, InvalidInput, MemoryStore, acting_as, import_log, restore_backup
from mnemolog.domain.request import current_actor, request_key
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE
from tests.support import WAIT_S, nothing_written, wait_until

pytestmark = pytest.mark.local


def actors(store):
    """The actor of every event, in order."""
    return [recorded.event.actor for recorded in store.events()]


def test_every_event_has_the_name_of_who_appended_it(store):
    """Turns, values, switches, forgetting: one name for each call, and none where nobody was named."""
    store.session("trip")
    with acting_as("alice"):
        store.record("trip", "user", "We moved to Lisbon.", key="k")
        with acting_as("bob"):
            store.session("trip").set("city", "Lisbon")
        store.switch("work", reason="new", agent="assistant")
    with acting_as("dave"), pytest.raises(DuplicateKey):  # It leaves no actor behind for the next one.
        store.record("trip", "user", "We moved to Porto.", key="k")
    store.record("trip", "user", "It is warm.")
    with acting_as("carol"):
        report = store.forget(positions=[2])
    assert report.complete
    found = actors(store)
    # The turn of alice at 2 is forgotten, and her name with it: content is sealed as a whole.
    assert found[:6] == ["", "", "bob", "alice", "alice", ""]
    assert set(found[6:]) == {"carol"}
    assert current_actor() == ""


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 300, None])
def test_an_actor_is_a_label(name):
    """It is printed on a line of its event, and never content."""
    with pytest.raises(InvalidInput), acting_as(name):
        pass


def test_threads_that_commit_together_each_record_their_own_actor(store):
    """The thread that leads a group runs the work of others: theirs is not recorded as its own."""
    for number in range(8):
        store.session(f"s{number}")

    def talk(number):
        with acting_as(f"actor-{number}"):
            for turn in range(25):
                store.record(f"s{number}", "user", f"turn {turn}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(talk, range(8)))
    recorded = [item for item in store.events() if item.event.topic == "turn.recorded.v1"]
    assert len(recorded) == 200
    assert all(item.event.actor == item.stream.replace("session/s", "actor-") for item in recorded)


def test_notes_that_are_committed_together_belong_each_to_its_own_request(store):
    """A retry finds the note of its request, whoever led the group, and another request with that key is refused."""
    session, appends = store.session("trip"), store.parts.log.appends
    held, released = threading.Event(), threading.Event()

    def hold(_):
        held.set()
        released.wait(WAIT_S)

    def note(name):
        with request_key(name, f"digest of {name}"):
            session.note(name)

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(appends.transact, hold)]
        held.wait(WAIT_S)
        asked += [pool.submit(note, name) for name in "abc"]
        wait_until(lambda: len(appends._queue._queue) == len(asked), what="a group of three notes")
        released.set()
        assert [one.result() for one in asked] == [None] * 4
    with nothing_written(store):
        for name in "abc":
            note(name)
            with request_key(name, "digest of another"), pytest.raises(DuplicateKey):
                session.note("other")


async def test_calls_of_the_asyncio_store_keep_the_actor_of_their_task(folder):
    """Two tasks at a time have two actors."""

    async def talk(store, name):
        with acting_as(name):
            session = await store.session(name)
            for number in range(10):
                await session.record("user", f"turn {number}")

    async with AsyncMemoryStore.open(folder, model=None) as store:
        await asyncio.gather(talk(store, "alice"), talk(store, "bob"))
        assert all([item.event.actor == item.stream.removeprefix("session/") async for item in store.events()])


def test_a_retry_by_another_actor_is_still_a_retry(store):
    """Keys and repeated switches compare what happened, not who did it."""
    with acting_as("alice"):
        trip = store.session("trip")
        turn = trip.record("user", "hello", key="t1")
        store.switch("branch", reason="branch", session="trip", agent="assistant")
        trip.branch("side")
    with nothing_written(store):
        for name in ("alice", "bob"):
            with acting_as(name):
                assert store.record("trip", "user", "hello", key="t1") == turn
                assert store.switch("branch", reason="branch", session="trip", agent="assistant").id == "branch"
                assert store.session("trip").branch("side").id == "side"
        assert store.record("trip", "user", "hello", key="t1") == turn
        assert store.session("trip").branch("side").id == "side"


def test_the_timeline_one_event_and_the_preview_of_a_switch_name_the_actor(store, folder, run):
    """In the library and on the command line. A text cannot pretend to have one: descriptions fold white space."""
    with acting_as("alice"):
        store.session("trip").record("user", "hello")
        planned = store.preview_switch("next", reason="new", agent="assistant").events
    moment = list(store.audit.timeline())[-1]
    assert moment.actor == "alice"
    assert json.loads(moment.to_json())["actor"] == "alice"
    assert str(moment).endswith("user: hello  (by alice)")
    assert store.audit.event(2).event.actor == "alice"
    assert {item.event.actor for item in planned} == {"alice"}
    assert "user: hello  (by alice)" in run("replay", folder).stdout
    assert "\nactor        alice\n" in run("show", folder, "2").stdout
    assert run("show", folder, "2", "--json").json["event"]["actor"] == "alice"
    lines = run("replay", folder, "--jsonl").stdout.splitlines()
    assert [json.loads(line)["actor"] for line in lines] == ["alice", "alice"]
    store.record("trip", "user", "hello  (by admin)")
    assert "  (by" not in list(store.audit.timeline())[-1].columns()[-1]


def test_receipts_name_who_asked(store):
    """A recall and a context are answered for somebody."""
    store.session("trip").record("user", "We moved to Lisbon.")
    with acting_as("alice"):
        store.recall("Lisbon", mode="text", receipt=True)
        store.context("Lisbon", receipt=True)
    assert [item.actor for item in store.audit.receipts().receipts] == ["alice", "alice"]


def test_erasures_applied_again_record_who_applied_them(store, tmp_path):
    """What is gone cannot say who wrote it, but what took it away does. A name in a file of erasures is no proof."""
    store.session("trip").record("user", "My number is 555-0175.")
    store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    with acting_as("carol"):
        store.forget(session="trip")
    erasures = store.audit.erasures()
    assert {item.actor for item in store.audit.forgotten()} == {"carol"}
    assert [item.actor for item in erasures] == ["carol"]
    restore_backup(tmp_path / "backup", tmp_path / "restored", keys=tmp_path / "keys")
    with MemoryStore.open(tmp_path / "restored", model=None) as restored, acting_as("dave"):
        restored.admin.reapply_erasures(erasures)
        assert [item.actor for item in restored.audit.erasures()] == ["dave"]


@pytest.mark.log_file
def test_an_export_and_its_import_keep_the_actors(store, tmp_path):
    """They are in the stored bytes, which do not change."""
    with acting_as("alice"):
        store.session("trip").record("user", "hello")
    store.audit.export(tmp_path / "log.jsonl")
    store.backup(tmp_path / "backup", keys=tmp_path / "keys")
    with acting_as("bob"):
        import_log(tmp_path / "log.jsonl", tmp_path / "copy")
    (keys,) = (tmp_path / "keys").glob("*.db")
    (tmp_path / "copy" / KEYS_FILE).write_bytes(keys.read_bytes())
    with MemoryStore.open(tmp_path / "copy", model=None) as copy:
        assert actors(copy) == ["alice", "alice"]
