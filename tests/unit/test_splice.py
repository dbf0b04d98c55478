"""Bytes as what differs from others, and values of channels as they are stored."""

import zlib

import pytest

from mnemolog.domain import threads
from mnemolog.domain.binary_delta import COPIES_MAX, splice, spliced
from mnemolog.domain.errors import LimitExceeded
from mnemolog.domain.threads import Blob, ChannelValue, ValueAt, base_number, pack, read_value, stored_value, unpack


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
