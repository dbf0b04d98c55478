"""Switching under load and under fire: every turn once and in its own session, a switch whole or not at all.

Working memory under many writers.
"""

import random
import threading
from itertools import pairwise

import pytest

from mnemolog import MemoryStore, SessionAlreadyEnded
from mnemolog.adapters.support.store_access import visible_of
from mnemolog.domain.errors import CheckpointExists, UnknownCheckpoint
from mnemolog.domain.events import (
    CheckpointRestored,
    NoteAdded,
    SessionStarted,
    SessionSwitched,
    TaskChanged,
    TurnRecorded,
)
from mnemolog.domain.session import session_of
from mnemolog.domain.switching import evolve_agent
from mnemolog.projections.history import states
from tests.children.workers import (
    add_notes,
    change_task,
    messages,
    restore_until_killed,
    switch_often,
    switch_until_killed,
)
from tests.faults.test_kill import KILLS_PER_STORE, kill_at_random
from tests.session_states import fold_all, state_digest
from tests.support import decided_on, in_thread, once, read_all, wait_for_queue

THREADS = 4
TURNS_EACH = 12

SWITCHES = {
    "new": ({"reason": "new"}, True),
    "reset": ({"reason": "reset"}, True),
    "resume another": ({"reason": "resume", "to": "other"}, False),
    "resume itself": ({"reason": "resume", "to": "old"}, False),
    "branch": ({"reason": "branch"}, True),
    "compress in place": ({"reason": "compress"}, False),
    "compress into a new one": ({"reason": "compress", "to": "fresh"}, True),
    "rewind in place": ({"reason": "rewind", "turns": 5}, False),
    "rewind to a new one": ({"reason": "rewind", "turns": 5, "to": "fresh"}, True),
}


@pytest.fixture
def store(folder):
    with MemoryStore.open(folder, model=None) as store:
        yield store


def start_two(store):
    """Two sessions; the agent is in `old`."""
    store.start_session("other")
    old = store.start_session("old")
    old.record("user", "before")
    store.switch("old", reason="resume")
    return old


def agent_in(events, agent="agent"):
    """Current session and generation, folded from the log."""
    state = None
    for recorded in events:
        if recorded.stream == f"agent/{agent}":
            state = evolve_agent(state, recorded)
    return state


def check_states(store, events, why="", *, last=1_000):
    for name, state in [*fold_all(events).items()][-last:]:
        assert state_digest(visible_of(store).state(name)) == state_digest(state), f"{name} {why}"


@pytest.mark.promise("P3")
@pytest.mark.parametrize("kind", SWITCHES)
def test_turns_that_are_queued_land_before_the_switch_that_was_called_behind_them(store, kind):
    """The writer is held up, four threads queue turns for the old session, then the agent is switched."""
    asked, starts = SWITCHES[kind]
    old = start_two(store)
    before = len(read_all(store.parts.log))
    recording, switching = [], []

    def record(thread):
        for n in range(TURNS_EACH):
            try:
                old.record("user", f"t{thread}/{n}")
            except SessionAlreadyEnded:
                return n
        return TURNS_EACH

    def fill_the_queue():
        for thread in range(THREADS):
            recording.append(in_thread(lambda thread=thread: record(thread)))
            wait_for_queue(store.parts.log, 2 + thread)
        switching.append(in_thread(lambda: store.switch(**asked)))
        wait_for_queue(store.parts.log, 2 + THREADS)

    store.parts.log.appends.transact(once(fill_the_queue))
    recorded = [outcome.result() for outcome in recording]
    entered = switching[0].result()

    events = read_all(store.parts.log)
    of = {
        t: [e for e in events if isinstance(e.event, TurnRecorded) and e.event.text.startswith(f"t{t}/")]
        for t in range(4)
    }
    for thread, turns in of.items():
        assert [turn.event.text for turn in turns] == [f"t{thread}/{n}" for n in range(recorded[thread])]
        assert {turn.stream for turn in turns} == {"session/old"}
    switched = events[before + THREADS :]
    first = next(place for place, event in enumerate(switched) if not isinstance(event.event, TurnRecorded))
    queued = [event.event.text for event in events[before : before + THREADS + first]]
    assert [text for text in queued if text.endswith("/0")] == [f"t{thread}/0" for thread in range(THREADS)]
    last = next(event for event in switched if isinstance(event.event, SessionSwitched))
    (own,) = [event for event in events[before:] if isinstance(event.event, SessionSwitched)]
    assert own == last
    assert (own.event.from_, own.event.to) == ("old", entered.id)
    # The switch is one piece: what it appended to the sessions lies right before it.
    parts = events[before + THREADS + first : own.position]
    assert not [part for part in parts if isinstance(part.event, TurnRecorded)]
    assert any(isinstance(part.event, SessionStarted) for part in parts) == starts
    assert store.current().id == entered.id == agent_in(events).current
    if kind == "reset" or kind == "compress into a new one":
        assert visible_of(store).state("old").ended
    if "branch" in kind or kind == "compress into a new one":
        at = visible_of(store).state(entered.id).started.branched_at
        assert at == parts[0].position - 1
        assert [turn.position for turn in entered.turns()] == [
            turn.position for turn in old.turns() if turn.position <= at
        ]
    if kind.startswith("rewind"):
        seen_then = [turn.position for turn in store.turns("old") if turn.position < parts[0].position]
        assert [turn.position for turn in entered.turns() if turn.position < own.position] == seen_then[:-5]
    check_states(store, events)
    assert store.verify().sound


