"""A process that is killed loses nothing it was told is recorded, and leaves no half batch."""

from __future__ import annotations

import re
import time

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import TurnRecorded
from tests.children.workers import append_until_killed, batch_of, die_between_commit_and_return, messages
from tests.support import WAIT_S, read_all, texts_of

pytestmark = pytest.mark.promise("P1")

NEAR_OPENING_S = 0.05
KILLS_PER_STORE = 25


def whole_batches(texts):
    """The batches among `texts`, which must be whole, in order, not interleaved: label to first index."""
    found, at = {}, 0
    while at < len(texts):
        label, number, size = texts[at].split("/")
        assert number == "0", f"a batch begins in its middle: {texts[at]}"
        expected = [f"{label}/{n}/{size}" for n in range(int(size))]
        assert texts[at : at + int(size)] == expected, f"batch {label} of {size} is torn"
        assert label not in found, f"batch {label} is there twice"
        found[label] = at
        at += int(size)
    return found


def kill_at_random(processes, rng, function, *arguments, near_opening):
    """Start a child, kill it at a random moment, return what it had acknowledged."""
    process, pipe = processes.start(function, *arguments)
    acknowledged = []
    assert pipe.poll(WAIT_S), "the child did not begin"
    assert pipe.recv() == "opening"
    if near_opening:
        wait_for(pipe, acknowledged, seconds=rng.uniform(0, NEAR_OPENING_S))
    else:
        assert pipe.poll(WAIT_S), "the child recorded nothing"
        wait_for(pipe, acknowledged, seconds=rng.uniform(0, 0.1))
    process.kill()
    acknowledged += messages(pipe)
    process.join()
    assert process.exitcode == -9, "it was killed, it did not fail by itself"
    return acknowledged


def wait_for(pipe, acknowledged, *, seconds):
    """Take messages until a random moment: the moment is the test, no result depends on its length."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and pipe.poll(left):
        acknowledged.append(pipe.recv())


@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills")
def test_a_kill_loses_no_acknowledged_turn_and_leaves_no_half_batch(processes, tmp_path, rng, seed, tries):
    """Batches of 1 to 50 turns, killed at random moments, a fifth of them within 50 ms of opening."""
    told_in_all = untold = 0
    for number in range(tries):
        if number % KILLS_PER_STORE == 0:
            folder, acknowledged = tmp_path / f"store{number}", []
        told = kill_at_random(
            processes,
            rng,
            append_until_killed,
            str(folder),
            f"run{number}",
            rng.randrange(2**32),
            False,
            near_opening=number % 5 == 0,
        )
        acknowledged += told
        with MemoryStore.open(folder, model=None) as store:
            events = read_all(store._log)
            turns = {event.position: event.event.text for event in events if isinstance(event.event, TurnRecorded)}
            for label, size, positions in acknowledged:
                texts = [turns.get(position) for position in positions]
                assert texts == [f"{label}/{n}/{size}" for n in range(size)], f"lost after kill {number}, seed {seed}"
            of_this_run = {label for label in whole_batches(texts_of(events)) if label.startswith(f"run{number}.")}
            unacknowledged = of_this_run - {label for label, _, _ in told}
            assert len(unacknowledged) <= 1, f"at most the batch that was being recorded, seed {seed}"
            assert store.verify().findings == (), f"after kill {number}, seed {seed}"
            after = store.start_session("parent", session_id=f"parent{number}").record("user", f"after{number}/0/1")
            assert after.position == store.head().position, f"after kill {number}, seed {seed}"
        acknowledged.append((f"after{number}", 1, [after.position]))
        told_in_all, untold = told_in_all + len(told), untold + len(unacknowledged)
    assert told_in_all
    print(f"{tries} kills: {told_in_all} batches told, {untold} there untold; seed {seed}")


@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills while created")
def test_a_kill_while_the_store_is_made_leaves_one_that_opens(processes, tmp_path, rng, seed, tries):
    """Killed while the log is created: the folder opens afterwards, and records."""
    for number in range(tries):
        folder = tmp_path / f"store{number}"
        told = kill_at_random(
            processes,
            rng,
            append_until_killed,
            str(folder),
            "run",
            rng.randrange(2**32),
            False,
            near_opening=True,
        )
        with MemoryStore.open(folder, model=None) as store:
            batches = whole_batches(texts_of(read_all(store._log)))
            assert {label for label, _, _ in told} <= batches.keys(), f"seed {seed}"
            store.start_session("parent", session_id="parent").record("user", "after/0/1")
            assert store.verify().findings == (), f"seed {seed}"


@pytest.mark.parametrize("size", [1, 2, 7, 50])
def test_a_retry_after_a_lost_acknowledgement_adds_nothing(processes, folder, size):
    """Killed after the commit and before the return; recorded again three times: one copy, same positions."""
    label = f"lost{size}"
    process, pipe = processes.start(die_between_commit_and_return, str(folder), label, size)
    assert messages(pipe) == ["committed"]
    process.join()
    assert process.exitcode == -9
    with MemoryStore.open(folder, model=None) as store:
        committed = store.head()
        (_, *recorded) = read_all(store._log)
        assert texts_of(recorded) == [f"{label}/{n}/{size}" for n in range(size)]
        for _ in range(3):
            turns = store.record_many(batch_of("s", label, size, keyed=True))
            assert [turn.position for turn in turns] == [event.position for event in recorded]
        assert store.head() == committed


@pytest.mark.timeout(7200)
@pytest.mark.promise("P5", "kills")
def test_a_retry_after_a_kill_records_each_turn_once(processes, folder, rng, seed, tries):
    """Whatever moment it was killed at: what is recorded again under the same keys is there once."""
    for number in range(tries):
        label = f"run{number}"
        told = kill_at_random(
            processes,
            rng,
            append_until_killed,
            str(folder),
            label,
            rng.randrange(2**32),
            True,
            near_opening=number % 2 == 0,
        )
        with MemoryStore.open(folder, model=None) as store:
            store.start_session("s", session_id="s")
            wanted = [(name, size) for name, size, _ in told]
            # The batch after the last one acknowledged may be there or not: nobody was told.
            present = {item.event.text for item in read_all(store._log) if item.key is not None}
            unknown = [match for text in present if (match := re.fullmatch(rf"({label}\.{len(told)})/0/(\d+)", text))]
            wanted += [(match[1], int(match[2])) for match in unknown] or [(f"{label}.{len(told)}", 3)]
            again = [item for name, size in wanted for item in batch_of("s", name, size, keyed=True)]
            given = [[turn.position for turn in store.record_many(again)] for _ in range(3)]
            assert given[0] == given[1] == given[2], f"seed {seed}"
            assert given[0][: sum(size for _, size, _ in told)] == [n for _, _, positions in told for n in positions]
            texts = texts_of(read_all(store._log))
            assert len(texts) == len(set(texts)), f"seed {seed}"
            whole_batches(texts)
            assert store.verify().findings == (), f"seed {seed}"
