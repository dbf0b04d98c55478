"""Several processes at one log: one total order, nothing missed, one winner."""

import threading

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import CheckpointCreated, TurnRecorded
from mnemolog.eventsourcing import LogApplicationRecorder
from tests.children.workers import append_batches, messages, race
from tests.support import in_thread, read_all

pytestmark = pytest.mark.promise("P3")

PROCESSES = 8

RACES = {
    "version": "another version of the stream than it has",
    "no stream": "a stream that is there already",
    "key": "a key with other content",
    "session": "an id that another session has",
    "checkpoint": "a name that another checkpoint has",
}
"""What each of eight processes asks for at once, so that it can be given to one of them only."""


@pytest.mark.timeout(7200)
@pytest.mark.promise("P3", "events of each process")
def test_a_reader_misses_nothing_while_eight_processes_append(
    processes, fork_server, folder, rng, seed, tries, record_property
):
    """Strictly rising positions, every event once, batches whole and not interleaved, for two kinds of readers."""
    record_property("tried", PROCESSES * tries)
    readers_miss_nothing(processes, fork_server, folder, rng, seed, tries, of_each_kind=1)


def readers_miss_nothing(processes, fork_server, folder, rng, seed, events_each, *, of_each_kind):
    """Let eight processes append, and compare what they were told with what readers have seen."""
    store = MemoryStore.open(folder, model=None)
    store.start_session("all")
    log = store.parts.log
    turns = PROCESSES * events_each
    ready = fork_server.Barrier(PROCESSES)

    def subscribe():
        """Take from a live subscription until all turns have come."""
        seen, read = [], 0
        with LogApplicationRecorder(log, id_type="text").subscribe(gt=0) as subscription:
            while read < turns:
                entry = next(subscription)
                seen.append(
                    (
                        entry.id,
                        log.decode(entry.id, entry.originator_id, entry.originator_version, entry.topic, entry.state),
                    )
                )
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

    readers = [in_thread(reader) for reader in (subscribe, poll) for _ in range(of_each_kind)]
    pipes = [
        processes.start(append_batches, str(folder), f"p{n}", rng.randrange(2**32), events_each, ready)[1]
        for n in range(PROCESSES)
    ]
    hearing = [in_thread(lambda pipe=pipe: messages(pipe)) for pipe in pipes]  # None of them waits for another.
    told = [answers.result(timeout_s=7_200) for answers in hearing]
    assert [answers[-1] for answers in told] == ["done"] * PROCESSES, f"seed {seed}"
    seen_by = [reader.result(timeout_s=7_200) for reader in readers]

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


@pytest.mark.timeout(7200)
@pytest.mark.promise("P4", "rounds")
@pytest.mark.parametrize("kind", RACES)
def test_of_eight_processes_that_ask_for_what_one_can_have_one_wins(processes, fork_server, folder, tries, kind):
    """A version, a new stream, a key, an id, a name: each round one has it, seven are refused and write nothing."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("race")
        before = store.head().position
        together = fork_server.Barrier(PROCESSES)
        pipes = [processes.start(race, str(folder), f"p{n}", kind, tries, together)[1] for n in range(PROCESSES)]
        outcomes = [messages(pipe) for pipe in pipes]
        assert all(len(outcome) == 1 and isinstance(outcome[0], list) for outcome in outcomes), outcomes
        winners = []
        for number in range(tries):
            of_round = [outcome[0][number] for outcome in outcomes]
            won = [name for name, (result, _) in enumerate(of_round) if result == "won"]
            assert len(won) == 1, (number, of_round)
            assert [result for result, _ in of_round].count("lost") == PROCESSES - 1, (number, of_round)
            if kind == "version":
                lost = [what for result, what in of_round if result == "lost"]
                assert lost == [(number + 1, number + 2)] * (PROCESSES - 1)
            winners.append(f"{number}/p{won[0]}")
        events = read_all(store.parts.log, after=before)
        assert [written_by(event.event) for event in events] == winners
        assert store.verify().findings == ()


def written_by(event):
    """What an event of a race says of who won it."""
    return event.description if isinstance(event, CheckpointCreated) else getattr(event, "text", None) or event.title
