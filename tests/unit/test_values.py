"""Values of working memory: what may be stored, for how long, how much, and how it is read."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain import errors
from mnemolog.domain.events import ValueDeleted, ValuesCleared, ValueSet
from mnemolog.domain.values import VALUE_BYTES_MAX, MemoryLimits
from mnemolog.domain.working_memory import (
    MISSING,
    all_values,
    checked_expiry,
    clear_values,
    delete_value,
    keys,
    set_value,
    value_at,
)
from mnemolog.infra.log.event_codec import decode, encode
from tests.memory_log import MemoryLog

SECOND = 1_000_000
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def put(log, key, value, **options):
    return log.do(set_value, "s", key, value, now=log.now, **options)


def get(log, key):
    return value_at(log["s"], key, log.now)


def test_a_stored_none_is_not_a_missing_value(log):
    """The difference survives the log: the event of None holds it."""
    put(log, "a", None)
    assert get(log, "a") is None
    assert get(log, "b") is MISSING
    assert keys(log["s"], log.now) == ["a"]
    assert decode("value.set.v1", encode(ValueSet(key="a", value=None)), position=1).value is None
    with pytest.raises(errors.UndecodableEvent):
        decode("value.set.v1", b"\x81\xa3key\xa1a", position=1)


@given(value=JSON)
def test_any_json_value_comes_back_as_it_was(value):
    """Integers stay integers, floats floats, and every kind of text is text."""
    log = MemoryLog()
    log.start("s")
    put(log, "a", value)
    found = get(log, "a")
    assert found == value
    assert repr(found) == repr(value) or isinstance(value, dict | list)


def test_a_stored_value_cannot_be_changed_in_place(log):
    """Neither who stored it nor who read it."""
    mine = {"list": [1]}
    events = set_value("s", log["s"], "a", mine, now=log.now)
    mine["list"].append(2)
    log.append("session/s", events[0])
    get(log, "a")["list"].append(3)
    assert get(log, "a") == {"list": [1]}


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [-math.inf], {1: 2}, {"a": {3}}, b"x", object(), 2**64, "\ud800", {"\ud800": 1}]
)
def test_what_is_no_json_is_refused(log, value):
    """NaN above all: it would be another value on the way back, or none."""
    with pytest.raises(errors.InvalidInput):
        put(log, "a", value)


def test_a_value_has_a_limit_in_bytes(log):
    """256 KiB of msgpack: at the limit it is stored, one byte more is refused."""
    put(log, "a", "x" * (VALUE_BYTES_MAX - 5))
    assert len(log["s"].values["a"].encoded) == VALUE_BYTES_MAX
    with pytest.raises(errors.LimitExceeded):
        put(log, "a", "x" * (VALUE_BYTES_MAX - 4))


@pytest.mark.parametrize("key", ["", " ", "a\nb", "a\x00b", "\ud800", "x" * 513, "é" * 257, "mnemolog.x", 7, None])
def test_what_is_no_key_is_refused_everywhere(log, key):
    """Setting, deleting and reading go through one check; the library's own keys are out of reach."""
    for call in (
        lambda: put(log, key, 1),
        lambda: log.do(delete_value, "s", key),
        lambda: value_at(log["s"], key, log.now),
    ):
        with pytest.raises(errors.InvalidInput) as caught:
            call()
        assert caught.value.field == "key"


@pytest.mark.parametrize("key", ["x" * 512, "user/ação ☕", "mnemolog", "Mnemolog.x"])
def test_other_keys_are_fine(log, key):
    """512 bytes, any printable text."""
    put(log, key, 1)
    assert get(log, key) == 1


