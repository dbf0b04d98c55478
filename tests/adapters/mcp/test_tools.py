"""What the tools do, asked by the SDK's own client in this process."""

import asyncio
import re

import pytest
from jsonschema import Draft202012Validator
from mcp import Client
from mcp_types import ElicitResult

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.mcp import Memory, make_server
from mnemolog.adapters.support.agent_tools import CORE, TOOLS
from mnemolog.projections.context.packing import estimated_tokens
from tests.adapters.mcp.serving import MODES, answer, in_process, refusal
from tests.support import EPOCH_2024, WAIT_S, FakeClock, SlowToLoad

READING = {"recall", "context", "facts", "timeline", "session_list", "session_current", "checkpoint_list", "status"}
WRITING = {"remember", "switch", "working_memory", "session_branch", "session_end", "memory_set", "task_update"}
WRITING |= {"notes_clear", "checkpoint_create", "checkpoint_restore", "propose_fact"}


@pytest.mark.parametrize("mode", MODES)
async def test_every_tool_says_when_to_use_it_and_the_default_ones_cost_fewer_than_1800_tokens(folder, mode):
    """Names, schemas that are schemas, hints of what is only read. A token is counted as four characters."""
    async with in_process(folder, tools="core", mode=mode) as (client, _):
        sent = await client.list_tools()
        assert [tool.name for tool in sent.tools] == list(CORE)
        for_a_model = [
            tool.model_dump_json(by_alias=True, exclude_none=True, exclude={"output_schema"}) for tool in sent.tools
        ]
        assert len("".join(for_a_model)) <= 4 * 1_800
    async with in_process(folder, mode=mode) as (client, _):
        assert f"mnemolog forget {folder}" in client.instructions
        found = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert found.keys() == READING | WRITING
    for tool in found.values():
        assert "Use it " in tool.description
        Draft202012Validator.check_schema(tool.input_schema)
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        if tool.name not in ("context", "timeline"):
            Draft202012Validator.check_schema(tool.output_schema)
            assert tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint is (tool.name in READING)


async def test_a_model_remembers_and_recalls_in_one_call_each(folder):
    """No session is started first; the ids are the client's, or the agent's own."""
    async with in_process(folder, agent="helper", tools="core") as (client, store):
        said = await answer(client, "remember", text="My dog is called Rex.")
        told = await answer(client, "remember", text="He hates stairs.", session="dogs", scope="acme/alice", key="1")
        again = await answer(client, "remember", text="He hates stairs.", session="dogs", key="1")
        found = await answer(client, "recall", query="dog")
        assert (await store.find_session("dogs")).agent == "helper"
        assert (await store.find_session("dogs")).scope == "acme/alice"
    assert said == {"session": "helper", "positions": [2]}
    assert told == again == {"session": "dogs", "positions": [4]}
    hit = found["hits"][0]
    assert hit.pop("when")
    assert 0 < hit.pop("relevance") < 1
    assert hit == {"text": "My dog is called Rex.", "who": "user", "session": "helper", "position": 2}


async def test_a_model_may_pass_messages_as_it_has_them(folder):
    """A list of them, roles in the words of its provider, content in parts, times as text."""
    async with in_process(folder, tools="core") as (client, store):
        listed = [
            {"role": "human", "content": "Where is Rex?", "said_at": "2026-03-16T12:00+00:00"},
            {"role": "ai", "content": [{"type": "text", "text": "In the garden."}]},
        ]
        said = await answer(client, "remember", text=listed, session="dogs")
        await answer(client, "remember", text="Good.", role="human", session="dogs", said_at="2026-03-16T12:05Z")
        turns = await store.turns("dogs")
    assert said["positions"] == [2, 3]
    assert [(turn.role.value, turn.text) for turn in turns] == [
        ("user", "Where is Rex?"), ("assistant", "In the garden."), ("user", "Good."),
    ]  # fmt: skip
    assert [turn.said_at.isoformat() for turn in turns[::2]] == [
        "2026-03-16T12:00:00+00:00", "2026-03-16T12:05:00+00:00",
    ]  # fmt: skip


