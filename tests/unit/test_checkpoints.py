"""Checkpoints hold nothing; restoring one brings back values, task and notes by one event."""

import pytest

from mnemolog.domain import errors
from mnemolog.domain.events import CheckpointDeleted, CheckpointRestored
from mnemolog.domain.session import SessionState
from mnemolog.domain.values import MemoryLimits
from mnemolog.domain.working_memory import (
    all_values,
    clear_values,
    create_checkpoint,
    delete_checkpoint,
    find_checkpoint,
    restore_checkpoint,
    set_value,
)
from mnemolog.infra.log.event_codec import encode

SECOND = 1_000_000


def put(log, key, value, *, to="s", **options):
    return log.do(set_value, to, key, value, now=log.now, **options)


def mark(log, name, *, of="s"):
    """Create a checkpoint whose id is its name with a `#`; return its position."""
    log.do(create_checkpoint, of, checkpoint_id=f"#{name}", name=name)
    return log.head


def memory_of(state: SessionState):
    return (state.values, state.values_bytes, state.task, state.notes, state.notes_bytes)


def test_an_event_of_a_checkpoint_does_not_grow_with_the_memory(log):
    """Peers that copy their state into each checkpoint grow to 2^n."""
    sizes = []
    for n in range(20):
        put(log, f"k{n}", "x" * 10_000)
        created = create_checkpoint("s", log["s"], checkpoint_id=f"id{n:02}", name=f"c{n:02}")
        log.append("session/s", created[0])
        restored = log.do(restore_checkpoint, "s", f"c{n:02}")
        sizes.append(len(encode(created[0])) + len(encode(restored[0])))
    assert max(sizes) - min(sizes) <= 2
    assert len(log["s"].values) == 20


def test_a_restore_revives_nothing_expired_and_prolongs_no_life(log):
    """What is still alive keeps its end."""
    put(log, "short", 1, ttl=10)
    put(log, "long", 2, ttl=100)
    mark(log, "c")
    log.do(clear_values, "s")
    log.now += 10 * SECOND
    log.do(restore_checkpoint, "s", "c")
    assert all_values(log["s"], log.now) == {"long": 2}
    log.now += 90 * SECOND
    assert all_values(log["s"], log.now) == {}


def test_a_deleted_checkpoint_stays_deleted_after_a_restore(log):
    """Checkpoints are not part of what is restored; a free name may be used again."""
    mark(log, "one")
    mark(log, "two")
    assert log.do(delete_checkpoint, "s", "one") == [CheckpointDeleted(id="#one")]
    log.do(restore_checkpoint, "s", "two")
    for call in (restore_checkpoint, delete_checkpoint):
        for name in ("one", "#one", "never"):
            with pytest.raises(errors.UnknownCheckpoint) as caught:
                log.do(call, "s", name)
            assert caught.value.checkpoint == name
            assert str(caught.value).endswith(f"no checkpoint {name!r}; it has 'two'")
    position = mark(log, "one")
    assert find_checkpoint(log["s"], "one").position == position


def test_a_checkpoint_is_found_by_id_or_name_and_neither_can_mean_two(log):
    """A name that is another's id, or an id that is another's name, is taken."""
    position = mark(log, "c")
    assert find_checkpoint(log["s"], "#c") == find_checkpoint(log["s"], "c")
    assert find_checkpoint(log["s"], "c").position == position
    for checkpoint_id, name in [("new", "c"), ("#c", "new"), ("new", "#c"), ("c", "new")]:
        with pytest.raises(errors.CheckpointExists):
            log.do(create_checkpoint, "s", checkpoint_id=checkpoint_id, name=name)


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": "a\nb"}, {"checkpoint_id": "x" * 257}, {"description": "x" * 5_000}, {"name": 5}]
)
def test_labels_of_a_checkpoint_are_checked(log, fields):
    """One line each; the description may be longer, and left out."""
    log.do(create_checkpoint, "s", checkpoint_id="i", name="n", description="two\nlines")
    assert find_checkpoint(log["s"], "n").description == "two\nlines"
    with pytest.raises(errors.InvalidInput):
        log.do(create_checkpoint, "s", **({"checkpoint_id": "i2", "name": "n2"} | fields))


def test_the_number_of_checkpoints_has_a_limit(log):
    """Deleting one makes room; none is dropped."""
    limits = MemoryLimits(checkpoints_max=1)
    log.do(create_checkpoint, "s", checkpoint_id="1", name="a", limits=limits)
    with pytest.raises(errors.MemoryFull):
        log.do(create_checkpoint, "s", checkpoint_id="2", name="b", limits=limits)
    log.do(delete_checkpoint, "s", "a")
    log.do(create_checkpoint, "s", checkpoint_id="2", name="b", limits=limits)


def test_an_inherited_checkpoint_is_restored_from_the_ancestors_stream(log):
    """Over two generations; in the branch and in the parent alike; and apart from one another."""
    put(log, "a", 1)
    position = mark(log, "c")
    put(log, "a", 2)
    log.start("b", parent="s", at=log.head)
    put(log, "a", 3, to="b")
    log.start("g", parent="b", at=log.head)
    put(log, "a", 4, to="g")
    assert find_checkpoint(log["g"], "c").session == "s"
    assert log.do(restore_checkpoint, "g", "c") == [CheckpointRestored(id="#c", position=position)]
    assert [all_values(log[name], log.now) for name in "sbg"] == [{"a": 2}, {"a": 3}, {"a": 1}]
    log.do(delete_checkpoint, "g", "c")
    log.do(restore_checkpoint, "b", "c")
    assert all_values(log["b"], log.now) == {"a": 1}


def test_a_session_without_a_branch_point_inherits_nothing(log):
    """A parent alone says where it came from, not what to take along."""
    put(log, "a", 1)
    log.start("b", parent="s")
    log.start("fresh")
    assert (memory_of(log["b"]), log["b"].ancestors) == (memory_of(log["fresh"]), ())


def test_a_restore_of_a_checkpoint_that_is_not_there_changes_nothing(log):
    """No decision writes it: another program did."""
    mark(log, "c")
    before = log["s"]
    for event in (CheckpointRestored(id="x", position=1), CheckpointRestored(id="#c", position=1)):
        log.append("session/s", event)
        assert log["s"] == before
