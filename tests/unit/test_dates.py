"""When a query asks about."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.position import to_micros
from mnemolog.projections.recall.dates import dates_of

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
