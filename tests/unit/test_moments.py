"""Times: when a query asks about, and times as people, programs and callers give them, wherever the machine is."""

import time
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog.adapters.importers import turn
from mnemolog.cli.command import given_time
from mnemolog.domain.display import dated
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.facts import parse_valid_time
from mnemolog.domain.values import parse_relative_time, parse_time, to_datetime, to_micros
from mnemolog.projections.recall.dates import dates_of
from tests.support import FakeClock


@pytest.fixture(params=["Europe/Berlin", "Pacific/Kiritimati", "America/Los_Angeles"])
def zone(request, monkeypatch):
    """The machine is in another time zone, which changes nothing."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (utc(2026, 3, 16, 12), utc(2026, 3, 16, 12)),
        (datetime(2026, 3, 16, 12, tzinfo=timezone(timedelta(hours=2))), utc(2026, 3, 16, 10)),
        (date(2026, 3, 16), utc(2026, 3, 16)),
        ("2026-03-16", utc(2026, 3, 16)),
        ("2026-03-16T12:00", utc(2026, 3, 16, 12)),
        ("2026-03-16 12:00", utc(2026, 3, 16, 12)),
        (" 2026-07-16 12:00:30.5 ", utc(2026, 7, 16, 12, 0, 30, 500_000)),
        ("2026-03-16T12:00Z", utc(2026, 3, 16, 12)),
        ("2026-03-16 12:00+05:30", utc(2026, 3, 16, 6, 30)),
    ],
)
def test_a_time_is_a_datetime_a_date_or_iso_text_and_utc_without_a_zone(given, meant):
    """One reading of times, down to the microsecond, for what is true as for what was said or recorded."""
    assert parse_time("since", given) == parse_valid_time("since", given) == to_micros("since", meant)


@pytest.mark.usefixtures("zone")
def test_a_time_is_printed_with_its_zone_as_it_can_be_given():
    """To the minute or the second."""
    moment = utc(2026, 3, 16, 12, 30, 5)
    assert (dated(moment), dated(moment, seconds=True)) == ("2026-03-16 12:30Z", "2026-03-16 12:30:05Z")
    assert parse_time("since", dated(moment, seconds=True)) == to_micros("since", moment)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("given", ["soon", "", "14:00", "1200", "20260316", "2026-02-30", "x" * 99, 1200, None])
def test_what_is_no_time_is_refused_with_an_example(given):
    """The message names the field and the value, and shows what a time looks like."""
    with pytest.raises(InvalidInput, match=r"^since: .*'2026-03-16T14:00' or '2026-03-16'"):
        parse_time("since", given)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("given", [datetime(2026, 3, 16, 12), "0001-01-01T00:00+01:00", "9999-12-31T23:59-01:00"])
def test_a_naive_datetime_and_times_outside_the_calendar_are_refused(given):
    """A naive `datetime` may be of any zone."""
    for read in (parse_time, parse_valid_time):
        with pytest.raises(InvalidInput, match=r"^since: .*(time zone is ambiguous|not within the years 1 to 9999)"):
            read("since", given)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("read", [parse_time, parse_valid_time, partial(parse_relative_time, clock=FakeClock())])
@pytest.mark.parametrize("given", ["2026-03-16T14:00:00.0000001Z", "20260316T140000,1234560001", "monday 9:00.1234567"])
def test_digits_that_would_be_lost_are_refused(read, given):
    """Microseconds are kept; zeros after them lose nothing."""
    with pytest.raises(InvalidInput, match=rf"^at: '{given}' is finer than a microsecond.* round it"):
        read("at", given)
    exact = read("at", "2026-03-16T14:00:00.123456000Z")
    assert exact in (to_micros("at", moment := utc(2026, 3, 16, 14, 0, 0, 123456)), moment)


# A Wednesday; clocks went forward in Berlin on the Sunday before.
CLOCK = utc(2026, 4, 1, 8, 20)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("now", CLOCK),
        ("today", utc(2026, 4, 1)),
        ("Today 9:00", utc(2026, 4, 1, 9)),
        ("yesterday", utc(2026, 3, 31)),
        ("yesterday 14:00", utc(2026, 3, 31, 14)),
        ("yesterday  at 14:00:30", utc(2026, 3, 31, 14, 0, 30)),
        ("monday", utc(2026, 3, 30)),
        ("wednesday", utc(2026, 4, 1)),
        ("last Wednesday", utc(2026, 3, 25)),
        ("last friday 9:00", utc(2026, 3, 27, 9)),
        ("2 hours ago", utc(2026, 4, 1, 6, 20)),
        ("2h", utc(2026, 4, 1, 6, 20)),
        ("30 minutes ago", utc(2026, 4, 1, 7, 50)),
        ("an hour ago", utc(2026, 4, 1, 7, 20)),
        ("3 days ago", utc(2026, 3, 29, 8, 20)),
        ("4 days ago", utc(2026, 3, 28, 8, 20)),
        ("1 week ago", utc(2026, 3, 25, 8, 20)),
        ("96h", utc(2026, 3, 28, 8, 20)),
        ("2026-03-16", utc(2026, 3, 16)),
        ("2026-03-16T12:00Z", utc(2026, 3, 16, 12)),
        ("17 Nov 2026", utc(2026, 11, 17)),
        ("17. November 2026", utc(2026, 11, 17)),
        ("17th sept. 2026 at 9:30", utc(2026, 9, 17, 9, 30)),
        ("Nov 17, 2026", utc(2026, 11, 17)),
        ("november 17 2026", utc(2026, 11, 17)),
        ("17.11.2026 14:00", utc(2026, 11, 17, 14)),
        ("1.2.2026", utc(2026, 2, 1)),
        ("17/11/2026", utc(2026, 11, 17)),
        ("3/3/2026", utc(2026, 3, 3)),
    ],
)
def test_the_command_line_reads_times_as_people_type_them(given, meant):
    """All are UTC."""
    assert given_time(given, clock=FakeClock(to_micros("now", CLOCK))) == meant


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    "given",
    [
        "soon",
        "yesterday 25:00",
        "last today",
        "2 fortnights ago",
        "99999 weeks",
        "17",
        "31 Nov 2026",
        "17 Mai 2026",
        "11.17.2026",
        "13/14/2026",
    ],
)
def test_the_command_line_says_which_times_it_reads(given):
    """With the value, and examples that work."""
    with pytest.raises(typer.BadParameter) as refused:
        given_time(given)
    assert str(refused.value).startswith(f"{given!r} is not a time; expected a time such as")
    for example in ("2026-03-16 14:00", "16 Mar 2026", "yesterday 14:00", "monday", "2 hours ago"):
        assert f"'{example}'" in str(refused.value)
        assert given_time(example) is not None


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize("given", ["03/04/2026", "3/4/2026 14:00"])
def test_a_day_that_is_read_in_two_ways_is_refused_with_both(given):
    """Nothing says whether the month or the day comes first."""
    with pytest.raises(InvalidInput, match=r"^at: '.*' is 3 April 2026 or 4 March 2026: write one of these"):
        parse_relative_time("at", given, clock=FakeClock())


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("day", "hours"),
    [("2026-03-16", 24), ("16 Mar 2026", 24), ("29.3.2026", 23), ("25 Oct 2026", 25), ("last monday", 24)],
)
def test_a_day_ends_a_microsecond_before_the_next_in_its_zone(day, hours):
    """What is recorded at midnight is not in it. Where clocks are changed, it is shorter or longer."""
    read = partial(parse_relative_time, "at", day, clock=FakeClock(step=0), zone=ZoneInfo("Europe/Berlin"))
    begin, end = read(), read(to_end=True)
    assert begin.astimezone(ZoneInfo("Europe/Berlin")).hour == 0
    assert end - begin == timedelta(hours=hours) - timedelta(microseconds=1)


NOW = datetime(2024, 5, 15, 12, 30, tzinfo=UTC)  # A Wednesday.


def micros(*moment):
    return to_micros("moment", datetime(*moment, tzinfo=UTC))


def asked(query):
    """The spans a query asks about, as pairs of days, with a store that begins in 2023."""
    found = dates_of(query, now=to_micros("now", NOW), first=micros(2023, 6, 1), last=micros(2024, 5, 15))
    days = [datetime.fromtimestamp(moment / 1e6, UTC).strftime("%Y-%m-%d") for span in found for moment in span]
    return list(zip(days[::2], days[1::2], strict=True))


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("what happened on 7 May 2023?", "2023-05-07", "2023-05-08"),
        ("on May 7th, 2023", "2023-05-07", "2023-05-08"),
        ("the 7th of May 2023", "2023-05-07", "2023-05-08"),
        ("in February 2024", "2024-02-01", "2024-03-01"),
        ("in 2022", "2022-01-01", "2023-01-01"),
        ("since 2023-05-07?", "2023-05-07", "2023-05-08"),
        ("back in 2023-12", "2023-12-01", "2024-01-01"),
        ("what did I say yesterday", "2024-05-14", "2024-05-15"),
        ("what is planned today", "2024-05-15", "2024-05-16"),
        ("who called last week?", "2024-05-06", "2024-05-13"),
        ("two weeks ago", "2024-04-29", "2024-05-06"),
        ("3 days ago", "2024-05-12", "2024-05-13"),
        ("last month", "2024-04-01", "2024-05-01"),
        ("this month", "2024-05-01", "2024-06-01"),
        ("a year ago", "2023-01-01", "2024-01-01"),
        ("on Monday", "2024-05-13", "2024-05-14"),
        ("on Wednesday", "2024-05-08", "2024-05-09"),
        ("last Wednesday", "2024-05-08", "2024-05-09"),
        ("this WEDNESDAY", "2024-05-15", "2024-05-16"),
        ("this Monday", "2024-05-20", "2024-05-21"),
        ("last Sunday", "2024-05-12", "2024-05-13"),
        ("this year", "2024-01-01", "2025-01-01"),
        ("this week", "2024-05-13", "2024-05-20"),
        ("an year ago", "2023-01-01", "2024-01-01"),
        ("ten days ago", "2024-05-05", "2024-05-06"),
        ("0 days ago", "2024-05-15", "2024-05-16"),
        ("012 weeks ago", "2024-02-19", "2024-02-26"),
        ("365 month ago", "1993-12-01", "1994-01-01"),
        ("999 years ago", "1025-01-01", "1026-01-01"),
    ],
)
def test_what_is_said_of_time(query, start, end):
    """A day, a week, a month or a year, as it was meant."""
    assert asked(query) == [(start, end)]


def test_a_month_without_a_year_is_that_of_every_year_there_is():
    """And of one before and behind, for what was said near its ends."""
    assert [start for start, _ in asked("what did she do in June?")] == [f"{y}-06-01" for y in (2022, 2023, 2024, 2025)]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "may I ask?",
        "they march on",
        "who may that be",
        "2020s",
        "room 1984x",
        "мая 2",
        "yesterdays",
        "last day",
        "this day",
        "1000 days ago",
    ],
)
def test_what_is_no_time(query):
    """Words that only look like it."""
    assert dates_of(query, now=to_micros("now", NOW), first=micros(2023, 1, 1), last=micros(2024, 1, 1)) == ()


def test_a_day_that_no_month_has_is_in_no_year():
    """31 June asks about nothing, and 29 February about some years."""
    assert asked("on June 31") == []
    assert asked("on February 29") == [("2024-02-29", "2024-03-01")]


@given(st.text(max_size=100), st.integers(0, 2**50), st.integers(0, 2**50))
def test_any_text_is_read_without_an_error(query, first, last):
    """Whatever is in it, and whenever turns were said."""
    dates_of(query, now=max(first, last), first=min(first, last), last=max(first, last))


@pytest.mark.parametrize(
    ("now", "query", "start"),
    [
        ((2024, 3, 31), "a month ago", (2024, 2, 1)),
        ((2024, 2, 29), "1 year ago", (2023, 1, 1)),
        ((2023, 12, 31), "two months ago", (2023, 10, 1)),
        ((2024, 1, 1), "yesterday", (2023, 12, 31)),
        ((2024, 1, 1), "last week", (2023, 12, 25)),
        ((2024, 5, 19), "last sunday", (2024, 5, 12)),
        ((2024, 5, 19), "this sunday", (2024, 5, 19)),
    ],
)
def test_periods_around_the_ends_of_months_and_years(now, query, start):
    """A day that a month does not have stands for its last one."""
    ((found, _),) = dates_of(query, now=micros(*now), first=0, last=0)
    assert found == micros(*start)


def test_a_time_before_the_first_year_is_no_time():
    """Nothing was said then."""
    assert dates_of("999 years ago", now=micros(900, 1, 1), first=0, last=0) == ()


MAY_8 = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
UNIX = 1_683_554_160


@pytest.mark.parametrize(
    "value",
    [
        "2023-05-08T13:56:00Z",
        "2023-05-08 13:56",
        " 2023-05-08T15:56:00+02:00 ",
        "1:56 pm on 8 May, 2023",
        "Mon, 08 May 2023 13:56:00 +0000",
        "2023/05/08 (Mon) 13:56",
        "May 8, 2023 13:56 UTC",
        "20230508T135600",
        "20230508135600",
        UNIX,
        float(UNIX),
        UNIX * 1_000,
        UNIX * 1_000_000,
        UNIX * 1_000_000_000,
        str(UNIX),
        f"{UNIX}.0",
        str(UNIX * 1_000),
    ],
)
def test_a_time_is_read_in_every_common_form(value):
    """ISO 8601, written forms and Unix time; UTC without a zone."""
    assert to_datetime(turn.parse_time("time", value)) == MAY_8


def test_a_day_may_come_first_where_it_cannot_be_a_month():
    """25/12/2023 can be read in one way only."""
    assert to_datetime(turn.parse_time("time", "25/12/2023")) == datetime(2023, 12, 25, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_time_is_not_an_error(value):
    """Many turns have none."""
    assert turn.parse_time("time", value) is None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("8/5 13:56 2023", "is ambiguous: day or month first"),
        ("13:56", "lacks a year"),
        ("May 8", "lacks a year"),
        ("May 2023", "lacks a year"),
        ("2023", "lacks a year"),
        ("Saturday 13:56", "lacks a year"),
        ("8 May 23", "lacks a year"),
        ("5/8/2023", "is ambiguous: day or month first"),
        ("2023-05-08 13:56 EST", "zone 'EST'"),
        ("May 8, 2023 13:56 IST", "zone 'IST'"),
        ("yesterday", "cannot be parsed as a time"),
        ("2023-02-30", "cannot be parsed as a time"),
        ("9" * 60, "cannot be parsed as a time"),
        ("x" * 101, "too long"),
        (2023, "not a Unix time"),
        (20230508, "not a Unix time"),
        (20230508135600, "not a Unix time"),
        (-5, "not a Unix time"),
        (10**30, "not a Unix time"),
        (float("nan"), "not a Unix time"),
        (True, "is not a time"),
        ([2023], "is not a time"),
    ],
)
def test_an_unclear_time_is_refused_never_guessed(value, why):
    """Neither the year nor the zone is guessed."""
    with pytest.raises(InvalidInput) as caught:
        turn.parse_time("time", value)
    assert why in str(caught.value)


@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1902, 1, 1), timezones=st.timezones() | st.just(UTC)))
def test_iso_times_keep_every_microsecond(moment):
    """What Python writes is read back exactly."""
    if moment.year < 9998:
        assert to_datetime(turn.parse_time("time", moment.isoformat())) == moment.astimezone(UTC)


@settings(deadline=None)
@given(st.text(max_size=120) | st.from_regex(r"[0-9/:., TZamp+-]{1,40}", fullmatch=True))
def test_any_text_is_a_time_or_refused(text):
    """No other error of the parser is raised."""
    try:
        said_at = turn.parse_time("time", text)
    except InvalidInput:
        return
    assert said_at is None or to_datetime(said_at).year > 1
