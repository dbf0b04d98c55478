"""What an auditor asks: the timeline, one event, what changed between two positions; in the library and as commands.

Who did it: each event has the name of the actor that appended it, and whoever looks at the history sees it.
"""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from mnemolog import (
    AsyncMemoryStore,
    DuplicateKey,
    InvalidInput,
    LogDamaged,
    MemoryStore,
    UnknownSession,
    acting_as,
    import_log,
    restore_backup,
)
from mnemolog.domain.request import current_actor, request_key
from mnemolog.domain.values import Micros, to_datetime
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from tests.e2e.test_cli import refused
from tests.faults.tamper import Tampering, copy_store
from tests.golden.make_store import counted_ids, live
from tests.support import WAIT_S, FakeClock, HashEncoder, in_thread, nothing_written, wait_until

HOSTILE = "one\ntwo \x1b[2Jthree " + "long " * 100


@pytest.fixture
def lived(folder):
    """Something of every kind of event, a second apart."""
    clock = FakeClock(step=1_000_000)
    encoder = HashEncoder(fingerprint="golden/1", dimension=16)
    with counted_ids(), MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        live(store)
        yield store


@pytest.fixture
def session(lived):
    """A session of its own, with nothing in it yet."""
    return lived.start_session("s")


def head(store):
    return store.head().position


def of(diff, session="s"):
    """What a diff says of a session."""
    (found,) = [item for item in diff.sessions if item.session == session]
    return found


# --- timeline


@pytest.mark.log_file
def test_the_timeline_tells_every_event_in_order(lived, session):
    """Each has its place, its time, its session and words of its own, and none is told by its topic and fields.

    What was said is one line, cut, without control characters: it hides no other line. The event has all of it.
    """
    session.record("user", HOSTILE)
    moments = list(lived.audit.timeline())
    assert not [moment.topic for moment in moments if moment.what.startswith(moment.topic)]
    hostile = moments[-1]
    assert hostile.what.isprintable()
    assert len(hostile.what) == 200
    assert hostile.what.startswith("user: one two \\x1b[2Jthree long")
    assert hostile.event.text == HOSTILE
    assert [moment.position for moment in moments] == list(range(1, head(lived) + 1))
    assert [moment.event for moment in moments] == [recorded.event for recorded in lived.events()]
    assert all(moment.what and "\n" not in moment.what for moment in moments)
    assert (moments[0].who, moments[0].session, moments[0].what) == (
        "trip",
        "trip-1",
        "session started by ada in acme/support/alice (new)",
    )
    assert moments[1].what == "Alice: I moved to Lisbon in March."


@pytest.mark.log_file
def test_a_part_of_the_timeline_is_the_same_part(lived):
    """By position, session and time of recording; sessions keep their names though they began before."""
    whole = list(lived.audit.timeline())
    assert list(lived.audit.timeline(after=5, upto=9)) == whole[5:9]
    assert list(lived.audit.timeline(session="trip-1")) == [moment for moment in whole if moment.session == "trip-1"]
    since, until = whole[10].at, whole[20].at
    assert list(lived.audit.timeline(since=since, until=until)) == whole[10:20]
    assert list(lived.audit.timeline(after=head(lived))) == []
    assert list(lived.audit.timeline(since=datetime(2030, 1, 1, tzinfo=UTC))) == []
    without_zone = {"since": datetime(2024, 1, 1)}  # It means another moment elsewhere.
    ranges = ({"after": head(lived) + 1}, {"upto": 99}, {"after": 3, "upto": 2}, {"after": -1}, {"upto": True})
    for wrong in (*ranges, without_zone):
        with pytest.raises(InvalidInput):
            lived.audit.timeline(**wrong)
    with pytest.raises(UnknownSession):
        lived.audit.timeline(session="nobody")


# --- one event