async def test_a_model_can_ask_what_was_said_on_a_day(folder):
    """By dates, in order, with positions; and as of a time or a position."""
    noon = FakeClock(EPOCH_2024 + 12 * 3_600_000_000, step=0)
    async with in_process(folder, tools="core", clock=noon) as (client, _):
        for text in ("tea", "coffee", "cocoa", "water"):
            await answer(client, "remember", text=text, session="drinks")
            noon.advance(seconds=86_400)
        head = await answer(client, "timeline", since="2024-01-02", until="2024-01-03", session="drinks")
        paged = await answer(client, "timeline", after=0, limit=2)
        newest = await answer(client, "timeline", limit=1)
        as_of = await answer(client, "recall", query="coffee", as_of=2)
    lines = head.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("@3 2024-01-02 ")
    assert lines[0].endswith("drinks: user: coffee")
    assert paged.splitlines()[-1] == "(more: after=2)"
    assert newest.endswith("user: water")
    assert as_of["note"].startswith("Nothing was found.")


async def test_working_memory_is_read_and_changed_by_one_tool(folder):
    """What it says of the past is what was so; a value of null is a value."""
    async with in_process(folder, tools="core") as (client, store):
        assert await answer(client, "working_memory") == {}
        changed = {"budget": {"eur": 900}, "offer": None}
        mind = await answer(client, "working_memory", values=changed, task="book", note="prefers trains")
        then = (await store.head()).position
        assert mind["values"] == changed
        assert (mind["task"]["description"], mind["notes"]) == ("book", ["prefers trains"])
        now = await answer(client, "working_memory", delete=["offer"])
        assert now["values"] == {"budget": {"eur": 900}}
        assert (await answer(client, "working_memory", as_of=then))["values"] == changed


async def test_a_switch_resumes_or_starts_and_later_calls_go_there(folder):
    """Without a session, a call means the one that the agent is in."""
    async with in_process(folder, tools="core") as (client, _):
        assert (await answer(client, "switch", to="trip", title="Lisbon"))["title"] == "Lisbon"
        await answer(client, "remember", text="By train.")
        await answer(client, "switch", to="work")
        assert (await answer(client, "remember", text="Report due."))["session"] == "work"
        assert (await answer(client, "switch", to="trip"))["session"] == "trip"
        branch = (await answer(client, "switch", reason="branch"))["session"]
        seen = await answer(client, "recall", query="train", session=branch)
        assert [hit["session"] for hit in seen["hits"]] == ["trip"]
        assert [hit["title"] for hit in seen["hits"]] == ["Lisbon"]
        await answer(client, "switch", to="trip")
        await answer(client, "switch", reason="rewind", turns=1)
        assert await answer(client, "recall", query="train", session="trip") == {"note": "Nothing was found."}


async def test_a_context_fits_its_budget_and_says_what_it_left_out(folder):
    """Whole entries: working memory first, then what has to do with the query."""
    async with in_process(folder, tools="core") as (client, _):
        await answer(client, "working_memory", values={"budget": 900})
        for number in range(20):
            await answer(client, "remember", text=f"train {number} " + "and so on " * 28)
        whole = await answer(client, "context", query="train", tokens=10_000)
        small = await answer(client, "context", query="train", tokens=300)
    assert whole.splitlines()[1:3] == ["Values:", "  budget: 900"]
    assert len([line for line in whole.splitlines() if line.startswith("@")]) == 20
    assert estimated_tokens(small.rpartition("\n")[0]) <= 300
    assert "did not fit into 300 tokens" in small.splitlines()[-1]


async def test_recall_says_how_many_hits_had_too_little_relevance(folder):
    """So it knows that there is more to ask for."""
    async with in_process(folder, tools="core") as (client, _):
        for text in ("Rex is my dog.", "The dog next door is not mine, and barks all night.", "A dog."):
            await answer(client, "remember", text=text)
        every = await answer(client, "recall", query="Rex the dog", min_relevance=0)
        relevances = [hit["relevance"] for hit in every["hits"]]
        least = (relevances[0] + relevances[1]) / 2
        best = await answer(client, "recall", query="Rex the dog", min_relevance=least)
        none = await answer(client, "recall", query="Rex the dog", min_relevance=1)
    assert [hit["text"] for hit in best["hits"]] == ["Rex is my dog."]
    assert f"2 left out: relevance below {least:g}" in best["note"]
    assert none["note"] == "Nothing was found. (3 left out: relevance below 1)"


