"""Several processes on one session, and a process that is killed."""

import itertools
import subprocess
import sys
from contextlib import ExitStack

import pytest
from agents import Runner

from mnemolog import MemoryStore
from mnemolog.adapters.openai_agents import MnemologSession
from tests.adapters.openai_agents.agents_of_tests import agent, answers, asked
from tests.adapters.openai_agents.children import first_call
from tests.children.first_calls import said

RUNS = 8
ORDER = ["user", "function_call", "function_call_output", "message"]


@pytest.fixture
def child(folder):
    """Start children, and leave none behind."""
    with ExitStack() as left_behind:

        def start(name, runs):
            command = [sys.executable, "-m", "tests.adapters.openai_agents.children", str(folder), name, str(runs)]
            started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            left_behind.enter_context(started)
            left_behind.callback(started.kill)
            return started

        yield start


def begin(started):
    assert started.stdout.readline() == "ready\n"
    started.stdin.write("go\n")
    started.stdin.flush()


def of_run(items, who):
    """The kinds of the items of one run, as they lie."""
    names = {who, f"sunny {who}"}
    return [item.get("type") or item["role"] for item in items if names & {item.get("call_id"), text_of(item)}]


def text_of(item):
    content = item.get("content", "")
    return content if isinstance(content, str) else content[0]["text"]


async def test_processes_on_one_session_lose_nothing_to_one_another(folder, child):
    """Every added item exists once, those of a run in their order; every item is popped once."""
    with MemoryStore.open(folder, model=None) as store:
        children = [child(name, RUNS) for name in "ab"]
        for started in children:
            begin(started)
        told = [[started.stdout.readline().strip() for _ in range(RUNS)] for started in children]
        items = await MnemologSession("s", store).get_items()
        assert len(items) == 2 * RUNS * len(ORDER)
        for who in itertools.chain(*told):
            assert of_run(items, who) == ORDER
        for started in children:
            begin(started)
        popped = [line.strip() for started in children for line in started.stdout]
        assert [started.wait() for started in children] == [0, 0]
        assert sorted(popped) == sorted(map(str, items))
        assert await MnemologSession("s", store).get_items() == []
        assert not store.verify().findings


async def test_a_killed_process_loses_nothing_that_was_done(folder, child, rng):
    """The next one continues from there; of the killed run the first steps remain."""
    started = child("a", 1_000)
    begin(started)
    told = list(itertools.islice(started.stdout, rng.randrange(1, 20)))
    started.kill()
    done = [line.strip() for line in [*told, *started.stdout]]
    with MemoryStore.open(folder, model=None) as store:
        items = await MnemologSession("s", store).get_items()
        for who in done:
            assert of_run(items, who) == ORDER
        assert of_run(items, f"a{len(done)}") in ([], ORDER[:1], ORDER[:3], ORDER)
        assert of_run(items, f"a{len(done) + 1}") == []
        assert not store.verify().findings
        made = agent(answers("yes"))
        await Runner.run(made, "Still there?", session=MnemologSession("s", store))
        assert asked(made)[0] == [*items, {"role": "user", "content": "Still there?"}]


def test_first_calls_that_meet_are_all_recorded(race):
    """The session is started once, whoever comes first."""
    race(first_call, kept=said)
