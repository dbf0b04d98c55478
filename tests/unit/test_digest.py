"""The chain's digests, against values that were computed by hand, and against one another."""

import hashlib
import struct

from hypothesis import given
from hypothesis import strategies as st

from mnemolog.domain.chain import genesis, link

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
