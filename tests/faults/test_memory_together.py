"""Working memory under many writers."""

import random
import threading

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain.errors import CheckpointExists, UnknownCheckpoint
from mnemolog.domain.events import NoteAdded, TaskChanged
from mnemolog.projections.history import states
from tests.children.workers import add_notes, change_task, messages
from tests.session_states import fold_all, state_digest
from tests.support import decided_on, in_thread, once, read_all, wait_for_queue

pytestmark = pytest.mark.promise("P4")

PROCESSES = 8
UPDATES = 300


def check_state(store, session="s"):
    folded = fold_all(read_all(store.parts.log))[session]
    assert state_digest(visible_of(store).state(session)) == state_digest(folded)


@pytest.mark.timeout(7200)
@pytest.mark.promise("P4", "notes of each process")
def test_notes_of_eight_processes_are_all_there_each_processs_in_its_order(processes, fork_server, folder, tries):
    """One session, no note lost or twice, in the log and in what every process reads."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        together = fork_server.Barrier(PROCESSES)
        pipes = [
            processes.start(add_notes, str(folder), f"p{n}", tries, together, PROCESSES * tries)[1]
            for n in range(PROCESSES)
        ]
        answers = [messages(pipe) for pipe in pipes]
        notes = session.notes()
        assert answers == [[notes]] * PROCESSES
        assert len(notes) == len(set(notes)) == PROCESSES * tries
        for n in range(PROCESSES):
            assert [note for note in notes if note.startswith(f"p{n}/")] == [f"p{n}/{i}" for i in range(tries)]
        assert notes == [event.event.text for event in read_all(store.parts.log) if isinstance(event.event, NoteAdded)]
        check_state(store)
        assert store.verify().sound


@pytest.mark.timeout(600)
def test_of_two_processes_that_update_one_task_neither_loses_an_update(processes, fork_server, folder):
    """One counts the steps, one the states: each event keeps the other's field as it was then."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        session.set_task("work", step=0, status="status 0")
        together = fork_server.Barrier(2)
        pipes = [processes.start(change_task, str(folder), field, UPDATES, together)[1] for field in ("step", "status")]
        assert [messages(pipe) for pipe in pipes] == [["done"], ["done"]]
        changes = [event.event for event in read_all(store.parts.log) if isinstance(event.event, TaskChanged)]
        assert len(changes) == 1 + 2 * UPDATES
        step, status = 0, 0
        for change in changes[1:]:
            assert (change.step, change.status) in ((step + 1, f"status {status}"), (step, f"status {status + 1}"))
            step, status = change.step, int(change.status.split()[1])
        assert (step, status) == (UPDATES, UPDATES)
        assert (session.task().step, session.task().status) == (UPDATES, f"status {UPDATES}")
        check_state(store)


@pytest.mark.parametrize("snapshot_every", [7, 1_000])
def test_eight_threads_at_one_handle_leave_what_a_fold_from_zero_gives(folder, rng, seed, monkeypatch, snapshot_every):
    """Set, get, note, checkpoint, restore and look back, all at once: no exception, no value that was never set."""
    monkeypatch.setattr(states, "SNAPSHOT_EVERY", snapshot_every)
    seeds = [rng.randrange(2**32) for _ in range(8)]
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        first = session.checkpoint("first")
        together = threading.Barrier(8)

        def work(thread):
            own = random.Random(seeds[thread])
            together.wait()
            for n in range(60):
                match own.randrange(8):
                    case 0 | 1:
                        session.set(f"k{own.randrange(5)}", [thread, n])
                    case 2:
                        session.note(f"{thread}/{n}")
                    case 3:
                        found = session.get(f"k{own.randrange(5)}")
                        assert found is None or (0 <= found[0] < 8 and 0 <= found[1] < 60)
                    case 4:
                        session.checkpoint(f"c{thread}.{n}")
                    case 5:
                        session.restore(own.choice(session.checkpoints()).id)
                    case 6:
                        assert session.at(first.position).all() == {}
                        then = own.choice(session.checkpoints())
                        assert len(session.at(then.position).checkpoints()) >= 1
                    case 7:
                        session.branch(f"b{thread}.{n}", at=own.choice(session.checkpoints())).set("own", n)

        for outcome in [in_thread(lambda thread=thread: work(thread)) for thread in range(8)]:
            outcome.result()
        folded = fold_all(read_all(store.parts.log))
        for name, state in folded.items():
            assert state_digest(visible_of(store).state(name)) == state_digest(state), f"{name}, seed {seed}"
        assert store.verify().sound
    with MemoryStore.open(folder, model=None) as store:
        for name, state in folded.items():
            assert state_digest(visible_of(store).state(name)) == state_digest(state), f"{name}, seed {seed}"