@pytest.mark.log_file
def test_an_event_is_shown_with_all_its_columns(lived):
    """As they are stored; its link follows from the event before. Only positions from 1 to the head are shown."""
    for position in (0, -1, head(lived) + 1, 2**70, True, "3"):
        with pytest.raises(InvalidInput):
            lived.audit.event(position)
    found, before = lived.audit.event(2), lived.audit.event(1)
    (row,) = [row for page in lived.parts.log.stored_rows(after=1, upto=2, batch_max=1) for row in page]
    columns = (found.position, found.stream.encode(), found.version, found.topic.encode(), found.state)
    assert (*columns, found.key.encode(), found.recorded_at, bytes.fromhex(found.digest)) == row
    assert found.at == to_datetime(Micros(found.recorded_at))
    assert (found.previous_digest, found.link_holds, found.unreadable) == (before.digest, True, None)
    assert found.event == next(lived.events(after=1)).event
    assert (before.previous_digest, before.link_holds) == (lived.parts.log.genesis.hex(), True)


@pytest.mark.log_file
def test_a_damaged_event_is_shown_as_it_is(lived, tmp_path):
    """What cannot be read is said, what can is shown; an event behind it has a link that does not hold either."""
    tampering = Tampering(copy_store(lived.parts.log, tmp_path / "copy") / LOG_FILE)
    tampering.write(2, state=b"\xc0", recorded_at=-(2**63), topic=b"turn.\xff.v1")
    tampering.execute("DELETE FROM events WHERE position = 5")
    tampering.put_triggers_back()
    with MemoryStore.open(tmp_path / "copy", model=None, create=False) as copy:
        found = copy.audit.event(2)
        assert (found.link_holds, found.event, found.at, found.topic) == (False, None, None, "turn.\ufffd.v1")
        assert found.unreadable
        assert copy.audit.event(3).link_holds, "it follows from the digest that is stored"
        assert (copy.audit.event(6).previous_digest, copy.audit.event(6).link_holds) == (None, False)
        with pytest.raises(LogDamaged, match="gone"):
            copy.audit.event(5)


# --- diff


@pytest.mark.log_file
def test_recorded_turns_are_listed_up_to_a_limit(lived, session):
    """Those beyond it are counted."""
    before = head(lived)
    turns = [session.record("user", f"turn {n}") for n in range(5)]
    assert of(lived.audit.diff(before)).turns == tuple(turns)
    few = lived.audit.diff(before, turns_max=2)
    assert (of(few).turns, of(few).turns_recorded, few.turns_left_out) == (tuple(turns[:2]), 5, 3)


@pytest.mark.log_file
def test_values_tasks_notes_and_checkpoints_are_shown_before_and_after(lived, session):
    """`None` is a value; what was set and deleted in between did not change. What expired was removed."""
    session.set("kept", 1), session.set("changed", "old"), session.set("removed", None), session.set("same", [1])
    session.set("short", 1, ttl=9.5)
    session.note("first"), session.set_task("a"), session.checkpoint("early")
    before = head(lived)
    session.set("changed", "new"), session.delete("removed"), session.set("added", None), session.set("same", [1])
    session.set("passing", 1), session.delete("passing")
    session.note("second"), session.update_task(status="done")
    session.delete_checkpoint("early"), session.checkpoint("late")
    found = of(lived.audit.diff(before))
    assert [(item.key, item.change, item.before, item.after) for item in found.values] == [
        ("added", "added", None, None),
        ("changed", "changed", "old", "new"),
        ("removed", "removed", None, None),
        ("short", "removed", 1, None),
    ]
    assert (found.task_before.status, found.task_after.status) == ("active", "done")
    assert ([note.text for note in found.notes_removed], [note.text for note in found.notes_added]) == ([], ["second"])
    assert [item.name for item in found.checkpoints_created] == ["late"]
    assert [item.name for item in found.checkpoints_deleted] == ["early"]


@pytest.mark.log_file
def test_hidden_turns_are_named(lived, session):
    """By a rewind and by a restore; also those that were recorded and hidden in between."""
    session.record("user", "stays")
    session.checkpoint("c")
    early = session.record("user", "goes").position
    before = head(lived)
    late = session.record("user", "comes and goes").position
    session.restore("c")
    after = session.record("user", "comes").position
    found = of(lived.audit.diff(before))
    assert (found.hidden, found.shown) == ((early, late), ())
    assert [turn.position for turn in found.turns] == [late, after]
    assert of(lived.audit.diff(before, late)).hidden == ()


