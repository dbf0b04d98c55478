"""A time at the end of the calendar, in a zone that puts it over the edge: such a turn could never be read again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mnemolog import InvalidInput

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))
OVER_THE_EDGE = [datetime.min.replace(tzinfo=EAST), datetime.max.replace(tzinfo=WEST)]


@pytest.mark.parametrize("moment", OVER_THE_EDGE, ids=str)
def test_a_time_that_utc_cannot_hold_is_refused_and_nothing_is_written(store, moment):
    """The session goes on as if nobody had asked."""
    session = store.start_session("trip")
    before = store.head()
    with pytest.raises(InvalidInput, match=r"said_at: .* not within the years 1 to 9999"):
        session.record("user", "hello", said_at=moment)
    assert store.head() == before
    with pytest.raises(InvalidInput, match="since"):
        store.recall("hello", since=moment)
    session.record("user", "hello")
    assert len(session.turns()) == 1


DAY = timedelta(days=1)
FIRST, LAST = datetime.min.replace(tzinfo=UTC) + DAY, datetime.max.replace(tzinfo=UTC) - DAY


@pytest.mark.parametrize("moment", [FIRST - timedelta(microseconds=1), LAST + timedelta(microseconds=1)], ids=str)
def test_a_turn_within_a_day_of_an_end_is_refused(store, moment):
    """Nothing could be added to its time, and some time zones could not show it."""
    session = store.start_session("trip")
    with pytest.raises(InvalidInput, match=r"said_at: .* use a time from 0001-01-02 to 9999-12-30"):
        session.record("user", "hello", said_at=moment)
    assert (
        store.recall("hello", since=datetime.min.replace(tzinfo=UTC), until=datetime.max.replace(tzinfo=UTC)).hits == ()
    )


@pytest.mark.parametrize("moment", [FIRST, LAST], ids=str)
def test_the_first_and_the_last_moment_are_kept(store, moment):
    """To the microsecond."""
    session = store.start_session("trip")
    session.record("user", "hello", said_at=moment)
    assert [turn.said_at for turn in session.turns()] == [moment]
