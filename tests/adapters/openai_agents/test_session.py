"""What ours does beyond the SDK's own: a session of the store, recalled, rewound, branched, forgotten."""

import asyncio
import json
import threading

import pytest
from agents import Agent, Runner
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel
from agents.tool_context import ToolContext

from mnemolog import (
    AsyncMemoryStore,
    InvalidInput,
    LimitExceeded,
    MemoryStore,
    SessionAlreadyEnded,
    StoreClosed,
    errors,
)
from mnemolog.adapters.openai_agents import MnemologSession, memory_tools, recall_tool
from mnemolog.adapters.openai_agents.session import ROLES
from mnemolog.adapters.support.agent_tools import TOOLS, Memory
from tests.adapters.openai_agents.agents_of_tests import answers, calls
from tests.adapters.openai_agents.test_behaviour import ITEMS, Compactor, numbered, texts_of
from tests.support import HashEncoder, in_thread

TEXTS = {
    "easy": "Hello.",
    "parts": "What is this?",
    "answer": "It is.",
    "refusal": "I cannot.",
    "output": "x",
    "shell": "ls -l",
    "call": f"search\n{ITEMS['call']['arguments']}",
    "NUL": "before\ufffdafter",
    "surrogate": "half ? of a pair",
    "reasoning": "(reasoning)",
    "image": "(image_generation_call)",
    "blank": "(message)",
    "odd": "\x07?",
    "empty": "(item)",
}
"""No ids, no base64; where an item says nothing the text says what it is."""


async def test_every_item_is_a_turn_whose_text_says_what_the_item_says(ours):
    """A message has its role, all else that of a tool. A call and its output are found by kind and id of the call."""
    for name, item in ITEMS.items():
        await ours.session(name).add_items([item])
        (turn,) = ours.store.turns(name)
        role = item.get("role")
        assert turn.role == (ROLES[role] if isinstance(role, str) else "tool"), name
        assert turn.text.strip()
        assert turn.text == TEXTS.get(name, turn.text)
        if turn.role != "tool" or name == "odd":
            assert turn.metadata == {}
    for name, kind in (("call", "function_call"), ("output", "function_call_output")):
        assert ours.store.turns(name)[0].metadata == {"type": kind, "call_id": "call_1"}
    (hit,) = ours.store.recall("search", metadata={"call_id": "call_1"}).hits
    assert hit.session == "call"


async def test_a_text_beyond_what_a_turn_holds_is_found_by_its_first_mebibyte(ours):
    """The item is kept whole all the same."""
    item = {"role": "user", "content": "ä needle " + "ß" * (1 << 20)}
    await ours.session().add_items([item])
    assert await ours.session().get_items() == [item]
    (hit,) = ours.store.recall("needle").hits
    assert 0 <= (1 << 20) - len(hit.text.encode()) < 2


async def test_the_session_is_one_of_the_store(ours):
    """With scope and agent, from its first item on; an existing session does not change."""
    session = ours.session("alice", scope="acme/alice", agent="helper")
    await session.add_items([])
    await session.clear_session()
    assert await session.pop_item() is None
    assert ours.store.sessions() == []
    await session.add_items(texts_of("Tea, please."))
    (there,) = ours.store.sessions(scope="acme")
    assert (there.session, there.agent, there.scope) == ("alice", "helper", "acme/alice")
    await ours.session("alice", scope="elsewhere").add_items(texts_of("With milk."))
    found = ours.store.recall("tea milk", scope="acme/alice").hits
    assert {hit.text for hit in found} == {"Tea, please.", "With milk."}


async def test_what_is_popped_or_cleared_is_hidden_and_stays_in_the_log(ours):
    """One event for a pop, one for all of a clear; none where there is nothing."""
    session = ours.session()
    await session.add_items(numbered(range(5)))
    head = ours.store.head().position
    await session.pop_item()
    await session.clear_session()
    assert ours.store.head().position == head + 2
    await session.pop_item()
    await session.clear_session()
    assert ours.store.head().position == head + 2
    handle = ours.store.session("s")
    assert handle.turns() == []
    assert [turn.text for turn in handle.turns(hidden=True)] == list("01234")
    assert [turn.text for turn in handle.at(head).turns()] == list("01234")
    assert not ours.store.verify().findings


