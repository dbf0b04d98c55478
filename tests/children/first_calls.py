"""First calls of several processes at once: each opens the store of its round and says its own name in one session.

A call gets the place of the store and the name of its agent. Adapters with packages of their own have theirs in
`tests/adapters/NAME/children.py`.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mnemolog import AsyncMemoryStore, MemoryStore, NewTurn, connect
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.adapters.importers.transcripts import Transcripts
from mnemolog.adapters.support.agent_tools import TOOLS, Memory
from mnemolog.adapters.support.framework_sessions import get_or_start_session, record_many_reopening
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Items
from mnemolog.cli.entry import run
from tests.children.workers import telling_failures
from tests.e2e.transcripts.written import Claude

SESSION = "shared"
FirstCall = Callable[[str, str], object]


@telling_failures
def call_at_once(pipe: Any, call: FirstCall, places: Sequence[str], agent: str, together: Any) -> None:
    """Make the call in each place, together with the other processes."""
    for place in places:
        together.wait()
        call(place, agent)
    pipe.send("all made")


def race(processes: Any, call: FirstCall, places: Sequence[str], agents: Sequence[str]) -> None:
    """Have a process for each agent make its first call in each place, at the same time as the others."""
    together = processes.context.Barrier(len(agents))
    pipes = [processes.start(call_at_once, call, places, agent, together)[1] for agent in agents]
    answers = [pipe.recv() for pipe in pipes]
    assert answers == ["all made"] * len(agents), answers


def race_in_folders(
    processes: Any, call: FirstCall, folder: Path, *, tries: int, agents: int, kept: Callable[[str], list[str]]
) -> None:
    """Race in so many folders without a store. In the end each has what all agents said."""
    places, names = [str(folder / str(number)) for number in range(tries)], [f"agent {n}" for n in range(agents)]
    race(processes, call, places, names)
    for place in places:
        assert kept(place) == names


def said(place: str) -> list[str]:
    """Return what was said in the one session of a store, sorted."""
    with MemoryStore.open(place, model=None, background=False, create=False) as store:
        assert [item.session for item in store.sessions()] == [SESSION]
        return sorted(turn.text for turn in store.turns(SESSION))


def _open(place: str) -> MemoryStore:
    return MemoryStore.open(place, model=None, background=False)


def _ask(place: str, agent: str, *calls: tuple[str, dict[str, object]]) -> None:
    async def ask() -> None:
        async with AsyncMemoryStore.open(place, model=None, background=False) as store:
            memory = Memory(store, agent=agent)
            for tool, arguments in calls:
                answer = await TOOLS[tool].ask(memory, arguments)
                assert type(answer).__name__ == "Answer", str(answer)

    asyncio.run(ask())


def remember(place: str, agent: str) -> None:
    _ask(place, agent, ("remember", {"text": agent, "session": SESSION, "scope": "acme" if agent[-1] == "0" else None}))


def set_values(place: str, agent: str) -> None:
    _ask(
        place,
        agent,
        ("working_memory", {"note": agent, "session": SESSION}),
        ("remember", {"text": agent, "session": SESSION}),
    )


def switch(place: str, agent: str) -> None:
    _ask(place, agent, ("switch", {"to": SESSION, "scope": ""}), ("remember", {"text": agent}))


def begin_for_framework(place: str, agent: str) -> None:
    with _open(place) as store:
        get_or_start_session(store, SESSION, agent=agent, scope=f"scope of {agent}")
        record_many_reopening(store, [NewTurn(session=SESSION, role="user", text=agent)])


def record(place: str, agent: str) -> None:
    _open(place).close()
    how = ["--title", "Ours"] if agent[-1] == "0" else []
    assert run(["record", place, SESSION, agent, "--start", *how]) == 0


def import_file(place: str, agent: str) -> None:
    path = Path(f"{place} {agent}.jsonl")
    path.write_text(json.dumps({"session": SESSION, "role": "user", "text": agent, "title": agent}))
    with _open(place) as store:
        import_files(store, path, agent=agent)


def watch(place: str, agent: str) -> None:
    """Record a transcript, where others record by a tool."""
    if agent[-1] != "0":
        remember(place, agent)
        return
    transcript = Claude(Path(f"{place} transcripts"), SESSION)
    transcript.say(agent)
    with _open(place) as store, Transcripts(store) as transcripts:
        assert transcripts.catch_up([transcript.path]).refusals == []


def call_server(place: str, agent: str) -> None:
    """Begin the session that the fragment of the URL names, at a server."""
    url, _, session = place.partition("#")
    with connect(url, tries=1) as store:
        store.session(session).record("user", agent)


def put_checkpoint(place: str, agent: str) -> None:
    with _open(place) as store:
        threads = Threads(store)
        value = Typed("text", agent.encode())
        threads.checkpoint(
            SESSION,
            "",
            agent,
            parent=None,
            checkpoint=value,
            metadata=value,
            channels={"c": lambda: value},
            changed="c",
        )
        assert threads.find(SESSION, "", agent).values == {"c": value}
        threads.close()


def put_item(place: str, agent: str) -> None:
    with _open(place) as store:
        items = Items(store)
        with items.batch() as batch:
            batch.put([SESSION], agent, {"text": agent})
        with items.batch() as batch:
            assert batch.get([SESSION], agent).value == {"text": agent}
        items.close()


def checkpoints_in(place: str) -> list[str]:
    """Return the ids of the checkpoints in a store, sorted."""
    with _open(place) as store:
        threads = Threads(store)
        found = sorted(checkpoint.id for checkpoint in threads.listed())
        threads.close()
    return found


def items_in(place: str) -> list[str]:
    """Return the keys of the items in a store, sorted."""
    with _open(place) as store:
        items = Items(store)
        with items.batch() as batch:
            found = sorted(item.key for item in batch.search([SESSION]))
        items.close()
    return found