@pytest.mark.promise("P3")
@pytest.mark.parametrize("reason", ["compress", "rewind"])
def test_a_switch_in_place_behind_a_queued_switch_is_of_the_session_that_one_entered(store, reason):
    """Which session the agent is in is decided when the switch is made, not when it is requested."""
    start_two(store)
    store.session("other").record("user", "said in the other one")
    outcomes = []

    def fill_the_queue():
        outcomes.append(in_thread(lambda: store.switch("other", reason="resume")))
        wait_for_queue(store.parts.log, 2)
        turns = {"turns": 1} if reason == "rewind" else {}
        outcomes.append(in_thread(lambda: store.switch(reason=reason, **turns)))
        wait_for_queue(store.parts.log, 3)

    store.parts.log.appends.transact(once(fill_the_queue))
    assert [outcome.result().id for outcome in outcomes] == ["other", "other"]
    assert agent_in(read_all(store.parts.log)).last == SessionSwitched(from_="other", to="other", reason=reason)
    assert len(store.session("other").turns()) == (reason != "rewind")


@pytest.mark.promise("P3")
def test_switches_of_many_threads_make_one_chain(store, rng, seed):
    """Each leaves the session that the one before it entered; none is refused; turns stay where they were said."""
    start_two(store)
    together = threading.Barrier(THREADS)
    seeds = [rng.randrange(2**32) for _ in range(THREADS)]

    def switch_about(thread):
        own = random.Random(seeds[thread])
        together.wait()
        for n in range(40):
            reason = own.choice(["new", "branch", "compress", "rewind", "resume"])
            handle = {
                "new": lambda: store.switch(reason="new"),
                "branch": lambda n=n: store.switch(f"b{thread}.{n}", reason="branch"),
                "compress": lambda: store.switch(reason="compress"),
                "rewind": lambda: store.switch(reason="rewind", turns=1),
                "resume": lambda: store.switch("other", reason="resume"),
            }[reason]()
            handle.record("user", f"{thread}/{n}/{handle.id}")

    for outcome in [in_thread(lambda thread=thread: switch_about(thread)) for thread in range(THREADS)]:
        outcome.result()
    check_chain(store, switches=1 + THREADS * 40, turns=1 + THREADS * 40, why=f"seed {seed}")
    assert store.verify().sound


def check_chain(store, *, switches, turns, why):
    """The agent's switches follow one another; every turn is once in the session that it names."""
    events = read_all(store.parts.log)
    chain = [event.event for event in events if isinstance(event.event, SessionSwitched)]
    assert len(chain) == switches, why
    assert all(one.to == two.from_ for one, two in pairwise(chain)), why
    said = [event for event in events if isinstance(event.event, TurnRecorded)]
    assert len(said) == len({event.event.text for event in said}) == turns, why
    for event in said[1:]:
        assert event.event.text.rpartition("/")[2] == session_of(event.stream), why
    state = agent_in(events)
    assert (store.current().id, store.parts.agents.state("agent").generation) == (state.current, len(chain)), why
    check_states(store, events, why)


@pytest.mark.promise("P3")
@pytest.mark.timeout(300)
def test_two_processes_that_switch_one_agent_make_one_chain(processes, fork_server, folder, store, rng, seed):
    """At the end both processes say what the log says: which session, and how many switches."""
    start_two(store)
    together = fork_server.Barrier(2)
    pipes = [
        processes.start(switch_often, str(folder), f"p{n}", rng.randrange(2**32), 100, together)[1] for n in range(2)
    ]
    answers = [messages(pipe) for pipe in pipes]
    check_chain(store, switches=201, turns=201, why=f"seed {seed}")
    state = agent_in(read_all(store.parts.log))
    assert answers == [[(state.current, 201)]] * 2, f"seed {seed}"
    assert store.verify().sound


