"""Several processes at one log: one total order, nothing missed, one winner."""

from __future__ import annotations

import threading

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import TurnRecorded
from mnemolog.infra.mapper import decode
from tests.children.workers import append_batches, messages, race_for_versions
from tests.support import in_thread, read_all, texts_of

pytestmark = pytest.mark.promise("P3")

PROCESSES = 8
EVENTS_EACH = 500
ROUNDS = 40


@pytest.mark.timeout(600)
def test_a_reader_misses_nothing_while_eight_processes_append(processes, fork_server, folder, rng, seed):
    """Strictly rising positions, every event once, batches whole and not interleaved, for two kinds of readers."""
    store = MemoryStore.open(folder, model=None)
    store.start_session("all", session_id="all")
    log = store._log
    turns = PROCESSES * EVENTS_EACH
    ready = fork_server.Barrier(PROCESSES)

    def subscribe():
        """Take from a live subscription until all turns have come."""
        seen, read = [], 0
        with log.recorder.subscribe(gt=0) as subscription:
            while read < turns:
                entry = next(subscription)
                seen.append((entry.id, decode(entry.topic, entry.state, position=entry.id)))
                read += entry.topic == TurnRecorded.topic
        return seen

    def poll():
        """Read behind the last position that was seen, again and again."""
        seen, after, read = [], 0, 0
        pause = threading.Event()
        while read < turns:
            for batch in log.read(after=after, upto=log.head().position, batch_max=37):
                seen += [(event.position, event.event) for event in batch]
                read += sum(isinstance(event.event, TurnRecorded) for event in batch)
                after = seen[-1][0]
            pause.wait(0.001)
        return seen

    readers = [in_thread(subscribe), in_thread(poll)]
    pipes = [
        processes.start(append_batches, str(folder), f"p{n}", rng.randrange(2**32), EVENTS_EACH, ready)[1]
        for n in range(PROCESSES)
    ]
    told = [messages(pipe) for pipe in pipes]
    assert [answers[-1] for answers in told] == ["done"] * PROCESSES, f"seed {seed}"
    seen_by = [reader.result() for reader in readers]

    acknowledged = {
        position: f"{label}/{n}/{size}"
        for answers in told
        for label, size, positions in answers[:-1]
        for n, position in enumerate(positions)
    }
    assert len(acknowledged) == turns, f"a position was given twice, seed {seed}"
    for seen in seen_by:
        positions = [position for position, _ in seen]
        assert positions == sorted(set(positions)), f"seed {seed}"
        assert {n: event.text for n, event in seen if isinstance(event, TurnRecorded)} == acknowledged, f"seed {seed}"
    for answers in told:
        for label, _, positions in answers[:-1]:
            assert positions == list(range(positions[0], positions[-1] + 1)), f"{label} is interleaved, seed {seed}"
    assert store.verify().findings == (), f"seed {seed}"
    store.close()


@pytest.mark.timeout(600)
def test_of_eight_processes_that_expect_the_same_version_one_wins(processes, fork_server, folder):
    """Round by round: one winner, seven `WrongExpectedVersion`, nothing of theirs in the log."""
    with MemoryStore.open(folder, model=None) as store:
        together = fork_server.Barrier(PROCESSES)
        pipes = [
            processes.start(race_for_versions, str(folder), f"p{n}", ROUNDS, together)[1] for n in range(PROCESSES)
        ]
        outcomes = [messages(pipe) for pipe in pipes]
        assert all(len(outcome) == 1 and isinstance(outcome[0], list) for outcome in outcomes), outcomes
        winners = []
        for number in range(ROUNDS):
            of_round = [outcome[0][number] for outcome in outcomes]
            won = [name for name, (result, _) in enumerate(of_round) if result == "won"]
            assert len(won) == 1, (number, of_round)
            assert [what for result, what in of_round if result == "lost"] == [(number, number + 1)] * (PROCESSES - 1)
            winners.append(f"{number}/p{won[0]}")
        assert texts_of(read_all(store._log)) == winners
        assert store.verify().findings == ()