async def test_going_back_in_the_store_goes_back_in_the_session(ours):
    """A rewind, a checkpoint, a branch: the agent continues from there."""
    session = ours.session()
    await session.add_items(numbered(range(3)))
    handle = ours.store.session("s")
    handle.checkpoint("three")
    await session.add_items(numbered([3, 4]))
    handle.rewind(turns=1)
    assert await session.get_items() == numbered(range(4))
    branch = handle.branch("other")
    handle.restore("three")
    assert await session.get_items() == numbered(range(3))
    other = ours.session(branch.id)
    assert await other.get_items(2) == numbered([2, 3])
    assert await other.pop_item() == {"role": "user", "content": "3"}
    await other.add_items(numbered([9]))
    assert await other.get_items() == numbered([0, 1, 2, 9])
    await other.clear_session()
    assert await other.get_items() == []
    assert await session.get_items() == numbered(range(3))


async def test_what_others_have_recorded_is_there_as_messages(ours):
    """The output of a tool becomes a message of the assistant, the role with the least authority."""
    handle = ours.store.start_session("s", agent="somebody")
    for role in ("user", "assistant", "system", "tool"):
        handle.record(role, f"of {role}")
    expected = [{"role": role, "content": f"of {role}"} for role in ("user", "assistant", "system")]
    expected.append({"role": "assistant", "content": "of tool"})
    assert await ours.session().get_items() == expected
    assert await ours.session().pop_item() == expected[-1]


async def test_a_forgotten_item_is_not_there_any_more(ours):
    """Nor anywhere else; what is around it stays."""
    session = ours.session()
    await session.add_items(texts_of("one", "secret", "three"))
    ours.store.forget(positions=[ours.store.turns("s")[1].position])
    assert await session.get_items() == texts_of("one", "three")
    assert await session.get_items(2) == texts_of("one", "three")
    await session.pop_item()
    assert await session.pop_item() == {"role": "user", "content": "one"}


async def test_a_session_that_has_ended_takes_nothing(ours):
    """It can be read."""
    session = ours.session()
    await session.add_items(numbered([1]))
    ours.store.end_session("s")
    for change in (session.add_items(numbered([2])), session.pop_item(), session.clear_session()):
        with pytest.raises(SessionAlreadyEnded):
            await change
    assert await session.get_items() == numbered([1])


@pytest.mark.parametrize("bad", [{"session_id": ""}, {"session_id": "a\nb"}, {"scope": "a//b"}, {"agent": ""}], ids=str)
def test_what_cannot_name_a_session_is_refused_at_once(bad, ours):
    """And not with the first item."""
    with pytest.raises(InvalidInput):
        ours.session(bad.pop("session_id", "s"), **bad)


async def test_beyond_its_limits_nothing_is_put(ours):
    """Neither of one item nor of how many."""
    session = ours.session()
    for items in (texts_of("x" * (64 << 20)), numbered(range(10_001))):
        with pytest.raises(LimitExceeded):
            await session.add_items(items)
    assert await session.get_items() == []


async def test_the_event_loop_stays_responsive_while_the_log_is_busy(ours):
    """Nothing that a session does is done in it."""
    held, free = threading.Event(), threading.Event()

    def hold(_tx):
        held.set()
        free.wait(30)

    session = ours.session()
    await session.add_items(numbered([1]))
    holder = threading.Thread(target=ours.store.parts.log.appends.transact, args=(hold,))
    holder.start()
    held.wait(30)
    waiting = [asyncio.ensure_future(session.add_items(numbered([2]))), asyncio.ensure_future(session.pop_item())]
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert await session.get_items() == numbered([1])
    assert not any(task.done() for task in waiting)
    free.set()
    await asyncio.gather(*waiting)
    holder.join()


