"""A process that is killed loses nothing it was told is recorded, and leaves no half batch.

A long-running command that is killed loses nothing that it printed, and its next start completes the rest.
"""

import json
import re
import time
from contextlib import suppress

import pytest

from mnemolog import DuplicateKey, MemoryStore, NewTurn
from mnemolog.domain.events import ModelActivated, TurnRecorded
from tests.children.workers import (
    activate_by_command,
    append_until_killed,
    batch_of,
    die_between_commit_and_return,
    messages,
    run_command,
)
from tests.e2e.transcripts.written import Claude
from tests.support import WAIT_S, HalfEncoder, read_all, texts_of

NEAR_OPENING_S = 0.05
KILLS_PER_STORE = 10


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


class Killed:
    """A store whose writers are killed, and what they were told before. It is another one every few kills."""

    def __init__(self, processes, tmp_path, rng, seed):
        self.processes, self.base, self.rng, self.seed = processes, tmp_path, rng, seed
        self.told_in_all = self.untold = self.runs = 0
        self.acknowledged = []

    def begin(self, number):
        if number % KILLS_PER_STORE == 0:
            self.folder, self.acknowledged = self.base / f"store{number}", []

    def kill(self, *, near_opening):
        """Start a writer and kill it. Return the name of its run, and what it was told."""
        run = f"run{self.runs}"
        self.runs += 1
        told = kill_at_random(
            self.processes,
            self.rng,
            append_until_killed,
            str(self.folder),
            run,
            self.rng.randrange(2**32),
            False,
            near_opening=near_opening,
        )
        self.acknowledged += told
        self.told_in_all += len(told)
        return run, told

    def check(self, number, *runs):
        """Everything that was told is there, batches are whole, and it goes on."""
        why = f"after kill {number}, seed {self.seed}"
        with MemoryStore.open(self.folder, model=None) as store:
            events = read_all(store.parts.log)
            turns = {event.position: event.event.text for event in events if isinstance(event.event, TurnRecorded)}
            for label, size, positions in self.acknowledged:
                texts = [turns.get(position) for position in positions]
                assert texts == [f"{label}/{n}/{size}" for n in range(size)], f"lost {why}"
            batches = whole_batches(texts_of(events))
            for run, told in runs:
                of_run = {label for label in batches if label.startswith(f"{run}.")}
                unacknowledged = of_run - {label for label, _, _ in told}
                assert len(unacknowledged) <= 1, f"at most the batch that was being recorded, {why}"
                self.untold += len(unacknowledged)
            assert store.verify().findings == (), why
            after = store.start_session(f"parent{number}", title="parent").record("user", f"after{number}/0/1")
            assert after.position == store.head().position, why
        self.acknowledged.append((f"after{number}", 1, [after.position]))


@pytest.mark.promise("P1")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills")
def test_a_kill_loses_no_acknowledged_turn_and_leaves_no_half_batch(processes, tmp_path, rng, seed, tries):
    """Batches of 1 to 50 turns, killed at random moments, a fifth within 50 ms of opening or creating the store."""
    killed = Killed(processes, tmp_path, rng, seed)
    for number in range(tries):
        killed.begin(number)
        killed.check(number, killed.kill(near_opening=number % 5 == 0))
    assert killed.told_in_all
    print(f"{tries} kills: {killed.told_in_all} batches told, {killed.untold} there untold; seed {seed}")


@pytest.mark.promise("P1")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills while recovering")
def test_a_kill_while_recovering_from_a_kill_loses_nothing_either(processes, tmp_path, rng, seed, tries):
    """What the first one left, the second one has begun to put in order when it is killed within 50 ms."""
    killed = Killed(processes, tmp_path, rng, seed)
    for number in range(tries):
        killed.begin(number)
        killed.check(number, killed.kill(near_opening=False), killed.kill(near_opening=True))
    assert killed.told_in_all


@pytest.mark.promise("P1")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P5", "lost acknowledgements")
def test_a_retry_after_a_lost_acknowledgement_adds_nothing(processes, folder, rng, seed, tries):
    """Killed after the commit and before the return; recorded again three times: one copy, same positions."""
    for number in range(tries):
        label, size, why = f"lost{number}", rng.choice([1, 2, 7, rng.randint(1, 50)]), f"kill {number}, seed {seed}"
        process, pipe = processes.start(die_between_commit_and_return, str(folder), label, size)
        assert messages(pipe) == ["committed"], why
        process.join()
        assert process.exitcode == -9, why
        with MemoryStore.open(folder, model=None) as store:
            committed = store.head()
            recorded = [event for event in read_all(store.parts.log) if (event.key or "").startswith(f"{label}/")]
            assert texts_of(recorded) == [f"{label}/{n}/{size}" for n in range(size)], why
            again = batch_of("s", label, size, keyed=True)
            for _ in range(3):
                turns = store.record_many(again)
                assert [turn.position for turn in turns] == [event.position for event in recorded], why
            new = NewTurn(session="s", role="user", text="new", key="new")
            other = NewTurn(session="s", role="user", text="other", key=again[-1].key)
            for batch in ([other], [new, other], [*again[:-1], other, new]):
                with pytest.raises(DuplicateKey):
                    store.record_many(batch)
            assert store.head() == committed, why


