"""A time can be given wherever a position is taken. It means what was recorded up to it."""

import time
from contextlib import closing
from datetime import UTC, date, datetime, timedelta

import pytest

from mnemolog import InvalidInput, MemoryStore
from mnemolog.domain.errors import OutsideSession, UnknownCheckpoint
from mnemolog.domain.values import to_micros
from mnemolog.infra.log.open import open_log
from tests.support import FakeClock, nothing_written

NOON = datetime(2026, 3, 16, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def berlin(monkeypatch):
    """The machine is in Berlin, in March 2026 an hour ahead of UTC. Nothing depends on it."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def clock():
    return FakeClock(to_micros("noon", NOON), step=0)


@pytest.fixture
def trip(bare, clock):
    """One event at each full hour from noon on: the start, then five turns, at positions 1 to 6."""
    trip = bare.start_session("trip")
    for hour in range(1, 6):
        clock.advance(seconds=3600)
        trip.record("user", f"tea at {hour}")
    return trip


def texts(turns):
    return [turn.text for turn in turns]


def test_position_at_is_that_of_the_last_event_recorded_by_then(bare, trip, tmp_path):
    """0 before the first event, the head for any time after the last; events at that very moment included."""
    assert [bare.position_at(NOON + hours * HOUR) for hours in range(7)] == [1, 2, 3, 4, 5, 6, 6]
    assert bare.position_at(NOON - timedelta(microseconds=1)) == 0
    assert bare.position_at(NOON + 2 * HOUR - timedelta(microseconds=1)) == 2
    assert bare.position_at("2999-01-01") == 6
    assert bare.position_at("2026-03-16T14:30") == bare.position_at("2026-03-16T14:30Z") == 3
    assert (bare.position_at(date(2026, 3, 16)), bare.position_at("2026-03-17")) == (0, 6)
    with MemoryStore.open(tmp_path / "empty", model=None) as empty:
        assert empty.position_at("2026-03-16") == 0


@pytest.mark.log_file
def test_position_at_reads_a_handful_of_events_of_a_long_log(folder, clock, monkeypatch):
    """Not the whole log: about as many as a position has bits."""
    with MemoryStore.open(folder, model=None, clock=clock, synchronous="NORMAL") as store:
        session = store.start_session("long")
        for _ in range(2_000):
            clock.advance(seconds=1)
            session.record("user", "tea")
        read = []
        reader = store.parts.log.engine.connect().reads.__class__
        recorded_at = reader.recorded_at
        monkeypatch.setattr(reader, "recorded_at", lambda self, at: read.append(at) or recorded_at(self, at))
        assert [store.position_at(NOON + timedelta(seconds=seconds)) for seconds in (0, 1, 999, 2_000)] == [
            1,
            2,
            1_000,
            2_001,
        ]
        assert len(read) <= 4 * 11


def test_where_a_clock_was_set_back_position_at_still_fits_and_does_not_change_later(folder, clock, rng):
    """The event there was recorded by then, the next one was not; and a longer log gives the same answer."""
    recorded, answers = [], {}
    with closing(open_log(folder, clock=clock, create=True)) as log:
        for _ in range(100):
            clock.advance(seconds=rng.choice((1, 1, 1, 5, -40)))
            recorded.append(clock.now())
            log.appends.transact(lambda tx: tx.append_stored("tea", "tea.v1", b"\x90"))
            for moment in (recorded[0] - 1, rng.choice(recorded), max(recorded)):
                found = answers[moment] = log.position_at(moment)
                assert found == 0 or recorded[found - 1] <= moment
                assert found == len(recorded) or recorded[found] > moment
            answers = {moment: found for moment, found in answers.items() if moment < recorded[-1]}
            assert {moment: log.position_at(moment) for moment in answers} == answers


def test_replay_diff_at_and_recall_take_a_time(bare, trip):
    """Each answers as for the position of that time: as a datetime, a date or ISO text."""
    then = NOON + 2 * HOUR
    assert bare.replay(to=then) == bare.replay(to=3) == bare.replay(to="2026-03-16 14:00")
    assert bare.replay(to=date(2026, 3, 17)) == bare.replay()
    assert bare.audit.diff(then, NOON + 4 * HOUR) == bare.audit.diff(3, 5)
    assert bare.audit.diff("2026-03-16T14:00").before.position == 3
    assert trip.at(then).position == 3
    assert texts(trip.at("2026-03-16T14:00Z").turns()) == ["tea at 1", "tea at 2"]
    assert {hit.position for hit in bare.recall("tea", as_of=then).hits} == {2, 3}
    assert {hit.position for hit in trip.recall("tea", as_of="2026-03-16 14:00").hits} == {2, 3}
    assert bare.recall("tea", as_of=then).as_of == 3
    first = bare.recall("tea", k=1, as_of=then)
    assert bare.recall("tea", k=1, as_of=then, after=first.next).as_of == 3


def test_what_was_said_before_the_log_began_has_its_own_time(bare, trip):
    """In sessions and timelines. A recall as of such a time says how to ask for it; one as of position 0 is empty."""
    told = bare.session("told")
    told.record("user", "green tea", said_at=NOON - 9 * HOUR)
    told.record("user", "black tea", said_at=NOON - 8 * HOUR)
    of_trip, of_told = bare.sessions()
    assert (of_told.said_from, of_told.said_until) == (NOON - 9 * HOUR, NOON - 8 * HOUR)
    assert (of_told.is_of_the_past, of_trip.is_of_the_past) == (True, False)
    (*_, last) = bare.audit.timeline()
    assert (last.said_at, "(said 2026-03-16 04:00:00Z)" in str(last)) == (NOON - 8 * HOUR, True)
    with pytest.raises(
        InvalidInput, match="nothing was recorded by then: the log begins at 2026-03-16 12:00Z"
    ) as refused:
        bare.recall("tea", as_of="2026-03-16 05:00")
    assert refused.value.hint.startswith("to ask by the time of saying, use ")
    assert "until" in refused.value.hint
    assert texts(bare.recall("tea", until="2026-03-16 05:00").hits) == ["green tea", "black tea"]
    assert not bare.recall("tea", as_of=0).hits


def test_events_turns_timeline_and_export_take_times(bare, trip, tmp_path):
    """From after the one up to the other; `before` leaves out what was recorded at that very moment."""
    one, three = NOON + HOUR, NOON + 3 * HOUR
    assert [event.position for event in bare.events(after=one, upto=three)] == [3, 4]
    assert (
        texts(trip.turns(after=one)) == texts(bare.turns(trip.id, after=one)) == [f"tea at {n}" for n in (2, 3, 4, 5)]
    )
    assert texts(trip.turns(before=three)) == ["tea at 1", "tea at 2"]
    assert texts(trip.at(three).turns(after=one)) == ["tea at 2", "tea at 3"]
    assert [item.position for item in bare.audit.timeline(after=one, upto=three)] == [3, 4]
    assert bare.audit.export(tmp_path / "log.jsonl", after=0, upto=three).events == 4


def test_a_rewind_to_a_time_hides_what_was_recorded_after_it(bare, trip, clock):
    """Also where events of other sessions were the last ones, where turns are hidden already, and dry."""
    other = bare.start_session("other")
    clock.advance(seconds=3600)
    other.record("user", "elsewhere")
    assert trip.rewind(to="2026-03-17") == 0
    assert trip.rewind(to=NOON + 3 * HOUR, dry_run=True) == trip.rewind(to=NOON + 3 * HOUR) == 2
    assert trip.rewind(to=NOON + 5 * HOUR) == 0
    assert texts(trip.turns()) == ["tea at 1", "tea at 2", "tea at 3"]
    assert bare.switch(reason="rewind", session=trip, at="2026-03-16T14:30").turns()[-1].text == "tea at 2"


def test_a_branch_and_a_switch_take_a_time(bare, trip):
    """They see what was recorded by then. A checkpoint that is called like a time comes first."""
    assert texts(trip.branch(at=NOON + HOUR).turns()) == ["tea at 1"]
    assert texts(bare.switch(reason="branch", session=trip, at="2026-03-16 14:00").turns()) == ["tea at 1", "tea at 2"]
    assert texts(bare.switch(reason="rewind", session=trip, to="new", at=NOON + HOUR).turns()) == ["tea at 1"]
    trip.checkpoint("2026-03-16 13:00")
    assert len(trip.branch(at="2026-03-16 13:00").turns()) == 5
    assert len(trip.branch(at="2026-03-16T13:00").turns()) == 1
    with pytest.raises(UnknownCheckpoint, match="no checkpoint 'soon'"):
        trip.branch(at="soon")


def test_a_session_that_did_not_exist_then_says_when_it_began(bare, trip):
    """With the position and the time of its beginning."""
    calls = (
        lambda when: trip.at(when),
        lambda when: trip.branch(at=when),
        lambda when: trip.rewind(to=when),
        lambda when: trip.recall("tea", as_of=when),
        lambda when: bare.switch(reason="branch", session=trip, at=when),
        lambda when: bare.switch(reason="rewind", session=trip, at=when),
    )
    with nothing_written(bare):
        for call in calls:
            for when in ("2026-03-16 11:59", 0):
                with pytest.raises(OutsideSession, match=r"began at position 1, on 2026-03-16 12:00:00\+00:00"):
                    call(when)


@pytest.mark.local
def test_a_value_that_is_neither_a_position_nor_a_time_is_refused_with_what_was_expected(bare, trip):
    """With the argument's name, and an example of both."""
    calls = [
        ("to", lambda wrong: bare.replay(to=wrong)),
        ("at", lambda wrong: trip.at(wrong)),
        ("as_of", lambda wrong: bare.recall("tea", as_of=wrong)),
        ("before", lambda wrong: bare.audit.diff(wrong)),
        ("after", lambda wrong: bare.audit.receipts(after=wrong)),
        ("upto", lambda wrong: list(bare.events(upto=wrong))),
    ]
    beyond_the_head = [
        ("before", lambda wrong: trip.turns(before=wrong)),
        ("after", lambda wrong: trip.turns(after=wrong)),
        ("after", lambda wrong: bare.turns("trip", after=wrong)),
        ("after", lambda wrong: list(bare.events(after=wrong))),
    ]
    for field, call in calls + beyond_the_head:
        with pytest.raises(InvalidInput, match=f"^{field}: expected a position such as 1200, got bool"):
            call(True)
        for wrong in ("soon", "12", 1.0):
            with pytest.raises(InvalidInput, match=f"^{field}: .*expected a position such as 1200, or a time such as"):
                call(wrong)
        with pytest.raises(InvalidInput, match="time zone"):
            call(datetime(2026, 3, 16))
    for field, call in calls:
        with pytest.raises(InvalidInput, match=f"^{field}: position 7 is not in this log, which ends at 6"):
            call(7)
    with pytest.raises(InvalidInput, match="expected a position"):
        bare.recall("tea", min_position=NOON)


@pytest.fixture
def memory(folder, bare, trip):
    """The folder of the store with that trip, closed."""
    bare.close()
    return folder


def test_every_command_that_takes_a_position_takes_a_time(run, memory):
    """And answers as for the position of that time."""
    then, later = "2026-03-16 14:00", "2026-03-16T16:00Z"
    for by_time, by_position in (
        (("show", memory, "trip", "--at", then), ("show", memory, "trip", "--at", 3)),
        (("show", memory, "trip", "--after", then), ("show", memory, "trip", "--after", 3)),
        (("show", memory, "trip", "--before", then), ("show", memory, "trip", "--before", 3)),
        (("memory", "list", memory, "trip", "--at", then), ("memory", "list", memory, "trip", "--at", 3)),
        (("replay", memory, "--to", then), ("replay", memory, "--to", 3)),
        (("diff", memory, then, later), ("diff", memory, 3, 5)),
        (("diff", memory, "2026-03-15"), ("diff", memory, 0)),
        (("recall", memory, "tea", "--as-of", then, "--model", "none"),) * 2,
        (("rewind", memory, "trip", "--to", then, "--dry-run"), ("rewind", memory, "trip", "--to", 3, "--dry-run")),
    ):
        assert run(*by_time, "--json").json == run(*by_position, "--json").json
    assert run("recall", memory, "tea", "--as-of", then, "--model", "none", "--json").json["head"] == 3
    switch = ("switch", memory, "--reason", "branch", "--from", "trip", "--dry-run", "--json", "--at")
    assert run(*switch, then).json["branched_at"] == 3
    branch = run("branch", memory, "trip", "--at", then, "--json").json["session"]
    assert len(run("show", memory, branch, "--json").json) == 2
    assert "no turn to hide" in run("rewind", memory, "trip", "--to", "yesterday").stdout
    assert len(run("show", memory, "trip", "--json").json) == 5


def test_replay_until_a_time_shows_the_state_at_that_time(run, memory):
    """Not that of now: events and state end together, as with `--to`."""
    until = run("replay", memory, "--until", "2026-03-16 14:30")
    assert "held at position 3" in until.stdout
    assert "2 turns" in until.stdout
    assert "tea at 2" in until.stdout
    assert "tea at 3" not in until.stdout
    assert (
        until.stdout
        == run("replay", memory, "--to", "2026-03-16 14:30").stdout
        == run("replay", memory, "--to", 3).stdout
    )
    part = run("replay", memory, "--since", "2026-03-16 14:00", "--until", "2026-03-16 15:00").stdout
    assert ("tea at 1" in part, "tea at 2" in part, "tea at 3" in part, "tea at 4" in part) == (
        False,
        True,
        True,
        False,
    )
    assert "held at position 4" in part
    assert run("replay", memory, "--until", "2026-03-16 14:30", "--json").json["position"] == 3
    assert "held at position 0" in run("replay", memory, "--until", "2026-03-15").stdout
    assert "held at position 6" in run("replay", memory, "--until", "now").stdout
    assert run("replay", memory, "--until", "now", "--to", 3).returncode == 2


def test_the_command_line_says_what_it_expects_instead(run, memory):
    """A position or a time, with examples, and the option's name."""
    for command in (("show", memory, "trip", "--at"), ("replay", memory, "--to"), ("diff", memory)):
        said = " ".join(run(*command, "soon").exited(2).stderr.replace("│", " ").split())
        assert "'soon' is neither a position such as 1200 nor a time such as '2026-03-16 14:00'" in said
    assert "'soon' is not a time" in run("recall", memory, "tea", "--since", "soon").exited(2).stderr
    assert "no checkpoint 'soon'" in run("branch", memory, "trip", "--at", "soon").stderr
    for command in (("show", memory, "trip", "--at"), ("replay", memory, "--to"), ("rewind", memory, "trip", "--to")):
        ran = run(*command, 99).exited(2)
        assert f"error: {command[-1]}: position 99 is not in this log, which ends at 6" in ran.stderr


def test_the_command_line_shows_times_with_their_zone_as_it_reads_them(run, memory):
    """In UTC, as JSON has them."""
    assert "2026-03-16 13:00:00Z" in run("replay", memory).stdout
    assert "2026-03-16 13:00Z " in run("show", memory, "trip").stdout
    assert "2026-03-16T13:00:00+00:00" in run("show", memory, "2").stdout
    assert run("show", memory, "trip", "--json").json[0]["said_at"] == "2026-03-16T13:00:00Z"
    run("record", memory, "trip", "tea tomorrow", "--said-at", "2026-03-17 09:30")
    assert run("show", memory, "trip", "--json").json[-1]["said_at"] == "2026-03-17T09:30:00Z"
    assert "2026-03-17 09:30Z" in run("show", memory, "trip").stdout


def test_record_and_recall_take_text_and_dates_for_times(bare):
    """`said_at`, `since` and `until`: UTC without a zone; a date is its start."""
    session = bare.start_session("a")
    session.record("user", "tea early", said_at="2026-03-16T12:00Z")
    bare.record(session.id, "user", "tea late", said_at="2026-03-18 09:30")
    assert [turn.said_at for turn in session.turns()] == [NOON, datetime(2026, 3, 18, 9, 30, tzinfo=UTC)]
    assert {hit.text for hit in bare.recall("tea", since="2026-03-17").hits} == {"tea late"}
    assert {hit.text for hit in bare.recall("tea", until=date(2026, 3, 17)).hits} == {"tea early"}
    assert {hit.text for hit in session.recall("tea", since="2026-03-18 09:30").hits} == {"tea late"}


@pytest.fixture
def march(bare, clock):
    """A conversation of the first of March that was recorded on the sixteenth, and one of that day without said times.

    Positions: 1 starts the first, 2 and 3 are its turns, 4 starts the second, 5 and 6 are its turns.
    """
    first = bare.start_session("first")
    for hour in (9, 10):
        clock.advance(seconds=3600)
        first.record("user", f"tea of March at {hour}", said_at=f"2026-03-01 {hour:02}:00")
    second = bare.start_session("second")
    for hour in (3, 4):
        clock.advance(seconds=3600)
        second.record("user", f"tea of today at {hour}")
    return bare


@pytest.mark.local
def test_recall_and_find_take_since_and_until_by_said_or_recorded(march):
    """By default the time when a turn was said: one without counts as said when it was recorded."""

    def found(**times):
        recalled = {hit.position for hit in march.recall("tea", **times).hits}
        assert recalled == {turn.position for turn in march.find("tea", **times)}
        return recalled

    assert found(until="2026-03-02") == found(until="2026-03-02", by="said") == {2, 3}
    assert found(since="2026-03-02") == {5, 6}
    assert found(since="2026-03-01 10:00", until="2026-03-16 16:00") == {3, 5}
    assert found(until="2026-03-02", by="recorded") == set()
    assert found(since="2026-03-02", by="recorded") == {2, 3, 5, 6}
    assert found(since="2026-03-16 14:00", until="2026-03-16 16:00", by="recorded") == {3, 5}
    session = march.session("first")
    assert {hit.position for hit in session.recall("tea", since="2026-03-16 14:00", by="recorded").hits} == {3}
    with pytest.raises(InvalidInput, match="by: 'heard' is neither 'said' nor 'recorded'"):
        march.recall("tea", by="heard")


def test_pages_and_receipts_keep_by_which_time_was_asked(march):
    """The next page continues the same answer; the audit repeats it."""
    asked = {"since": "2026-03-16 14:00", "until": "2026-03-16 16:00", "by": "recorded"}
    first = march.recall("tea", k=1, receipt=True, **asked)
    second = march.recall("tea", k=1, after=first.next, **asked)
    assert {first.hits[0].position, second.hits[0].position} == {3, 5}
    assert second.next is None
    with pytest.raises(InvalidInput, match="other filters"):
        march.recall("tea", k=1, after=first.next, **(asked | {"by": "said"}))
    march.session("second").record("user", "tea again")
    assert march.audit.receipts().sound


def test_the_timeline_takes_since_and_until_by_recorded_or_said(march):
    """By default the time of recording; by said, events that are no turns count when they were recorded."""

    def positions(**times):
        return [item.position for item in march.audit.timeline(**times)]

    assert positions(since="2026-03-16 14:00", until="2026-03-16 16:00") == [3, 4, 5]
    assert positions(until="2026-03-02") == []
    assert positions(until="2026-03-02", by="said") == [2, 3]
    assert positions(since="2026-03-02", by="said") == [1, 4, 5, 6]
    assert positions(since="2026-03-16 14:00", after=3, upto=4) == [4]
    assert positions(since="2026-03-17", until="2026-03-01") == []


def test_the_commands_take_by_said_and_by_recorded(run, march, folder):
    """`replay --by said` prints what was said then, and no state: no position has it."""
    march.close()
    recall = ("recall", folder, "tea", "--model", "none", "--json", "--until", "2026-03-02")
    assert [hit["position"] for hit in run(*recall).json["hits"]] == [2, 3]
    assert run(*recall, "--by", "recorded").json["hits"] == []
    find = ("find", folder, "tea", "--json", "--since", "2026-03-02")
    assert [turn["position"] for turn in run(*find).json] == [5, 6]
    assert [turn["position"] for turn in run(*find, "--by", "recorded").json] == [2, 3, 5, 6]
    said = run("replay", folder, "--until", "2026-03-02", "--by", "said").stdout
    assert ("at 9" in said, "at 10" in said, "today" in said, "held" in said) == (True, True, False, False)
    recorded = run("replay", folder, "--until", "2026-03-02").stdout
    assert ("March" in recorded, "held at position 0" in recorded) == (False, True)
    assert run("replay", folder, "--by", "heard").returncode == 2