async def test_sessions_share_an_asyncio_store(folder):
    """Once that is closed, they are not there either."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        first, second = MnemologSession("s", store), MnemologSession("b", store)
        await asyncio.gather(first.add_items(numbered([2])), second.add_items(numbered([3])))
        assert await first.get_items() == numbered([2])
        assert len(await store.sessions()) == 2
    with pytest.raises(StoreClosed):
        await first.get_items()


async def test_a_compaction_is_one_append(ours):
    """A killed process leaves the old history or the new one, and a reader sees one of them."""
    compacting = OpenAIResponsesCompactionSession("s", ours.session(), client=Compactor([ITEMS["compaction"]]))
    await compacting.add_items(numbered(range(20)))
    head, done = ours.store.head().position, threading.Event()

    def lengths():
        seen = set()
        while not done.is_set():
            seen.add(len(asyncio.run(ours.session().get_items())))
        return seen

    reading = in_thread(lengths)
    await compacting.run_compaction({"force": True, "compaction_mode": "input"})
    done.set()
    assert reading.result() <= {20, 1}
    topics = [event.event.topic for event in ours.store.events(after=head)]
    assert topics == ["turns.rewound.v1", "turn.recorded.v1"]


async def ask(tool, **arguments):
    context = ToolContext(None, tool_name=tool.name, tool_call_id="c", tool_arguments=json.dumps(arguments))
    return await tool.on_invoke_tool(context, json.dumps(arguments))


async def test_recall_is_a_tool(folder):
    """Within its scope, of messages alone, each with its place; long ones are cut."""
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        alice = MnemologSession("a", store, scope="acme/alice")
        await alice.add_items([*texts_of("I like green tea."), {**ITEMS["call"], "arguments": "green tea"}])
        await MnemologSession("b", store, scope="acme/bob").add_items(texts_of("I like black tea."))
        await MnemologSession("c", store, scope="long").add_items(texts_of("coffee " + "x" * 5_000))
        tool = recall_tool(store, scope="acme/alice")
        turn = store.turns("a")[0]
        (hit,) = store.recall("green tea", scope="acme/alice", roles=["user", "assistant"])
        place = f"session a, position {turn.position}, relevance {hit.relevance:.2f}"
        line = f"[{turn.said_at:%Y-%m-%d}, {place}] user: I like green tea."
        assert await ask(tool, query="green tea") == line
        both = await ask(recall_tool(store, k=2, name="look_up"), query="I like tea")
        assert {line.partition("user: ")[2] for line in both.splitlines()} == {"I like green tea.", "I like black tea."}
        assert len(await ask(recall_tool(store, scope="long"), query="coffee")) < 2_100
        assert "search" not in await ask(tool, query="search")
        calls = await ask(recall_tool(store, scope="acme", roles=["tool"]), query="green tea")
        assert calls.endswith("tool: search\ngreen tea")
        await alice.add_items([{**ITEMS["call"], "call_id": "again", "name": "recall"}])
        output = {"type": "function_call_output", "call_id": "again", "output": line}
        await alice.add_items([output])
        assert await alice.get_items(1) == [output]
        assert store.turns("a")[-1].text == "(function_call_output)"
        with pytest.warns(errors.ScopeWarning, match="nowhere"):
            assert await ask(recall_tool(store, scope="nowhere"), query="tea") == "Nothing was found."
        assert (await ask(tool, query=" ")).startswith("An error occurred")
        assert recall_tool(store, name="look_up").name == "look_up"


async def test_all_tools_of_a_memory_are_the_agents(folder):
    """As its schemas say, with refusals in words; a run calls them as its own."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        memory = Memory(store, agent="helper")
        tools = {tool.name: tool for tool in memory_tools(memory)}
        assert tools.keys() == TOOLS.keys()
        steps = [
            calls("remember", "c1", session="trip", text="Plan a trip."),
            calls("memory_set", "c2", session="trip", key="budget", value={"eur": 900}),
            calls("working_memory", "c3", session="nowhere"),
            calls("working_memory", "c4", session="trip", as_off=1),
            calls("working_memory", "c5", session="trip"),
            answers("Done."),
        ]
        made = Agent(name="A", model=ScriptedModel(steps), tools=list(tools.values()))
        await Runner.run(made, "Plan a trip.", session=MnemologSession("s", store))
        outputs = [item["output"] for item in await MnemologSession("s", store).get_items() if "output" in item]
        assert json.loads(outputs[0])["session"] == "trip"
        assert (await store.find_session("trip")).agent == "helper"
        assert outputs[2].startswith("UnknownSession: there is no session 'nowhere'; ")
        assert outputs[3].startswith("InvalidArguments: ")
        assert json.loads(outputs[4])["values"] == {"budget": {"eur": 900}}
        for bad in ("{", "[]", "1"):
            assert (await tools["status"].on_invoke_tool(None, bad)).startswith("InvalidArguments: ")
        assert "position" in json.loads(await tools["status"].on_invoke_tool(None, ""))
        reading = memory_tools(Memory(store, read_only=True))
        assert {tool.name for tool in reading} == {
            tool.name for tool in TOOLS.values() if tool.effect == "reads" or tool.reads_too
        }
        assert [tool.name for tool in memory_tools(memory, "recall", "remember")] == ["recall", "remember"]
        with pytest.raises(InvalidInput, match="remember"):
            memory_tools(Memory(store, read_only=True), "remember")
