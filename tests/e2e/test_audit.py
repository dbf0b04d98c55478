"""What an auditor asks: the timeline, one event, what changed between two positions; in the library and as commands."""

import json
from datetime import UTC, datetime

import pytest

from mnemolog import InvalidInput, LogDamaged, MemoryStore, UnknownSession
from mnemolog.domain.values import Micros, to_datetime
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from tests.e2e.test_cli import refused
from tests.faults.tamper import Tampering, copy_store
from tests.golden.make_store import counted_ids, live
from tests.support import FakeClock, HashEncoder, in_thread

pytestmark = pytest.mark.log_file  # The ids of its logs are counted, and a database has a log id once.

HOSTILE = "one\ntwo \x1b[2Jthree " + "long " * 100


@pytest.fixture
def store(folder):
    """Something of every kind of event, a second apart."""
    clock = FakeClock(step=1_000_000)
    encoder = HashEncoder(fingerprint="golden/1", dimension=16)
    with counted_ids(), MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        live(store)
        yield store


@pytest.fixture
def session(store):
    """A session of its own, with nothing in it yet."""
    return store.start_session("s")


def head(store):
    return store.head().position


def of(diff, session="s"):
    """What a diff says of a session."""
    (found,) = [item for item in diff.sessions if item.session == session]
    return found


# --- timeline


def test_the_timeline_tells_every_event_in_order(store, session):
    """Each has its place, its time, its session and words of its own, and none is told by its topic and fields.

    What was said is one line, cut, without control characters: it hides no other line. The event has all of it.
    """
    session.record("user", HOSTILE)
    moments = list(store.audit.timeline())
    assert not [moment.topic for moment in moments if moment.what.startswith(moment.topic)]
    hostile = moments[-1]
    assert hostile.what.isprintable()
    assert len(hostile.what) == 200
    assert hostile.what.startswith("user: one two \\x1b[2Jthree long")
    assert hostile.event.text == HOSTILE
    assert [moment.position for moment in moments] == list(range(1, head(store) + 1))
    assert [moment.event for moment in moments] == [recorded.event for recorded in store.events()]
    assert all(moment.what and "\n" not in moment.what for moment in moments)
    assert (moments[0].who, moments[0].session, moments[0].what) == (
        "trip",
        "trip-1",
        "session started by ada in acme/support/alice (new)",
    )
    assert moments[1].what == "Alice: I moved to Lisbon in March."


def test_a_part_of_the_timeline_is_the_same_part(store):
    """By position, session and time of recording; sessions keep their names though they began before."""
    whole = list(store.audit.timeline())
    assert list(store.audit.timeline(after=5, upto=9)) == whole[5:9]
    assert list(store.audit.timeline(session="trip-1")) == [moment for moment in whole if moment.session == "trip-1"]
    since, until = whole[10].at, whole[20].at
    assert list(store.audit.timeline(since=since, until=until)) == whole[10:20]
    assert list(store.audit.timeline(after=head(store))) == []
    assert list(store.audit.timeline(since=datetime(2030, 1, 1, tzinfo=UTC))) == []
    without_zone = {"since": datetime(2024, 1, 1)}  # It means another moment elsewhere.
    ranges = ({"after": head(store) + 1}, {"upto": 99}, {"after": 3, "upto": 2}, {"after": -1}, {"upto": True})
    for wrong in (*ranges, without_zone):
        with pytest.raises(InvalidInput):
            store.audit.timeline(**wrong)
    with pytest.raises(UnknownSession):
        store.audit.timeline(session="nobody")


# --- one event


def test_an_event_is_shown_with_all_its_columns(store):
    """As they are stored; its link follows from the event before. Only positions from 1 to the head are shown."""
    for position in (0, -1, head(store) + 1, 2**70, True, "3"):
        with pytest.raises(InvalidInput):
            store.audit.event(position)
    found, before = store.audit.event(2), store.audit.event(1)
    (row,) = [row for page in store.parts.log.stored_rows(after=1, upto=2, batch_max=1) for row in page]
    columns = (found.position, found.stream.encode(), found.version, found.topic.encode(), found.state)
    assert (*columns, found.key.encode(), found.recorded_at, bytes.fromhex(found.digest)) == row
    assert found.at == to_datetime(Micros(found.recorded_at))
    assert (found.previous_digest, found.link_holds, found.unreadable) == (before.digest, True, None)
    assert found.event == next(store.events(after=1)).event
    assert (before.previous_digest, before.link_holds) == (store.parts.log.genesis.hex(), True)


def test_a_damaged_event_is_shown_as_it_is(store, tmp_path):
    """What cannot be read is said, what can is shown; an event behind it has a link that does not hold either."""
    tampering = Tampering(copy_store(store.parts.log, tmp_path / "copy") / LOG_FILE)
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


def test_recorded_turns_are_listed_up_to_a_limit(store, session):
    """Those beyond it are counted."""
    before = head(store)
    turns = [session.record("user", f"turn {n}") for n in range(5)]
    assert of(store.audit.diff(before)).turns == tuple(turns)
    few = store.audit.diff(before, turns_max=2)
    assert (of(few).turns, of(few).turns_recorded, few.turns_left_out) == (tuple(turns[:2]), 5, 3)


