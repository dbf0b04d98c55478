"""What child processes of the tests do: `python -m tests.adapters.openai_agents.children FOLDER NAME RUNS`.

It waits for a signal to start, so that several are ready at the same time.
"""

import asyncio
import sys
from pathlib import Path

from agents import Runner, set_tracing_disabled

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.openai_agents import MnemologSession
from tests.adapters.openai_agents.agents_of_tests import agent, answers, calls
from tests.children.first_calls import SESSION

set_tracing_disabled(True)


def wait_for_a_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


async def work(folder: Path, name: str, runs: int) -> None:
    """Run on the session `s`, with a tool, and say of each run when it is done; then pop items until there is none."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        wait_for_a_word()
        for number in range(runs):
            who = f"{name}{number}"
            made = agent(calls("weather", who, city=who), answers(f"sunny {who}"))
            await Runner.run(made, who, session=MnemologSession("s", store))
            print(who, flush=True)
        wait_for_a_word()
        while (item := await MnemologSession("s", store).pop_item()) is not None:
            print(item, flush=True)


def first_call(place: str, agent: str) -> None:
    """Add an item to the shared session."""
    with MemoryStore.open(place, model=None, background=False) as store:
        session = MnemologSession(SESSION, store, agent=agent, scope=agent)
        asyncio.run(session.add_items([{"role": "user", "content": agent}]))


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