@pytest.mark.promise("P3")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills within a switch")
def test_a_kill_within_a_switch_leaves_all_of_it_or_nothing(processes, tmp_path, rng, seed, tries):
    """A reset starts a session, ends another and moves the agent: three streams, one append."""
    switched = 0
    for number in range(tries):
        if number % KILLS_PER_STORE == 0:
            folder = tmp_path / f"store{number}"
        told = kill_at_random(
            processes, rng, switch_until_killed, str(folder), f"run{number}", near_opening=number % 5 == 0
        )
        why = f"after kill {number}, seed {seed}"
        with MemoryStore.open(folder, model=None) as store:
            events = read_all(store.parts.log)
            states = fold_all(events)
            agent = agent_in(events)
            chain = [event.event.to for event in events if isinstance(event.event, SessionSwitched)]
            assert [session for session in chain if session.startswith(f"run{number}.")][: len(told)] == told, why
            # Every session that was started by a switch was entered by it, and all but the last one have ended.
            assert [session_of(event.stream) for event in events if isinstance(event.event, SessionStarted)] == chain, (
                why
            )
            assert [name for name, state in states.items() if not state.ended] == chain[-1:], why
            assert (agent.current if agent else None, agent.generation if agent else 0) == (
                chain[-1] if chain else None,
                len(chain),
            ), why
            check_states(store, events, why, last=5)
            assert store.verify().findings == (), why
            if agent is not None:
                store.current().record("user", "goes on")
        switched += len(told)
    assert switched


@pytest.mark.promise("P3")
@pytest.mark.timeout(7200)
@pytest.mark.promise("P1", "kills within a restore")
def test_a_kill_within_a_restore_leaves_the_memory_before_it_or_after_it(processes, tmp_path, rng, seed, tries):
    """Values, task, notes and visible turns are all those of the checkpoint, or none of them are."""
    restored = 0
    for number in range(tries):
        if number % KILLS_PER_STORE == 0:
            folder = tmp_path / f"store{number}"
        told = kill_at_random(processes, rng, restore_until_killed, str(folder), near_opening=number % 5 == 0)
        why = f"after kill {number}, seed {seed}"
        with MemoryStore.open(folder, model=None) as store:
            events = read_all(store.parts.log)
            check_states(store, events, why)
            assert store.verify().findings == (), why
            if not store.sessions():
                continue
            session = store.session("s")
            values, task, notes = session.get("n"), session.task(), session.notes()
            turns = [turn.text for turn in session.turns()]
            last = [event.event for event in events if not isinstance(event.event, TurnRecorded)][-1]
            if isinstance(last, CheckpointRestored):
                assert values == task.step == int(notes[-1]), why
                assert len(notes) == 1, why
                assert f"gone {values}" not in turns, why
            restores = sum(isinstance(event.event, CheckpointRestored) for event in events)
            assert restores >= restored + len(told), why
            restored = restores if number % KILLS_PER_STORE < KILLS_PER_STORE - 1 else 0
            session.record("user", "goes on")


PROCESSES = 8
UPDATES = 300


def check_state(store, session="s"):
    folded = fold_all(read_all(store.parts.log))[session]
    assert state_digest(visible_of(store).state(session)) == state_digest(folded)


@pytest.mark.promise("P4")
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


@pytest.mark.promise("P4")
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


@pytest.mark.promise("P4")
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


@pytest.mark.promise("P4")
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


@pytest.mark.promise("P4")
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


@pytest.mark.promise("P4")
def test_decisions_in_one_group_are_made_on_what_those_before_them_staged(bare):
    """Note, checkpoint, note, branch, restore, branch: in one transaction, nothing of it on disk before the end."""
    session = bare.start_session("s")
    session.note("zero")
    staged = [
        lambda: session.note("one"),
        lambda: session.checkpoint("then"),
        lambda: session.note("two"),
        lambda: session.branch("late"),
        lambda: session.restore("then"),
        lambda: session.branch("early"),
        lambda: session.note("three"),
        lambda: session.branch("last", at=bare.head().position + 2),
    ]
    outcomes = []

    def fill_the_queue():
        for n, call in enumerate(staged):
            outcomes.append(in_thread(call))
            wait_for_queue(bare.parts.log, 2 + n)

    bare.parts.log.appends.transact(once(fill_the_queue))
    for outcome in outcomes:
        outcome.result()
    names = ("s", "late", "early", "last")
    known, anew = decided_on(bare, *names)
    assert known == anew
    for name in names:
        check_state(bare, name)
    notes = {name: bare.session(name).notes() for name in names}
    assert notes == {
        "s": ["zero", "one", "three"],
        "late": ["zero", "one", "two"],
        "early": ["zero", "one"],
        "last": ["zero", "one"],
    }
