"""A long-running command that is killed loses nothing that it printed, and its next start completes the rest."""

import json
from contextlib import suppress

import pytest

from mnemolog import MemoryStore
from mnemolog.domain.events import ModelActivated
from tests.children.workers import activate_by_command, messages, run_command
from tests.e2e.transcripts.written import Claude
from tests.faults.test_kill import KILLS_PER_STORE, wait_for
from tests.support import WAIT_S, HalfEncoder, read_all

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