@pytest.mark.log_file
def test_started_ended_resumed_switched_and_activated(lived, session):
    """The life of sessions and agents, and the models."""
    before = head(lived)
    lived.switch("t", reason="branch", session="s", agent="ada")
    lived.end_session("s")
    ended = head(lived)
    lived.switch("s", reason="resume", agent="ada")
    found = lived.audit.diff(before, ended)
    assert (of(found).started, of(found).ended_before, of(found).ended_after) == (False, False, True)
    assert (of(found, "t").started, of(found, "t").parent, of(found, "t").branched_at) == (True, "s", before)
    assert [(switch.from_, switch.to, switch.reason) for switch in found.switches] == [("s", "t", "branch")]
    back = lived.audit.diff(ended)
    assert (of(back).ended_before, of(back).ended_after) == (True, False)
    whole = lived.audit.diff(0)
    assert len(whole.activations) == 1
    assert whole.sessions[0].started
    assert sum(whole.topics.values()) == head(lived)


@pytest.mark.log_file
def test_two_diffs_in_a_row_tell_what_one_over_both_tells(lived):
    """At every position: recorded turns add up, and each session ends as it is."""
    whole = lived.audit.diff(0)
    for position in range(0, head(lived) + 1, 5):
        first, second = lived.audit.diff(0, position), lived.audit.diff(position)
        for item in whole.sessions:
            parts = [found for part in (first, second) for found in part.sessions if found.session == item.session]
            assert sum((found.turns for found in parts), ()) == item.turns
            assert parts[-1].ended_after == item.ended_after
            assert parts[-1].task_after == item.task_after


@pytest.mark.log_file
def test_a_diff_that_cannot_be_is_refused(lived):
    """Backwards, or past the head. Between a position and itself nothing changed."""
    for position in (0, 7, head(lived)):
        found = lived.audit.diff(position, position)
        assert (found.sessions, found.topics, found.switches, found.activations) == ((), {}, (), ())
        assert found.before == found.after
    for before, after in ((5, 4), (0, head(lived) + 1), (head(lived) + 1, None), (-1, 3)):
        with pytest.raises(InvalidInput):
            lived.audit.diff(before, after)


# --- while others write


@pytest.mark.log_file
def test_verify_and_export_hold_while_others_append(lived, session, tmp_path):
    """What comes meanwhile is not looked at, and is no finding."""
    stop, sound = [], []

    def write():
        while not stop:
            session.record("user", "on and on")

    writing = in_thread(write)
    try:
        for n in range(20):
            sound.append(lived.verify().sound)
            lived.audit.export(tmp_path / f"{n}.jsonl")
    finally:
        stop.append(True)
        writing.result()
    assert all(sound)


# --- commands


@pytest.fixture
def memory(lived, folder):
    """The folder of the same store, closed."""
    lived.close()
    return folder


@pytest.mark.log_file
def test_replay_prints_a_timeline_and_what_was_held(memory, run):
    """A line for each event; then each session as it was, and the digest that pins it."""
    lines = run("replay", memory, "--to", "6").stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [f"@{n}" for n in range(1, 7)]
    assert lines[0].endswith("session started by ada in acme/support/alice (new)")
    assert lines[6:8] == ["held at position 6:", "  trip-1 (trip) in acme/support/alice, 3 turns"]
    assert lines[8].startswith("6 events up to position 6, digest ")


@pytest.mark.log_file
def test_replay_as_json_lines_has_an_object_for_each_event(lived, folder, run):
    """Filters included."""
    since, until = (
        moment.at.replace(tzinfo=None).isoformat() for moment in list(lived.audit.timeline(after=4, upto=8))[::3]
    )
    lived.close()
    printed = run("replay", folder, "--jsonl", "--from", "3", "--to", "5").stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["position"] for line in lines] == [3, 4, 5]
    assert lines[2]["event"] == {"key": "city", "value": "Lisbon"}
    ran = run("replay", folder, "--jsonl", "--session", "trip", "--since", since, "--until", until)
    assert [json.loads(line)["position"] for line in ran.stdout.splitlines()] == [5, 6, 7, 8]