def test_a_process_that_writes_without_reading_sees_what_others_wrote_in_between(folder, rng, seed):
    """Two stores in turn, none asks for anything: each decides on what both wrote, refusals and retries between."""
    with MemoryStore.open(folder, model=None) as one, MemoryStore.open(folder, model=None) as two:
        first = one.start_session("s")
        first.set_task("work", step=0)
        first.checkpoint("zero")
        handles = [first, two.session("s")]
        steps, named = 0, ["zero"]
        for n in range(300):
            session = rng.choice(handles)
            match rng.randrange(6):
                case 0 | 1:
                    steps += 1
                    session.update_task(step=steps)
                case 2:
                    session.checkpoint(f"c{n}")
                    named.append(f"c{n}")
                case 3:
                    with pytest.raises(CheckpointExists):
                        session.checkpoint(rng.choice(named))
                case 4:
                    session.note(f"{n}")
                    with pytest.raises(UnknownCheckpoint):
                        session.restore("never made")
                case 5:
                    session.record("user", f"{n}")
                    session.set(f"k{n % 9}", n)
                    session.restore(rng.choice(named))
        events = read_all(one.parts.log)
        told = [event.event.step for event in events if isinstance(event.event, TaskChanged)]
        assert told == list(range(steps + 1)), f"seed {seed}"
        for store in (one, two):
            check_state(store)


@pytest.mark.timeout(60)
def test_a_checkpoint_that_another_process_has_made_is_restored_by_one_who_does_not_know_it_yet(folder):
    """Its writer still takes a position before the checkpoint for free, where nothing can bring it back."""
    with MemoryStore.open(folder, model=None) as one, MemoryStore.open(folder, model=None) as two:
        mine, yours = one.start_session("s"), two.session("s")
        other = one.start_session("other")
        for n in range(3):
            yours.set("n", n)
            other.note("the last that this one wrote")
            yours.note("one position on")
            yours.checkpoint(f"c{n}")
            yours.set("n", -1)
            mine.get("n")
            mine.restore(f"c{n}")
            assert yours.get("n") == n
        check_state(one)
        check_state(two)


def test_decisions_in_one_group_are_made_on_what_those_before_them_staged(folder):
    """Note, checkpoint, note, branch, restore, branch: in one transaction, nothing of it on disk before the end."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("s")
        session.note("zero")
        staged = [
            lambda: session.note("one"),
            lambda: session.checkpoint("then"),
            lambda: session.note("two"),
            lambda: session.branch("late"),
            lambda: session.restore("then"),
            lambda: session.branch("early"),
            lambda: session.note("three"),
            lambda: session.branch("last", at=store.head().position + 2),
        ]
        outcomes = []

        def fill_the_queue():
            for n, call in enumerate(staged):
                outcomes.append(in_thread(call))
                wait_for_queue(store.parts.log, 2 + n)

        store.parts.log.appends.transact(once(fill_the_queue))
        for outcome in outcomes:
            outcome.result()
        names = ("s", "late", "early", "last")
        known, anew = decided_on(store, *names)
        assert known == anew
        for name in names:
            check_state(store, name)
        notes = {name: store.session(name).notes() for name in names}
        assert notes == {
            "s": ["zero", "one", "three"],
            "late": ["zero", "one", "two"],
            "early": ["zero", "one"],
            "last": ["zero", "one"],
        }