async def test_a_long_turn_is_cut_unless_full_is_given(folder):
    """The answer has its best passage, how long the turn is and how to get all of it."""
    text = "The house is old. " * 100 + "The cellar is dry. " + "The roof is new. " * 100
    async with in_process(folder, tools="core") as (client, _):
        await answer(client, "remember", text=text)
        cut = await answer(client, "recall", query="cellar")
        whole = await answer(client, "recall", query="cellar", full=True)
    (hit,) = cut["hits"]
    assert hit["text"].startswith("… The cellar is dry. The roof")
    assert hit["text"].endswith("The roof is new. …")
    assert hit["of_characters"] == len(text)
    assert "full=true" in cut["note"]
    assert whole["hits"][0]["text"] == text
    assert "of_characters" not in whole["hits"][0]
    assert "full=true" not in whole.get("note", "")


async def test_a_refusal_is_an_error_and_forgetting_is_not_offered(folder):
    """The user is told of the command that does it."""
    async with in_process(folder) as (client, _):
        forget = await refusal(client, "forget")
        unknown = await refusal(client, "recall", query="x", session="tripp")
    assert forget.startswith("forget: there is no such tool; it has remember, recall")
    assert "`mnemolog forget`" in forget
    assert unknown.startswith("UnknownSession: ")
    assert "`remember` starts this one" in unknown


async def test_a_server_of_one_scope_serves_nothing_else(folder):
    """The store is opened for the scope, so no tool reaches outside."""
    with MemoryStore.open(folder, model=None) as store:
        store.session("bob", scope="acme/bob").record("user", "my secret is heliotrope")
    async with in_process(folder, scope="acme/alice") as (client, store):
        await answer(client, "remember", text="my colour is red", session="mine")
        assert (await store.find_session("mine")).scope == "acme/alice"
        for tool in ("recall", "context"):
            assert "heliotrope" not in str(await answer(client, tool, query="secret colour"))
        assert "heliotrope" not in await answer(client, "timeline", after=0)
        assert "UnknownSession" in await refusal(client, "recall", query="secret", session="bob")
        assert (await answer(client, "remember", text="x", session="bob"))["session"] == "acme/alice/bob"
        assert "OutsideScope" in await refusal(client, "recall", query="secret", scope="acme/bob")


ODD = [2**63, 2**70, -1, "", "\x00", "x" * 70_000, "0001-01-01T00:00:00+14:00", {"a": 2**70}, ["a"]]


async def test_no_argument_makes_a_tool_fail(folder):
    """Each parameter of each tool, one odd value at a time; the log is sound behind them."""
    known = {"session": "s", "role": "user", "text": "tea", "query": "tea", "key": "k", "value": 1, "name": "n"}
    known |= {"checkpoint": "c"}
    async with in_process(folder) as (client, store):
        session = await store.switch("s", reason="new", agent="agent")
        await session.record("user", "tea")
        await session.checkpoint("c")
        await session.set_task("make tea")
        for tool in TOOLS.values():
            needed = {key: known[key] for key in tool.input_schema.get("required", ())}
            for parameter in tool.input_schema["properties"]:
                for value in ODD:
                    result = await client.call_tool(tool.name, needed | {parameter: value})
                    assert "internal error" not in result.content[0].text, (tool.name, parameter, value)
        assert len(await store.turns("s")) >= 1
        assert (await store.verify()).sound


async def test_an_unexpected_error_does_not_end_the_server(folder, monkeypatch, caplog):
    """The client gets an error, the log of the server has the traceback, the next call is answered."""
    async with in_process(folder) as (client, store):

        async def broken(*_, **__):
            raise ZeroDivisionError("oops")

        with monkeypatch.context() as patch:
            patch.setattr(store, "status", broken)
            text = await refusal(client, "status")
        assert "internal error: ZeroDivisionError('oops')" in text
        await answer(client, "status")
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("mode", MODES)
async def test_a_read_only_server_offers_no_tool_that_writes(folder, mode):
    """Not even to a client that asks for it all the same."""
    async with in_process(folder) as (client, _):
        await answer(client, "remember", text="tea", session="trip")
    async with in_process(folder, read_only=True, mode=mode) as (client, store):
        assert {tool.name for tool in (await client.list_tools()).tools} == READING | {"working_memory"}
        before = await store.head()
        for name in sorted(WRITING - {"working_memory"}):
            assert "does not offer it" in await refusal(client, name, session="trip", text="hello")
        assert "read-only" in await refusal(client, "working_memory", note="hello")
        assert await answer(client, "working_memory", session="trip") == {}
        assert (await answer(client, "status"))["result"]["read_only"] is True
        assert await store.head() == before


