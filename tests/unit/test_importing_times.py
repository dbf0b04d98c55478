"""Times as people and programs write them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog.adapters.importers.turn import parse_time
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.position import to_datetime

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
    assert to_datetime(parse_time("time", value)) == MAY_8


def test_a_day_may_come_first_where_it_cannot_be_a_month():
    """25/12/2023 can be read in one way only."""
    assert to_datetime(parse_time("time", "25/12/2023")) == datetime(2023, 12, 25, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_time_is_not_an_error(value):
    """Many turns have none."""
    assert parse_time("time", value) is None


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
        parse_time("time", value)
    assert why in str(caught.value)


@settings(deadline=None)
@given(st.datetimes(min_value=datetime(1902, 1, 1), timezones=st.timezones() | st.just(UTC)))
def test_iso_times_keep_every_microsecond(moment):
    """What Python writes is read back exactly."""
    if moment.year < 9998:
        assert to_datetime(parse_time("time", moment.isoformat())) == moment.astimezone(UTC)


@settings(deadline=None)
@given(st.text(max_size=120) | st.from_regex(r"[0-9/:., TZamp+-]{1,40}", fullmatch=True))
def test_any_text_is_a_time_or_refused(text):
    """No other error of the parser is raised."""
    try:
        said_at = parse_time("time", text)
    except InvalidInput:
        return
    assert said_at is None or to_datetime(said_at).year > 1