@pytest.mark.promise("P1")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P5", "kills")
def test_a_retry_after_a_kill_records_each_turn_once(processes, tmp_path, rng, seed, tries):
    """Whatever moment it was killed at: a turn recorded again under the same key exists once."""
    for number in range(tries):
        folder, label = tmp_path / f"store{number // KILLS_PER_STORE}", f"run{number}"
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
            store.session("s")
            wanted = [(name, size) for name, size, _ in told]
            # The batch after the last one acknowledged may be there or not: nobody was told.
            present = {item.event.text for item in read_all(store.parts.log) if item.key is not None}
            unknown = [match for text in present if (match := re.fullmatch(rf"({label}\.{len(told)})/0/(\d+)", text))]
            wanted += [(match[1], int(match[2])) for match in unknown] or [(f"{label}.{len(told)}", 3)]
            again = [item for name, size in wanted for item in batch_of("s", name, size, keyed=True)]
            given = [[turn.position for turn in store.record_many(again)] for _ in range(3)]
            assert given[0] == given[1] == given[2], f"seed {seed}"
            assert given[0][: sum(size for _, size, _ in told)] == [n for _, _, positions in told for n in positions]
            texts = texts_of(read_all(store.parts.log))
            assert len(texts) == len(set(texts)), f"seed {seed}"
            whole_batches(texts)
            assert store.verify().findings == (), f"seed {seed}"


SESSION = "aaaaaaaa-0000-4000-8000-000000000001"


def recorded(lines):
    """How many turns the reports of `watch` name in all."""
    return sum(json.loads(line)["recorded"] for line in lines if line.startswith("{"))


def texts_in(folder):
    with MemoryStore.open(folder, model=None, background=False) as store:
        assert store.verify().sound
        found = store.find_session(SESSION)
        return [] if found is None else [turn.text for turn in found.turns(limit=100_000)]


@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills of watch")
def test_a_killed_watch_keeps_what_it_printed_and_resumes_where_it_stopped(processes, tmp_path, rng, seed, tries):
    """While the transcript grows: nothing lost, nothing doubled, nothing out of order."""
    told_in_all = 0
    for number in range(tries):
        why = f"kill {number}, seed {seed}"
        if number % KILLS_PER_STORE == 0:
            folder, agents, said = tmp_path / f"store{number}", tmp_path / f"agents{number}", []
            talk = Claude(agents, SESSION)
        before = len(texts_in(folder)) if said else 0
        line = ["watch", str(folder), str(agents), "--poll", "0.05", "--json", "--format", "claude-code"]
        process, pipe = processes.start(run_command, line)
        told = []
        assert pipe.poll(WAIT_S), why
        for _ in range(rng.randint(1, 60)):
            said.append(f"note {len(said)}")
            talk.say(said[-1])
            if rng.random() < 0.1:
                wait_for(pipe, told, seconds=rng.uniform(0, 0.2))
        if number % 3 and not any(line.startswith("{") for line in told):
            assert pipe.poll(WAIT_S), why
        process.kill()
        told += messages(pipe)
        process.join()
        assert process.exitcode == -9, f"it ended by itself, {why}"
        there = texts_in(folder) if folder.exists() else []
        assert there == said[: len(there)], why
        assert len(there) >= before + recorded(told), f"lost, {why}"
        told_in_all += recorded(told)
        if number % 2:
            process, pipe = processes.start(run_command, [*line[:3], "--once", *line[5:]])
            finished = messages(pipe)
            process.join()
            assert recorded(finished) == len(said) - len(there), f"{finished}, {why}"
            assert texts_in(folder) == said, why
    assert told_in_all


@pytest.mark.timeout(7200)
@pytest.mark.promise("P10", "kills of the command")
def test_model_activate_that_is_killed_leaves_one_model_active_and_can_be_repeated(
    processes, tmp_path, rng, seed, tries
):
    """The old model or the new one; the one that it printed, if it did. Recall answers for every turn."""
    finished = 0
    for number in range(tries):
        why = f"kill {number}, seed {seed}"
        if number % KILLS_PER_STORE == 0:
            folder = tmp_path / f"store{number}"
            with MemoryStore.open(folder, model=HalfEncoder(0)) as store:
                store.session("s").record("user", "note of the beginning")
                store.admin.catch_up_vectors()
                store.models.add(HalfEncoder(1))
                store.models.activate("half-0")
        half, told = number % 2, []
        process, pipe = processes.start(activate_by_command, str(folder), half)
        assert pipe.poll(WAIT_S), why
        with suppress(EOFError):  # It was done before.
            wait_for(pipe, told, seconds=rng.uniform(0, 0.5))
        process.kill()
        told += messages(pipe)
        process.join()
        printed = any("fingerprint" in line for line in told)
        finished += printed
        with MemoryStore.open(folder, model=HalfEncoder(0), models=[HalfEncoder(1)]) as store:
            assert store.verify().sound, why
            activated = [
                item.event.model for item in read_all(store.parts.log) if isinstance(item.event, ModelActivated)
            ]
            (active,) = [item.name for item in store.models.list() if item.active]
            assert active == activated[-1], why
            assert not printed or active == f"half-{half}", why
            store.models.activate(f"half-{half}")
            found = store.recall("note", mode="vector", k=1_000)
            assert len(found.hits) == len(store.turns("s")), why
            assert all(hit.similarity > 0 for hit in found.hits), why  # Vectors of the other model are orthogonal.
    assert tries < 50 or 0 < finished < tries