def test_values_tasks_notes_and_checkpoints_are_shown_before_and_after(store, session):
    """`None` is a value; what was set and deleted in between did not change. What expired was removed."""
    session.set("kept", 1), session.set("changed", "old"), session.set("removed", None), session.set("same", [1])
    session.set("short", 1, ttl=9.5)
    session.note("first"), session.set_task("a"), session.checkpoint("early")
    before = head(store)
    session.set("changed", "new"), session.delete("removed"), session.set("added", None), session.set("same", [1])
    session.set("passing", 1), session.delete("passing")
    session.note("second"), session.update_task(status="done")
    session.delete_checkpoint("early"), session.checkpoint("late")
    found = of(store.audit.diff(before))
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


def test_hidden_turns_are_named(store, session):
    """By a rewind and by a restore; also those that were recorded and hidden in between."""
    session.record("user", "stays")
    session.checkpoint("c")
    early = session.record("user", "goes").position
    before = head(store)
    late = session.record("user", "comes and goes").position
    session.restore("c")
    after = session.record("user", "comes").position
    found = of(store.audit.diff(before))
    assert (found.hidden, found.shown) == ((early, late), ())
    assert [turn.position for turn in found.turns] == [late, after]
    assert of(store.audit.diff(before, late)).hidden == ()


def test_started_ended_resumed_switched_and_activated(store, session):
    """The life of sessions and agents, and the models."""
    before = head(store)
    store.switch("t", reason="branch", session="s", agent="ada")
    store.end_session("s")
    ended = head(store)
    store.switch("s", reason="resume", agent="ada")
    found = store.audit.diff(before, ended)
    assert (of(found).started, of(found).ended_before, of(found).ended_after) == (False, False, True)
    assert (of(found, "t").started, of(found, "t").parent, of(found, "t").branched_at) == (True, "s", before)
    assert [(switch.from_, switch.to, switch.reason) for switch in found.switches] == [("s", "t", "branch")]
    back = store.audit.diff(ended)
    assert (of(back).ended_before, of(back).ended_after) == (True, False)
    whole = store.audit.diff(0)
    assert len(whole.activations) == 1
    assert whole.sessions[0].started
    assert sum(whole.topics.values()) == head(store)


def test_two_diffs_in_a_row_tell_what_one_over_both_tells(store):
    """At every position: recorded turns add up, and each session ends as it is."""
    whole = store.audit.diff(0)
    for position in range(0, head(store) + 1, 5):
        first, second = store.audit.diff(0, position), store.audit.diff(position)
        for item in whole.sessions:
            parts = [found for part in (first, second) for found in part.sessions if found.session == item.session]
            assert sum((found.turns for found in parts), ()) == item.turns
            assert parts[-1].ended_after == item.ended_after
            assert parts[-1].task_after == item.task_after


def test_a_diff_that_cannot_be_is_refused(store):
    """Backwards, or past the head. Between a position and itself nothing changed."""
    for position in (0, 7, head(store)):
        found = store.audit.diff(position, position)
        assert (found.sessions, found.topics, found.switches, found.activations) == ((), {}, (), ())
        assert found.before == found.after
    for before, after in ((5, 4), (0, head(store) + 1), (head(store) + 1, None), (-1, 3)):
        with pytest.raises(InvalidInput):
            store.audit.diff(before, after)


# --- while others write


def test_verify_and_export_hold_while_others_append(store, session, tmp_path):
    """What comes meanwhile is not looked at, and is no finding."""
    stop, sound = [], []

    def write():
        while not stop:
            session.record("user", "on and on")

    writing = in_thread(write)
    try:
        for n in range(20):
            sound.append(store.verify().sound)
            store.audit.export(tmp_path / f"{n}.jsonl")
    finally:
        stop.append(True)
        writing.result()
    assert all(sound)


# --- commands


@pytest.fixture
def memory(store, folder):
    """The folder of the same store, closed."""
    store.close()
    return folder


def test_replay_prints_a_timeline_and_what_was_held(memory, run):
    """A line for each event; then each session as it was, and the digest that pins it."""
    lines = run("replay", memory, "--to", "6").stdout.splitlines()
    assert [line.split()[0] for line in lines[:6]] == [f"@{n}" for n in range(1, 7)]
    assert lines[0].endswith("session started by ada in acme/support/alice (new)")
    assert lines[6:8] == ["held at position 6:", "  trip-1 (trip) in acme/support/alice, 3 turns"]
    assert lines[8].startswith("6 events up to position 6, digest ")


def test_replay_as_json_lines_has_an_object_for_each_event(store, folder, run):
    """Filters included."""
    since, until = (
        moment.at.replace(tzinfo=None).isoformat() for moment in list(store.audit.timeline(after=4, upto=8))[::3]
    )
    store.close()
    printed = run("replay", folder, "--jsonl", "--from", "3", "--to", "5").stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["position"] for line in lines] == [3, 4, 5]
    assert lines[2]["event"] == {"key": "city", "value": "Lisbon"}
    ran = run("replay", folder, "--jsonl", "--session", "trip", "--since", since, "--until", until)
    assert [json.loads(line)["position"] for line in ran.stdout.splitlines()] == [5, 6, 7, 8]


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


def test_diff_prints_what_changed(memory, run):
    """With signs for what came, went and changed."""
    said = run("diff", memory, "9", "20").stdout
    assert "~ value city" not in run("diff", memory, "0", "3").stdout
    assert '~ value city: "Lisbon" -> "Porto"' in run("diff", memory, "12", "13").stdout
    assert "+ @" in said
    assert run("diff", memory, "9", "--json").json["before"]["position"] == 9
    assert "comes before" in refused(run("diff", memory, "9", "3"), 2)


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
