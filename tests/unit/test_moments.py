"""Times as callers give them: in the library with `parse_time`, on the command line with `given_time`."""

import time
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import pytest
import typer

from mnemolog.cli.command import given_time
from mnemolog.domain.display import dated
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.facts import parse_valid_time
from mnemolog.domain.position import parse_relative_time, parse_time, to_micros
from tests.support import FakeClock


@pytest.fixture(params=["Europe/Berlin", "Pacific/Kiritimati", "America/Los_Angeles"], autouse=True)
def zone(request, monkeypatch):
    """The machine is in another time zone, which changes nothing."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts):
    return datetime(*parts, tzinfo=UTC)


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


def test_a_time_is_printed_with_its_zone_as_it_can_be_given():
    """To the minute or the second."""
    moment = utc(2026, 3, 16, 12, 30, 5)
    assert (dated(moment), dated(moment, seconds=True)) == ("2026-03-16 12:30Z", "2026-03-16 12:30:05Z")
    assert parse_time("since", dated(moment, seconds=True)) == to_micros("since", moment)


@pytest.mark.parametrize("given", ["soon", "", "14:00", "1200", "20260316", "2026-02-30", "x" * 99, 1200, None])
def test_what_is_no_time_is_refused_with_an_example(given):
    """The message names the field and the value, and shows what a time looks like."""
    with pytest.raises(InvalidInput, match=r"^since: .*'2026-03-16T14:00' or '2026-03-16'"):
        parse_time("since", given)


@pytest.mark.parametrize("given", [datetime(2026, 3, 16, 12), "0001-01-01T00:00+01:00", "9999-12-31T23:59-01:00"])
def test_a_naive_datetime_and_times_outside_the_calendar_are_refused(given):
    """A naive `datetime` may be of any zone."""
    for read in (parse_time, parse_valid_time):
        with pytest.raises(InvalidInput, match=r"^since: .*(time zone is ambiguous|not within the years 1 to 9999)"):
            read("since", given)


@pytest.mark.parametrize("read", [parse_time, parse_valid_time, partial(parse_relative_time, clock=FakeClock())])
@pytest.mark.parametrize("given", ["2026-03-16T14:00:00.0000001Z", "20260316T140000,1234560001", "monday 9:00.1234567"])
def test_digits_that_would_be_lost_are_refused(read, given):
    """Microseconds are kept; zeros after them lose nothing."""
    with pytest.raises(InvalidInput, match=rf"^at: '{given}' is finer than a microsecond.* round it"):
        read("at", given)
    exact = read("at", "2026-03-16T14:00:00.123456000Z")
    assert exact in (to_micros("at", moment := utc(2026, 3, 16, 14, 0, 0, 123456)), moment)


# A Wednesday; clocks went forward in Berlin on the Sunday before.
NOW = utc(2026, 4, 1, 8, 20)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("now", NOW),
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
    assert given_time(given, clock=FakeClock(to_micros("now", NOW))) == meant


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


@pytest.mark.parametrize("given", ["03/04/2026", "3/4/2026 14:00"])
def test_a_day_that_is_read_in_two_ways_is_refused_with_both(given):
    """Nothing says whether the month or the day comes first."""
    with pytest.raises(InvalidInput, match=r"^at: '.*' is 3 April 2026 or 4 March 2026: write one of these"):
        parse_relative_time("at", given, clock=FakeClock())


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
