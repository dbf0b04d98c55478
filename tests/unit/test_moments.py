"""Times as callers give them: in the library with `parse_time`, on the command line with `given_time`."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial

import pytest
import typer

from mnemolog.cli.arguments import given_time
from mnemolog.domain.clock import to_datetime, to_micros
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.facts import parse_valid_time
from mnemolog.domain.moments import parse_relative_time, parse_time
from tests.support import FakeClock


@pytest.fixture
def berlin(monkeypatch):
    """Local time is that of Berlin: clocks go forward on 29 March 2026 at 2:00, and back on 25 October at 3:00."""
    yield from _zone(monkeypatch, "Europe/Berlin")


@pytest.fixture
def beirut(monkeypatch):
    """Local time is that of Beirut: 29 March 2026 begins at 1:00."""
    yield from _zone(monkeypatch, "Asia/Beirut")


def _zone(monkeypatch, name):
    monkeypatch.setenv("TZ", name)
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
        (date(2026, 3, 16), utc(2026, 3, 15, 23)),
        ("2026-03-16", utc(2026, 3, 15, 23)),
        ("2026-03-16T12:00", utc(2026, 3, 16, 11)),
        ("2026-03-16 12:00", utc(2026, 3, 16, 11)),
        (" 2026-07-16 12:00:30.5 ", utc(2026, 7, 16, 10, 0, 30, 500_000)),
        ("2026-03-16T12:00Z", utc(2026, 3, 16, 12)),
        ("2026-03-16 12:00+05:30", utc(2026, 3, 16, 6, 30)),
    ],
)
def test_a_time_is_a_datetime_a_date_or_iso_text_and_local_without_a_zone(berlin, given, meant):
    """One reading of times, down to the microsecond."""
    assert parse_time("since", given) == to_micros("since", meant)


def test_the_start_of_a_day_is_right_where_that_day_has_no_midnight(beirut):
    """Clocks go from 23:59 to 1:00: the day begins when the one before it ends."""
    assert to_datetime(parse_time("since", date(2026, 3, 29))) == utc(2026, 3, 28, 22)


def test_a_local_time_that_happens_twice_is_the_earlier_one(berlin):
    """2:30 is first summer time, then winter time."""
    assert to_datetime(parse_time("since", "2026-10-25 02:30")) == utc(2026, 10, 25, 0, 30)


@pytest.mark.parametrize("given", ["soon", "", "14:00", "1200", "20260316", "2026-02-30", "x" * 99, 1200, None])
def test_what_is_no_time_is_refused_with_an_example(given):
    """The message names the field and the value, and shows what a time looks like."""
    with pytest.raises(InvalidInput, match=r"^since: .*'2026-03-16T14:00' or '2026-03-16'"):
        parse_time("since", given)


@pytest.mark.parametrize("given", [datetime(2026, 3, 16, 12), "0001-01-01", date(1, 1, 1), "9999-12-31T23:59-01:00"])
def test_a_naive_datetime_and_times_outside_the_calendar_are_refused(berlin, given):
    """A naive `datetime` may be of any zone; text and dates are local time."""
    with pytest.raises(InvalidInput, match=r"^since: .*(time zone is ambiguous|not within the years 1 to 9999)"):
        parse_time("since", given)


@pytest.mark.parametrize("read", [parse_time, parse_valid_time, partial(parse_relative_time, clock=FakeClock())])
@pytest.mark.parametrize("given", ["2026-03-16T14:00:00.0000001Z", "20260316T140000,1234560001", "monday 9:00.1234567"])
def test_digits_that_would_be_lost_are_refused(read, given):
    """Microseconds are kept; zeros after them lose nothing."""
    with pytest.raises(InvalidInput, match=rf"^at: '{given}' is finer than a microsecond.* round it"):
        read("at", given)
    exact = read("at", "2026-03-16T14:00:00.123456000Z")
    assert exact in (to_micros("at", moment := utc(2026, 3, 16, 14, 0, 0, 123456)), moment)


# Wednesday, 1 April 2026, 10:20 in Berlin; clocks went forward on the Sunday before.
NOW = utc(2026, 4, 1, 8, 20)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("now", NOW),
        ("today", utc(2026, 3, 31, 22)),
        ("Today 9:00", utc(2026, 4, 1, 7)),
        ("yesterday", utc(2026, 3, 30, 22)),
        ("yesterday 14:00", utc(2026, 3, 31, 12)),
        ("yesterday  at 14:00:30", utc(2026, 3, 31, 12, 0, 30)),
        ("monday", utc(2026, 3, 29, 22)),
        ("wednesday", utc(2026, 3, 31, 22)),
        ("last Wednesday", utc(2026, 3, 24, 23)),
        ("last friday 9:00", utc(2026, 3, 27, 8)),
        ("2 hours ago", utc(2026, 4, 1, 6, 20)),
        ("2h", utc(2026, 4, 1, 6, 20)),
        ("30 minutes ago", utc(2026, 4, 1, 7, 50)),
        ("an hour ago", utc(2026, 4, 1, 7, 20)),
        ("3 days ago", utc(2026, 3, 29, 8, 20)),
        ("4 days ago", utc(2026, 3, 28, 9, 20)),
        ("1 week ago", utc(2026, 3, 25, 9, 20)),
        ("96h", utc(2026, 3, 28, 8, 20)),
        ("2026-03-16", utc(2026, 3, 15, 23)),
        ("2026-03-16T12:00Z", utc(2026, 3, 16, 12)),
    ],
)
def test_the_command_line_reads_times_as_people_type_them(berlin, given, meant):
    """Days and weeks keep the time of day across a change of clocks; hours and minutes are exact."""
    assert given_time(given, clock=FakeClock(to_micros("now", NOW))) == meant


@pytest.mark.parametrize("given", ["soon", "yesterday 25:00", "last today", "2 fortnights ago", "99999 weeks", "17"])
def test_the_command_line_says_which_times_it_reads(given):
    """With the value, and examples that work."""
    with pytest.raises(typer.BadParameter) as refused:
        given_time(given)
    assert str(refused.value).startswith(f"{given!r} is not a time; expected a time such as")
    for example in ("2026-03-16 14:00", "yesterday 14:00", "monday", "2 hours ago"):
        assert f"'{example}'" in str(refused.value)
        assert given_time(example) is not None
