"""Times at the ends of the calendar: refused where they would be stored, harmless where they are asked or found."""

import contextlib
import itertools
import time
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
import typer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mnemolog import InvalidInput, MemoryStore, MnemologError, Weights
from mnemolog.adapters.support.context import context_for
from mnemolog.cli.command import given_time
from mnemolog.domain.display import dated
from mnemolog.domain.events import SessionStarted, TurnRecorded
from mnemolog.domain.session import session_stream
from mnemolog.domain.values import to_micros
from mnemolog.infra.log.open import open_log
from mnemolog.projections.recall.dates import dates_of
from tests.support import FakeClock, nothing_written

DAY = timedelta(days=1)
FIRST, LAST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))
ENDS = [FIRST, LAST, FIRST + DAY, LAST - DAY, FIRST + DAY / 2, LAST - DAY / 2]
EAST, WEST = timezone(timedelta(hours=23, minutes=59)), timezone(-timedelta(hours=23, minutes=59))
ZONES = [UTC, EAST, WEST, ZoneInfo("Pacific/Kiritimati"), ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")]
QUESTIONS = (
    *("tea in May", "tea in december 9999", "on 31 December", "29 february", "in 1999", "9999-12-31", "0001-01-01"),
    *("last week", "this week", "last month", "this year", "last year", "this friday", "on sunday", "yesterday"),
    *("999 years ago", "999 days ago", "today", "999 months ago"),
)


class Broken(tzinfo):
    """A time zone that does not know its own offset at the ends of the calendar, as some of other libraries."""

    def utcoffset(self, moment):
        raise OverflowError("date value out of range")


moments = st.datetimes(timezones=st.sampled_from(ZONES)) | st.sampled_from(ENDS) | st.dates()


@pytest.fixture(params=["UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
def local(request, monkeypatch):
    """The zone of the machine."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """A store whose log was written before times at the ends were refused."""
    folder = tmp_path_factory.mktemp("old") / "memory"
    turns = [TurnRecorded(role="user", text="tea in May", said_at=to_micros("said_at", end)) for end in ENDS]
    with closing(open_log(folder, clock=FakeClock(), create=True)) as log:
        for event in (SessionStarted(title="", agent="agent", scope=""), *turns):
            log.appends.transact(lambda tx, event=event: tx.append(session_stream("s"), event))
    with MemoryStore.open(folder, model=None, background=False) as store:
        yield store


def asked(call, *arguments, **named):
    """Whether a call answers; the only other outcome is that it refuses what it was given."""
    try:
        call(*arguments, **named)
    except MnemologError:
        return False
    return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(moments)
@example(LAST.replace(tzinfo=WEST))
@example(FIRST.replace(tzinfo=EAST))
@example(LAST.replace(tzinfo=Broken()))
@example(date.max)
@example(date.min)
def test_a_time_is_recorded_with_a_day_to_spare_or_refused(store, moment):
    """What was recorded can be read, shown in every zone, and asked for by its month."""
    session = store.session("s")
    before = store.head()
    if not isinstance(moment, datetime) and (moment - date.min < 2 * DAY or date.max - moment < 2 * DAY):
        return  # A date is local time.
    if isinstance(moment, datetime) and is_at_an_end(moment):
        with pytest.raises(InvalidInput, match="said_at"):
            session.record("user", "tea", said_at=moment)
        assert store.head() == before
        return
    turn = session.record("user", "tea", said_at=moment)
    assert all(turn.said_at.astimezone(zone) for zone in ZONES)
    assert turn.said_at - DAY < turn.said_at + DAY
    assert turn.said_at == moment or isinstance(moment, date)
    assert store.recall(f"tea in {turn.said_at:%B}")


def is_at_an_end(moment):
    if isinstance(moment.tzinfo, Broken):
        return True
    micros = (moment.replace(tzinfo=None) - datetime(1970, 1, 1) - moment.utcoffset()) // timedelta(microseconds=1)
    return not to_micros("", FIRST + DAY) <= micros <= to_micros("", LAST - DAY)


def test_a_turn_at_the_end_of_the_calendar_breaks_no_recall(old, local):
    """Old logs hold such turns: they are found, filtered, shown and explained like others."""
    for question in QUESTIONS:
        answer = old.recall(question, k=20)
        assert answer.explain()
        assert repr(answer)
        assert answer.to_json()
    for end in ENDS:
        every = Weights(distinct=False)
        hits = old.recall(
            "tea of May", k=20, weights=every, since=end, until=end + DAY / 4 if end < LAST - DAY else None
        ).hits
        assert end in [hit.said_at for hit in hits]
        assert all(dated(hit.said_at) for hit in hits)
        assert old.find("tea", since=end)
        assert list(old.audit.timeline(since=end, by="said"))
    assert context_for(old.session("s"), "tea in May")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(moments, moments)
@example(FIRST, LAST)
@example(LAST.replace(tzinfo=WEST), FIRST.replace(tzinfo=EAST))
@example(date.min, date.max)
def test_every_call_that_takes_a_time_answers_or_refuses_it(old, one, two):
    """Whichever time it is, as an object and as text."""
    for since, until in ((one, two), (one.isoformat(), two.isoformat())):
        session = old.session("s")
        asked(old.recall, "tea in May", since=since, until=until)
        asked(old.recall, "tea", as_of=since)
        asked(old.find, "tea", since=since, until=until, after=since)
        asked(old.turns, "s", after=until)
        asked(old.replay, to=since)
        asked(session.at, since)
        asked(old.position_at, until)
        asked(old.audit.diff, since, until)
        asked(old.audit.receipts, since=since)
        asked(lambda since=since, until=until: list(old.audit.timeline(after=since, since=since, upto=until)))
        asked(lambda since=since: list(old.events(after=since)))


@given(
    st.sampled_from(QUESTIONS) | st.text(max_size=30),
    *[st.sampled_from(ENDS) | st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC))] * 3,
)
def test_a_date_in_a_query_is_a_span_of_time_wherever_the_present_is(question, now, first, last):
    """From its start on, never backwards."""
    first, last = sorted((first, last))
    spans = dates_of(question, now=to_micros("", now), first=to_micros("", first), last=to_micros("", last))
    assert all(start < end for start, end in spans)


def test_a_relative_time_that_leaves_the_calendar_is_no_time(local):
    """On the command line; whatever the clock of the machine says."""
    relative = ("now", "today", "yesterday 14:00", "last monday", "9999 weeks ago", "9999h", "3 days ago")
    for end, asked_for in itertools.product(ENDS, relative):
        with contextlib.suppress(typer.BadParameter):
            assert given_time(asked_for, clock=FakeClock(to_micros("", end), step=0)).tzinfo is not None


@pytest.mark.parametrize("end", [FIRST + DAY, LAST - DAY], ids=str)
def test_a_store_whose_clock_is_at_an_end_still_records_and_recalls(folder, end):
    """Such as that of a machine without a battery, or of a simulation."""
    with MemoryStore.open(folder, model=None, clock=FakeClock(to_micros("", end))) as store:
        session = store.session("s")
        session.record("user", "tea in May")
        with pytest.raises(InvalidInput, match="ttl"):
            session.set("key", 1, ttl=timedelta.max)
        for question in QUESTIONS:
            assert store.recall(f"tea {question}")
        assert store.status()
        assert store.verify().sound


def test_a_message_with_an_impossible_time_is_refused(store):
    """By the field that has it; nothing is recorded."""
    session, ends = store.session("s"), ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00")
    with nothing_written(store):
        for said in (*ends, 1e300, float("nan"), float("inf"), 10**30):
            with pytest.raises(InvalidInput, match="said_at"):
                session.record({"role": "user", "content": "tea", "said_at": said})
