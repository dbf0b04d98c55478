"""Equal states have equal bytes, and a state read back goes on like the one that was written."""

import msgspec
import pytest

from mnemolog.domain import errors, session
from mnemolog.domain.session import decode_state, encode_state, rewind
from mnemolog.domain.working_memory import (
    add_note,
    create_checkpoint,
    delete_value,
    restore_checkpoint,
    set_task,
    set_value,
)
from tests.memory_log import MemoryLog
from tests.session_states import state_digest


@pytest.fixture
def log():
    """A branch that has one of everything."""
    log = MemoryLog()
    log.start("s")
    log.do(set_value, "s", "b", {"z": None, "a": [1, 2.5, "é"]}, now=log.now, ttl=5)
    log.do(create_checkpoint, "s", checkpoint_id="c", name="first", description="one")
    log.say("s")
    log.start("t", parent="s", at=log.head)
    log.do(set_value, "t", "a", None, now=log.now)
    log.do(set_task, "t", "Book", step=1, total=2, percent=50)
    log.do(add_note, "t", "ação")
    log.do(create_checkpoint, "t", checkpoint_id="b", name="second")
    turn = log.say("t")
    log.say("t")
    log.do(rewind, "t", to=turn, head=log.head)
    log.do(session.end, "t", reason="done")
    return log


def test_the_bytes_do_not_depend_on_how_a_state_came_about(log):
    """Insertion order, deleted keys and the order of an object's keys leave no trace."""
    one, two = MemoryLog(), MemoryLog()
    keys = [f"k{n}" for n in range(200)]
    for log, order in ((one, keys), (two, keys[::-1])):
        log.start("s")
        for key in order:
            log.do(set_value, "s", key, dict.fromkeys((order[0], order[-1]), key), now=log.now)
        for n in range(50):
            log.do(set_value, "s", f"gone{n}" if log is two else "k0", n, now=log.now)
        for n in range(50):
            log.do(delete_value, "s", f"gone{n}")
        log.do(set_value, "s", "k0", None, now=log.now)
    for key in (keys[0], keys[-1]):
        assert one["s"].values[key] == two["s"].values[key]
    assert encode_state(one["s"]) == encode_state(two["s"])
    # In one process equal maps happen to list their keys alike; another process hashes them otherwise.
    assert [key for key, _ in msgspec.msgpack.decode(encode_state(one["s"]))["values"]] == sorted(keys)


def test_another_state_has_another_digest(log):
    """Each change shows, the smallest included: 1 is not 1.0, None is not missing."""
    digests = {state_digest(log["s"])}
    changes = [("a", None), ("a", 1), ("a", 1.0), ("a", True), ("a", "1")]
    for n, (key, value) in enumerate(changes):
        log.do(set_value, "s", key, value, now=log.now)
        digests.add(state_digest(log["s"]))
        assert len(digests) == n + 2
    log.do(add_note, "s", "x")
    digests.add(state_digest(log["s"]))
    log.do(restore_checkpoint, "s", "c")
    digests.add(state_digest(log["s"]))
    assert len(digests) == len(changes) + 3


def test_the_bytes_are_pinned(log):
    """A change of the format shows here, and must raise STATE_FORMAT."""
    assert state_digest(log["t"]) == "e19bc8fd4268e11b8307d6327239fd54163f2396ffb2af78c0be3e6fb9bbebca"


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x80", b"\xc1" * 9, b"not a state"])
def test_other_bytes_are_refused(stored):
    """A damaged snapshot is an error, so that the state is folded anew."""
    with pytest.raises(errors.InvalidInput):
        decode_state(stored)


def test_every_cut_of_a_stored_state_is_refused(log):
    """No half of a state is ever taken for one."""
    stored = encode_state(log["t"])
    for length in range(len(stored)):
        with pytest.raises(errors.InvalidInput):
            decode_state(stored[:length])


def test_another_format_is_refused(log):
    """A snapshot of a newer version is not guessed at."""
    stored = encode_state(log["t"])
    at = stored.index(b"format\x01")
    with pytest.raises(errors.InvalidInput, match="format 2"):
        decode_state(stored[:at] + b"format\x02" + stored[at + 7 :])