async def test_a_timeline_is_read_page_by_page_and_begins_with_the_newest(folder):
    """Whatever the limit, nothing is left out or told twice."""

    def positions(told):
        return [int(line.split()[0][1:]) for line in told.splitlines() if line.startswith("@")]

    async with in_process(folder) as (client, store):
        for number in range(20):
            await answer(client, "remember", session="ab"[number % 2], text=f"{number} " + "x" * 500)
        whole = [event.position async for event in store.events()]
        for session in ({}, {"session": "a"}):
            told, after = [], 0
            while after is not None:
                page = await answer(client, "timeline", after=after, limit=3, **session)
                told += positions(page)
                assert len(positions(page)) <= 3
                more = re.search(r"after=(\d+)\)$", page)
                after = int(more[1]) if more else None
            expected = [event.position async for event in store.events() if not session or "/a" in event.stream]
            assert told == expected
        assert positions(await answer(client, "timeline", limit=4)) == whole[-4:]


class Broken(SlowToLoad):
    def encode(self, texts):
        raise RuntimeError("no weights")


async def once_loaded(client):
    """The state of the model once it is not loading any more."""
    async with asyncio.timeout(WAIT_S):
        while (state := (await answer(client, "status"))["result"]["model"]) == "loading":
            await asyncio.sleep(0)
    return state


@pytest.mark.parametrize(
    ("model", "state", "note"),
    [(SlowToLoad, "ready", ""), (Broken, "no weights", "no weights"), (None, "none: searching by words only", "")],
)
async def test_without_a_loaded_model_recall_searches_by_words_and_says_why(folder, monkeypatch, model, state, note):
    """While loading it takes too long, or in every answer where it cannot be; with none, only the status says so."""
    monkeypatch.setattr("mnemolog.adapters.support.agent_tools.tool.MODEL_WAIT_S", 0)
    made = model and model()
    async with AsyncMemoryStore.open(folder, model=made, background=False) as store:
        memory = Memory(store)
        async with memory.loading(), Client(make_server(memory, tools="full")) as client:
            await answer(client, "remember", session="trip", text="I moved to Lisbon.")
            if model is SlowToLoad:
                assert "not loaded yet" in (await answer(client, "recall", query="Lisbon"))["note"]
                assert (await answer(client, "status"))["result"]["model"] == "loading"
                made.may.set()
            assert state in await once_loaded(client)
            found = await answer(client, "recall", query="Lisbon")
            assert len(found["hits"]) == 1
            assert note in found["note"] if note else "note" not in found


YES = {"approve": True}
CONSENTS = {
    "yes": ("accept", YES, {}, "approved"),
    "no": ("accept", {"approve": False}, {}, "open"),
    "declined": ("decline", None, {}, "open"),
    "cancelled": ("cancel", None, {}, "open"),
    "not JSON of the form": ("accept", {"approve": "true"}, {}, "open"),
    "a client that asks nobody": (None, None, {}, "open"),
    "without a channel back": ("accept", YES, {"mode": "auto"}, "open"),
    "four eyes": ("accept", YES, {"four_eyes": True}, "open"),
}
"""What a person answers, how the store is opened, and what becomes of the proposal."""


@pytest.mark.parametrize("name", CONSENTS)
async def test_the_person_at_the_client_is_asked_whether_a_proposed_fact_holds(folder, name):
    """Their yes approves it in their name, where one person may approve. Anything else leaves it open."""
    action, content, how, state = CONSENTS[name]
    questions = []

    async def asked(_context, params):
        questions.append(params.message)
        return ElicitResult(action=action, content=content)

    async with in_process(folder, asked=asked if action else None, **{"mode": "legacy"} | how) as (client, store):
        await store.assert_fact("user/city", "Porto", scope="acme/ada")
        said = await answer(
            client, "propose_fact", key="user/city", value="Lisbon", why="she said so", scope="acme/ada"
        )
        assert said["state"] == state
        (item,) = await store.proposals(state=state)
        assert (item.position, item.decided_by.endswith("(asked over MCP)")) == (said["proposal"], state == "approved")
        fact = await store.fact("user/city", scope="acme/ada")
        assert fact.value == ("Lisbon" if state == "approved" else "Porto")
    expected = [] if how or action is None else ["user/city = 'Lisbon', which is now 'Porto'. she said so"]
    assert questions == expected