@pytest.mark.parametrize(
    ("ttl", "micros"),
    [
        (1, SECOND),
        (0.5, SECOND // 2),
        (1.1, 1_100_000),
        (1e-9, 1),
        (timedelta(milliseconds=3), 3_000),
        (timedelta(days=365_000), 365_000 * 86_400 * SECOND),
    ],
)
def test_a_time_to_live_becomes_an_absolute_expiry(ttl, micros):
    """Seconds of either kind, or a timedelta; to the microsecond."""
    assert checked_expiry(ttl, now=1_000) == 1_000 + micros


@pytest.mark.parametrize(
    "ttl",
    [
        *(0, -1, 0.0, -0.0, -1e-9, True, False, math.nan, math.inf, -math.inf, 1e300, 3e11, "5", [5]),
        *(timedelta(0), timedelta(microseconds=-1), timedelta.max),
        pytest.param(10**5_000, id="huge"),
    ],
)
def test_other_times_to_live_are_refused(log, ttl):
    """Zero and bool are mistakes, and infinity is said by leaving it out."""
    with pytest.raises(errors.InvalidInput) as caught:
        put(log, "a", 1, ttl=ttl)
    assert caught.value.field == "ttl"


def test_a_value_is_there_until_its_expiry_and_not_at_it(log):
    """`now < expires_at`, for every way of reading."""
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    log.now += SECOND - 1
    assert (get(log, "a"), keys(log["s"], log.now), all_values(log["s"], log.now)) == (1, ["a", "b"], {"a": 1, "b": 2})
    log.now += 1
    assert (get(log, "a"), keys(log["s"], log.now), all_values(log["s"], log.now)) == (MISSING, ["b"], {"b": 2})


def test_a_pattern_chooses_keys(log):
    """A glob: case matters, `*` crosses slashes, sets in brackets work."""
    for key in ("user/name", "user/city", "User/name", "a[1]"):
        put(log, key, 1)
    assert keys(log["s"], log.now, pattern="user/*") == ["user/city", "user/name"]
    assert keys(log["s"], log.now, pattern="?ser/[n]ame") == ["User/name", "user/name"]
    assert keys(log["s"], log.now, pattern="a[[]1]") == ["a[1]"]
    with pytest.raises(errors.InvalidInput):
        keys(log["s"], log.now, pattern="")


def test_deleting_and_clearing_write_only_what_changes(log):
    """What is not there needs no event; an expired value is there to be deleted."""
    assert log.do(delete_value, "s", "a") == []
    assert log.do(clear_values, "s") == []
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    log.now += 2 * SECOND
    assert log.do(delete_value, "s", "a") == [ValueDeleted(key="a")]
    assert log.do(clear_values, "s") == [ValuesCleared()]
    assert (log["s"].values_bytes, len(log["s"].values)) == (0, 0)


def test_the_number_of_values_has_a_limit_and_nothing_is_dropped(log):
    """A key that is there already may be set again; a new one is refused."""
    limits = MemoryLimits(values_max=2)
    put(log, "a", 1, limits=limits)
    put(log, "b", 1, limits=limits)
    put(log, "a", 2, limits=limits)
    with pytest.raises(errors.MemoryFull) as caught:
        put(log, "c", 3, limits=limits)
    assert (caught.value.limit, caught.value.actual) == (2, 3)
    assert "nothing was written" in caught.value.hint
    assert all_values(log["s"], log.now) == {"a": 2, "b": 1}


def test_the_bytes_of_all_values_have_a_limit(log):
    """Keys count; a value that is replaced does not count twice."""
    limits = MemoryLimits(values_bytes_max=30)
    put(log, "key", "x" * 25, limits=limits)  # 3 bytes of key, 26 of value
    put(log, "key", "y" * 26, limits=limits)
    assert log["s"].values_bytes == 30
    with pytest.raises(errors.MemoryFull):
        put(log, "key", "x" * 27, limits=limits)
    with pytest.raises(errors.MemoryFull):
        put(log, "b", None, limits=limits)


def test_a_limit_lowered_later_lets_values_shrink(log):
    """Otherwise one could not get back below it by setting."""
    put(log, "a", "x" * 30)
    put(log, "a", "x" * 20, limits=MemoryLimits(values_bytes_max=10))
    assert get(log, "a") == "x" * 20


def test_expired_values_make_room_where_it_is_needed(log):
    """Only what has expired is deleted, only when there is no room, and by events."""
    limits = MemoryLimits(values_max=2)
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    with pytest.raises(errors.MemoryFull):
        put(log, "c", 3, limits=limits)
    log.now += SECOND
    assert [event.topic for event in put(log, "b", 3, limits=limits)] == ["value.set.v1"]
    assert put(log, "c", 3, limits=limits) == [ValueDeleted(key="a"), ValueSet(key="c", value=3)]
    assert all_values(log["s"], log.now) == {"b": 3, "c": 3}
