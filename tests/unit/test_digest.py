"""The chain's digests, against values that were computed by hand, and against one another.

Bytes as what differs from others, and values of channels as they are stored. The one bounded cache: what was used
longest ago goes first.
"""

import hashlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain import threads
from mnemolog.domain.binary_delta import COPIES_MAX, splice, spliced
from mnemolog.domain.chain import genesis, link
from mnemolog.domain.errors import LimitExceeded
from mnemolog.domain.threads import Blob, ChannelValue, ValueAt, base_number, pack, read_value, stored_value, unpack
from mnemolog.infra.runtime.lru_cache import LruCache

LOG_ID = "0123456789abcdef0123456789abcdef"
CREATED_AT = 1_704_067_200_000_000
GENESIS = "2f2255b869b3f7248bcf147ac2fa253f62f071894d4aec131f5383bd7469170b"
FIRST = "df61264a7d1a3814043d99185e9eb2d7fd9e8f05f5d267370d96a18b7c2f7314"
SECOND = "f8e23a3273e556a38c32929bd403d196ba3afbb4f8e5a622a9c6c3b3b4bb742e"
"""Constants: were they to change, no log written before would verify."""

FIRST_ROW = (1, b"session/s", 1, b"session.started.v1", b"\x82\xa4name\xa1s\xa5agent\xa1a", None, 1_704_067_200_000_000)
SECOND_ROW = (2, b"session/s", 2, b"turn.recorded.v1", b"\x82\xa4role\xa4user\xa4text\xa2hi", b"k1", -1)


def by_hand(previous, position, stream, version, topic, state, key, recorded_at):
    """The digest as the module says it is made, written down a second time without its code."""
    preimage = b"mnemolog/event/1\x00" + previous
    preimage += b"".join(struct.pack(">q", number) for number in (position, version, recorded_at))
    lengths = [len(stream), len(topic), len(state), -1 if key is None else len(key)]
    preimage += b"".join(struct.pack(">i", length) for length in lengths)
    return hashlib.sha256(preimage + stream + topic + state + (key or b"")).digest()


def test_the_golden_digests_stay_what_they_are():
    """Genesis and two events, as hexadecimal constants."""
    first = bytes.fromhex(GENESIS)
    assert genesis(log_id=LOG_ID, log_format=1, created_at=CREATED_AT).hex() == GENESIS
    assert link(first, *FIRST_ROW).hex() == FIRST
    assert link(bytes.fromhex(FIRST), *SECOND_ROW).hex() == SECOND


def test_the_golden_digests_are_sha256_of_what_the_format_says():
    """The constants were not copied from the code: hashlib gives them from the written description."""
    start = b"mnemolog/genesis/1\x00" + struct.pack(">qq", 1, CREATED_AT) + LOG_ID.encode()
    assert hashlib.sha256(start).hexdigest() == GENESIS
    assert by_hand(bytes.fromhex(GENESIS), *FIRST_ROW).hex() == FIRST
    assert by_hand(bytes.fromhex(FIRST), *SECOND_ROW).hex() == SECOND


def test_a_digest_has_the_length_that_the_schema_asks_for():
    """32 bytes, for genesis and events."""
    assert len(genesis(log_id="", log_format=1, created_at=0)) == len(link(bytes(32), *FIRST_ROW)) == 32


def test_two_logs_begin_differently():
    """Log id, format and the time of creation are part of the beginning."""
    beginnings = {
        genesis(log_id=log_id, log_format=log_format, created_at=created_at)
        for log_id in ("a", "b", "")
        for log_format in (1, 2)
        for created_at in (-1, 0, 1)
    }
    assert len(beginnings) == 18


INT64 = st.integers(-(2**63), 2**63 - 1)
# Few letters and short texts, so that two rows often agree when their columns are put together.
BYTES = st.binary(max_size=3) | st.text("ab", max_size=3).map(str.encode)
ROWS = st.tuples(
    st.sampled_from([bytes(32), b"\x01" * 32]) | st.binary(min_size=32, max_size=32),
    st.integers(1, 3) | INT64,
    BYTES,
    st.integers(1, 3) | INT64,
    BYTES,
    BYTES,
    st.none() | BYTES,
    st.integers(-1, 1) | INT64,
)


@given(ROWS, ROWS)
def test_no_two_rows_share_a_preimage(one, other):
    """Different rows have different digests: no column can lend a byte to its neighbour."""
    assert (link(*one) == link(*other)) == (one == other)


@given(ROWS)
def test_the_digest_is_what_the_format_says(row):
    """For any row, the code and the written description agree."""
    assert link(*row) == by_hand(*row)


def changed(rng, base, *, alphabet):
    """Return bytes with some of them replaced, put in or taken out."""
    new = bytearray(base)
    for _ in range(rng.randrange(5)):
        start = rng.randrange(len(new) + 1)
        new[start : start + rng.randrange(80)] = bytes(rng.choices(alphabet, k=rng.randrange(80)))
    return bytes(new)


@pytest.mark.parametrize("letters", [1, 2, 20, 256])
def test_what_is_spliced_is_what_it_was_made_of(rng, letters):
    """Whatever changed, also where few letters make everything look alike."""
    alphabet = range(letters)
    for _ in range(1_500):
        base = bytes(rng.choices(alphabet, k=rng.randrange(600)))
        new = changed(rng, base, alphabet=alphabet)
        plan, between = splice(base, new)
        assert spliced(base, plan, between) == new
        assert len(plan) <= 3 * (COPIES_MAX + 2)


def items(rng, count):
    """Records with much in common, as serialised messages have."""
    return [b"{kind: message, of: user, name: None, extra: {}, text: " + rng.randbytes(90) + b"}" for _ in range(count)]


