"""The value at a time, known at a position: it follows from the set of assertions, not from the order they came in."""

import random
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from mnemolog.domain import errors
from mnemolog.domain.encoding import canonical
from mnemolog.domain.facts import (
    BECAUSE_MAX,
    Assertion,
    believed,
    checked_fact_key,
    latest_first,
    new_fact,
    parse_valid_time,
)


@pytest.fixture
def permutations(pytestconfig):
    """How many orders of arrival are tried."""
    return 100_000 if pytestconfig.getoption("scale") == "nightly" else 3_000


def arrived(claims, order):
    """Claims (valid_from, value, said_at) as assertions that were recorded in this order."""
    return [Assertion(1 + at, claims[n][0], canonical(claims[n][1]), 100 + claims[n][0]) for at, n in enumerate(order)]


def value(assertions, valid_at, upto=1_000):
    found = believed(latest_first(assertions, valid_at=valid_at, upto=upto))
    return None if found is None else found.decides.value


def test_the_answer_does_not_depend_on_the_order_of_arrival(permutations):
    """Of assertions that begin at different moments every permutation gives the same, at each time."""
    rng, tried = random.Random(56), 0
    while tried < permutations:
        begins = rng.sample(range(20), rng.randint(1, 7))
        claims = [(begin, rng.choice([1, "1", True, None, "Porto"])) for begin in begins]
        expected = {}
        for _ in range(20):
            given = arrived(claims, rng.sample(range(len(claims)), len(claims)))
            for at in range(-1, 21):
                found = believed(latest_first(given, valid_at=at, upto=1_000))
                answer = found and (found.decides.value, found.since, found.checked_at)
                assert expected.setdefault(at, answer) == answer, (claims, at)
                last = max((begin for begin in begins if begin <= at), default=None)
                assert (found and found.decides.value) == (None if last is None else canonical(dict(claims)[last]))
            tried += 1


def test_of_those_that_begin_together_the_last_position_counts(permutations):
    """And what is retracted counts until its retraction, whatever came in between."""
    rng = random.Random(57)
    for _ in range(permutations // 10):
        given = [
            Assertion(
                at,
                rng.randint(0, 2),
                canonical(rng.randint(0, 3)),
                0,
                at + rng.randint(1, 9) if rng.random() < 0.3 else None,
            )
            for at in range(1, 9)
        ]
        for upto in range(10):
            for at in range(4):
                live = [
                    item
                    for item in given
                    if item.position <= upto
                    and item.valid_from <= at
                    and not (item.retracted is not None and item.retracted <= upto)
                ]
                last = max(live, key=lambda item: (item.valid_from, item.position), default=None)
                assert value(rng.sample(given, len(given)), at, upto) == (last and last.value)


def test_an_empty_interval_overlaps_nothing():
    """Nor does it end the interval that goes on around it."""
    porto, lisbon = canonical("Porto"), canonical("Lisbon")
    given = [Assertion(1, 5, porto, 5), Assertion(2, 7, lisbon, 7), Assertion(3, 7, porto, 9)]
    found = believed(latest_first(given, valid_at=8, upto=9))
    assert (found.decides.value, found.since, found.checked_at, found.positions) == (porto, 5, 9, (3, 1))
    assert [value(given, at) for at in (4, 5, 6, 7)] == [None, porto, porto, porto]


def test_intervals_are_half_open():
    """At the moment where one begins, the one before has ended."""
    given = [Assertion(1, 5, b"old", 5), Assertion(2, 7, b"new", 7)]
    assert [value(given, at) for at in (4, 5, 6, 7)] == [None, b"old", b"old", b"new"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("2026-03", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-04", datetime(2026, 3, 4, tzinfo=UTC)),
        (date(2026, 3, 4), datetime(2026, 3, 4, tzinfo=UTC)),
        ("2026-03-04T12:00", datetime(2026, 3, 4, 12, tzinfo=UTC)),
        ("2026-03-04T12:00+02:00", datetime(2026, 3, 4, 10, tzinfo=UTC)),
        (datetime(2026, 3, 4, tzinfo=timezone(timedelta(hours=-3))), datetime(2026, 3, 4, 3, tzinfo=UTC)),
    ],
)
def test_a_day_is_its_first_moment_and_a_month_its_first_day(given, meant):
    """In UTC, wherever the machine is."""
    assert parse_valid_time("valid_from", given) == round(meant.timestamp() * 1e6)


@pytest.mark.parametrize("given", ["", " ", "2026", "2026-13", "20260304", "soon", datetime(2026, 3, 4), 5, True])
def test_what_is_no_time_is_refused(given):
    """An empty time least of all means now."""
    with pytest.raises(errors.InvalidInput, match="valid_at"):
        parse_valid_time("valid_at", given)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "user/*", "a?", "a/ b", "a\nb", "x" * 513])
def test_what_is_no_path_is_no_key(key):
    """Nor is a pattern."""
    with pytest.raises(errors.InvalidInput):
        checked_fact_key(key)
    with pytest.raises(errors.InvalidInput):
        new_fact(key=key, value=1)


def test_a_fact_rests_on_a_hundred_turns_at_most_each_named_once_in_order():
    """One more is refused, and so is what is no position."""
    assert new_fact(key="k", value=1, because=[7, 3, 7, 5, 3]).because == [3, 5, 7]
    most = range(BECAUSE_MAX, 0, -1)
    assert (BECAUSE_MAX, new_fact(key="k", value=1, because=most).because) == (100, sorted(most))
    for wrong in (range(1, BECAUSE_MAX + 2), [-1], [True]):
        with pytest.raises(errors.InvalidInput, match="because"):
            new_fact(key="k", value=1, because=wrong)