@pytest.mark.log_file
def test_show_takes_a_position_or_a_session(memory, run):
    """A whole number is a position, unless it is said to be a session."""
    assert "link         holds" in run("show", memory, "2").stdout
    assert run("show", memory, "2", "--json").json["event"]["text"] == "I moved to Lisbon in March."
    assert "I moved to Lisbon" in run("show", memory, "trip").stdout
    assert "positions of this log are 1 to" in refused(run("show", memory, "99"), 2)
    with MemoryStore.open(memory, model=None) as store:
        store.start_session("2").record("user", "in a session that is called 2")
    assert "called 2" in run("show", memory, "2", "--session").stdout
    assert "Lisbon" in run("show", memory, "2").stdout


@pytest.mark.log_file
def test_diff_prints_what_changed(memory, run):
    """With signs for what came, went and changed."""
    said = run("diff", memory, "9", "20").stdout
    assert "~ value city" not in run("diff", memory, "0", "3").stdout
    assert '~ value city: "Lisbon" -> "Porto"' in run("diff", memory, "12", "13").stdout
    assert "+ @" in said
    assert run("diff", memory, "9", "--json").json["before"]["position"] == 9
    assert "comes before" in refused(run("diff", memory, "9", "3"), 2)


@pytest.mark.log_file
def test_heads_are_appended_and_asked(memory, tmp_path, run):
    """`head --append` and `verify --heads`; exit status 3 when one of them knows better."""
    heads = tmp_path / "heads.jsonl"
    for _ in range(2):
        assert run("head", memory, "--append", heads).returncode == 0
    of_the_store = run("verify", memory, "--json").json["witnesses"]
    assert run("verify", memory, "--heads", heads, "--json").json["witnesses"] == of_the_store + 2
    with heads.open("a") as file:
        file.write(f"3:{'0' * 64}\n")
    ran = run("verify", memory, "--heads", heads).exited(3)
    assert "position 3, session/trip-1: witness: heads.jsonl line 3 remembers" in ran.stdout
    assert "remembers" in refused(run("head", memory, "--append", heads), 3)
    heads.write_text("no head\n")
    assert "heads.jsonl:1: " in refused(run("verify", memory, "--heads", heads), 1)


@pytest.mark.log_file
def test_export_and_import_go_round(memory, tmp_path, run):
    """To a file or to standard output, and into a new store; a name that is taken needs --replace."""
    file, new = tmp_path / "log.jsonl", tmp_path / "new"
    assert run("export", memory, file, "--json").json["events"] == 36
    assert run("export", memory).stdout == file.read_text() == run("export", store=memory).stdout
    assert "exists" in refused(run("export", memory, file), 1)
    assert run("export", memory, file, "--replace").returncode == 0
    assert run("import", new, file, "--json").json["events"] == 36
    assert run("verify", new, "--expect-head", run("head", memory).stdout.strip()).returncode == 0
    assert "is not empty" in refused(run("import", new, file), 2)
    part = run("export", memory, "-", "--from", "4", "--to", "5").stdout
    assert [json.loads(line)["line"] for line in part.splitlines()] == ["header", "event", "event", "end"]
    file.write_text(file.read_text().replace("trip", "trap", 1))
    assert "log.jsonl:" in refused(run("import", tmp_path / "other", file), 1)
    assert not (tmp_path / "other").exists()


def actors(store):
    """The actor of every event, in order."""
    return [recorded.event.actor for recorded in store.events()]


@pytest.mark.local
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


@pytest.mark.local
@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 300, None])
def test_an_actor_is_a_label(name):
    """It is printed on a line of its event, and never content."""
    with pytest.raises(InvalidInput), acting_as(name):
        pass


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
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


@pytest.mark.local
def test_receipts_name_who_asked(store):
    """A recall and a context are answered for somebody."""
    store.session("trip").record("user", "We moved to Lisbon.")
    with acting_as("alice"):
        store.recall("Lisbon", mode="text", receipt=True)
        store.context("Lisbon", receipt=True)
    assert [item.actor for item in store.audit.receipts().receipts] == ["alice", "alice"]


@pytest.mark.local
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


@pytest.mark.local
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