@pytest.mark.parametrize(
    ("what", "most"), [("appended", 160), ("replaced", 400), ("taken out", 200), ("put in", 60_000), ("trimmed", 20)]
)
def test_a_small_change_makes_a_small_difference(rng, what, most):
    """Of records in a row: one more at the end, another in the middle, one less, many more, none of the first."""
    base = items(rng, 600)
    new = list(base)
    if what == "appended":
        new += items(rng, 1)
    elif what == "replaced":
        new[300:301] = items(rng, 1)
    elif what == "taken out":
        del new[200]
    elif what == "put in":
        new[100:100] = items(rng, 400)
    else:
        del new[:20]
    header = (b"\xdc\x02\x58", b"\xdc" + len(new).to_bytes(2, "big"))
    _, between = splice(header[0] + b"".join(base), header[1] + b"".join(new))
    assert len(between) <= most


def test_changes_far_apart_are_separate(rng):
    """What comes behind a change is found again, although all records have parts in common."""
    base = items(rng, 900)
    new = list(base)
    for place in (50, 300, 301, 700, 899):
        new[place] = items(rng, 1)[0]
    del new[500]
    _, between = splice(b"".join(base), b"".join(new))
    assert len(between) < 12 * len(base[0])


def test_bytes_that_are_nothing_alike_cost_a_bounded_search(rng):
    """And are told as they are."""
    base, new = rng.randbytes(300_000), rng.randbytes(300_000)
    plan, between = splice(base, new)
    assert len(between) > 299_000
    assert spliced(base, plan, between) == new


@pytest.mark.parametrize("plan", [[0, 0, 6], [0, 4, 2], [4, 0, 1], [-1, 0, 1], [0, -1, 1], [1, 0]])
def test_a_plan_that_reaches_beyond_the_bytes_is_refused(plan):
    """Damage is said, and not made up for."""
    with pytest.raises(ValueError, match=r"plan|zip"):
        spliced(b"12345", plan, b"abc")


def test_a_plan_that_copies_its_base_too_often_is_refused_before_it_fills_memory():
    """A few bytes of an export would unpack to any number."""
    with pytest.raises(ValueError, match="larger than any"):
        spliced(bytes(1 << 20), [0, 0, 1 << 20] * 65, b"")


def test_the_way_back_to_a_whole_value_is_short_and_leads_through_what_came_before():
    """A value is told by one that the value before it is told by as well, so no other has to be looked for."""

    def way(number):
        found = [number]
        while found[-1]:
            found.append(base_number(found[-1]))
        return found

    for number in range(1, 5_000):
        assert len(way(number)) <= 1 + 7 * 5
        assert base_number(number) in way(number - 1)


def test_a_value_is_stored_whole_where_little_of_it_is_in_the_base(rng):
    """Or where there is none, or it is so small that nothing is gained."""
    before = ValueAt(7, 3, None, "msgpack", rng.randbytes(1_000))
    assert stored_value("c", "msgpack", rng.randbytes(1_000), before, before).base is None
    assert stored_value("c", "msgpack", before.data, None, None).base is None
    assert stored_value("c", "msgpack", b"small", before, before).base is None
    near = stored_value("c", "msgpack", before.data + b"more", before, before)
    assert (near.base, near.number) == (7, 4)
    assert read_value(near, before.data) == before.data + b"more"


def test_bytes_are_packed_where_that_makes_them_less(rng):
    """And come back, with the bytes they were packed by."""
    for data, packed in ((b"", False), (b"ab" * 20, False), (b"ab" * 200, True), (rng.randbytes(500), False)):
        blob = pack("bytes", data, dictionary=b"known")
        assert (blob.packed, unpack(blob, dictionary=b"known")) == (packed, data)


def test_damaged_bytes_are_refused(monkeypatch):
    """Cut off, of another kind, without their base, or larger than any that is stored."""
    blob = pack("bytes", b"some text " * 50)
    for data in (blob.data[:-3], b"\xff" * 40):
        with pytest.raises(ValueError, match=r"."):
            unpack(Blob(kind="bytes", data=data, packed=True))
    with pytest.raises(ValueError, match="base"):
        read_value(ChannelValue(name="c", blob=blob, base=3, plan=[1, 0, 1]), None)
    monkeypatch.setattr(threads, "BLOB_BYTES_MAX", 400)
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    bomb = deflate.compress(bytes(10_000)) + deflate.flush()
    with pytest.raises(ValueError, match="larger"):
        unpack(Blob(kind="bytes", data=bomb, packed=True))
    with pytest.raises(LimitExceeded):
        pack("bytes", bytes(401))


def test_what_was_used_longest_ago_goes_first():
    """Reading a value counts as using it, and so does putting it again."""
    cache = LruCache[str, int](2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert cache.get("b") is None
    assert [cache.get(key) for key in "ac"] == [1, 3]
    cache.put("a", 4)
    cache.put("d", 5)
    assert [cache.get(key) for key in "abcd"] == [4, None, None, 5]


def test_values_may_count_by_their_size():
    """One that is too large by itself is not kept, and a replaced one counts no more."""
    cache = LruCache[str, bytes](4, size_of=len)
    cache.put("a", b"123")
    cache.put("a", b"12")
    cache.put("b", b"12")
    assert [cache.get(key) for key in "ab"] == [b"12", b"12"]
    cache.put("c", b"12345")
    assert [cache.get(key) for key in "abc"] == [None, None, None]
    cache.put("d", b"1234")
    assert cache.get("d") == b"1234"
    cache.clear()
    assert cache.get("d") is None
