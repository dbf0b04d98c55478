"""A server that is killed has every turn that it answered, and its next start goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from itertools import count

import pytest
from mcp import Client, StdioServerParameters

from mnemolog import MemoryStore
from tests.adapters.mcp.serving import answer, command, over_stdio
from tests.faults.promises import Number
from tests.support import WAIT_S

KILLS = Number(ci=5, nightly=80)
"""`--scale nightly` and `--tries` choose as they do for the fault tests."""
KILLS_PER_STORE = 10
CALLS_AT_ONCE = 3
"""How many calls the client has on their way at once."""


def server(folder, noted):
    """A client with a server process that writes its number to the file `noted`."""
    line = ["-c", 'echo $$ > "$0.new"; mv "$0.new" "$0"; exec "$@"', str(noted), *command(folder)]
    return Client(StdioServerParameters(command="sh", args=line, env=dict(os.environ)), read_timeout_seconds=WAIT_S)


async def record_until_killed(folder, noted, numbers, acknowledged, lapse_s):
    """Record until so many turns were answered, and kill the server a moment later. Return what was answered."""
    told, enough = set(), asyncio.Event()

    async def one_by_one(client):
        for number in numbers:
            await answer(client, "remember", session="trip", text=f"number {number}", key=str(number))
            told.add(number)
            if len(told) >= acknowledged:
                enough.set()

    with suppress(Exception):  # The server is gone: nothing is promised about how the client says that.
        async with server(folder, noted) as client:
            calls = [asyncio.create_task(one_by_one(client)) for _ in range(CALLS_AT_ONCE)]
            if acknowledged:
                first = asyncio.create_task(enough.wait())
                await asyncio.wait([first, *calls], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(lapse_s)
            os.kill(int(noted.read_text()), signal.SIGKILL)
            await asyncio.gather(*calls, return_exceptions=True)
    return told


async def ask(folder):
    """Record and recall through a server that is not killed."""
    async with over_stdio(folder) as client:
        said = await answer(client, "remember", session="trip", text="gone on after all")
        found = await answer(client, "recall", query="gone on after all", k=1)
    return said["positions"] == [hit["position"] for hit in found["hits"]]


def numbers_in(folder):
    """The numbers of the turns that the store has."""
    with MemoryStore.open(folder, model=None) as store:
        assert store.verify().sound
        found = store.find_session("trip")
        texts = [] if found is None else [turn.text for turn in found.turns(limit=100_000)]
    return [int(text.removeprefix("number ")) for text in texts]


@pytest.mark.timeout(7200)
def test_a_killed_server_keeps_every_acknowledged_turn_and_restarts(tmp_path, request, rng, seed):
    """At random moments, from its first call on; a turn whose answer is missing is there once or not at all."""
    option = request.config.option
    for kill in range(option.tries or KILLS.at(option.scale)):
        why = f"kill {kill}, seed {seed}"
        if kill % KILLS_PER_STORE == 0:
            folder, told, numbers = tmp_path / f"store{kill}", set(), count()
        before = set(told)
        acknowledged = rng.randint(1, 40) if kill % 3 else 0
        killed = record_until_killed(folder, tmp_path / f"process{kill}", numbers, acknowledged, rng.uniform(0, 0.05))
        told |= asyncio.run(killed)
        assert len(told - before) >= acknowledged, f"the server did not go on, {why}"
        kept = numbers_in(folder)
        assert len(kept) == len(set(kept)), why
        assert told <= set(kept), f"lost {told - set(kept)}, {why}"
        assert len(set(kept) - told) <= CALLS_AT_ONCE * (kill % KILLS_PER_STORE + 1), why
    assert asyncio.run(ask(folder))
