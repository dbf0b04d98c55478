"""What the tools and resources do, asked by the SDK's own client in this process."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from jsonschema import Draft202012Validator
from mcp import MCPError

from mnemolog import MemoryStore
from mnemolog.adapters.support.agent_tools import TOOLS, answers
from tests.adapters.mcp.serving import MODES, answer, in_process, refusal
from tests.support import WAIT_S, HashEncoder

READING = {
    *("recall", "timeline", "session_list", "session_current", "memory_read", "checkpoint_list", "status"),
}
WRITING = {
    *("record", "session_start", "session_switch", "session_branch", "session_end", "memory_set", "memory_delete"),
    *("task_set", "task_update", "note_add", "notes_clear", "checkpoint_create", "checkpoint_restore"),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_says_when_to_use_it_and_what_it_takes_and_gives(folder, mode):
    """Names, schemas that are schemas, hints of what is only read."""

    async def main():
        async with in_process(folder, mode=mode) as (client, _):
            assert "session_start" in client.instructions
            found = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert found.keys() == READING | WRITING
        for tool in found.values():
            assert "Use it " in tool.description
            for schema in (tool.input_schema, tool.output_schema):
                Draft202012Validator.check_schema(schema)
                assert schema["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema["properties"].keys() == {"position", "result"}
            assert tool.annotations.read_only_hint is (tool.name in READING)

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_a_conversation_from_start_to_restore(folder, mode):
    """Every tool once, each answer with a position, all of it in the log as the library reads it."""

    async def main():
        async with in_process(folder, mode=mode, agent="helper") as (client, _):
            before = (await answer(client, "session_current"))["result"]
            started = await answer(client, "session_switch", reason="new", to="trip", name="trip", scope="acme/alice")
            now = (await answer(client, "session_current"))["result"]
            said = await answer(client, "record", session="trip", role="user", text="I moved to Lisbon.", key="t1")
            again = await answer(client, "record", session="trip", role="user", text="I moved to Lisbon.", key="t1")
            await answer(client, "memory_set", session="trip", key="budget", value={"eur": 900})
            await answer(client, "memory_set", session="trip", key="offer", value=None, ttl=3_600)
            await answer(client, "task_set", session="trip", description="book", step=1, total=3)
            await answer(client, "task_update", session="trip", step=2)
            await answer(client, "note_add", session="trip", text="prefers trains")
            kept = await answer(client, "checkpoint_create", session="trip", name="asked")
            await answer(client, "memory_set", session="trip", key="budget", value=1_200)
            gone = (await answer(client, "memory_delete", session="trip", key="offer"))["result"]
            await answer(client, "notes_clear", session="trip")
            then = await answer(client, "memory_read", session="trip", as_of=kept["position"])
            branch = await answer(client, "session_branch", session="trip", to="by-train", at="asked")
            await answer(client, "record", session="trip", role="assistant", text="Lisbon it is.")
            listed = await answer(client, "checkpoint_list", session="trip")
            await answer(client, "checkpoint_restore", session="trip", checkpoint="asked")
            mind = await answer(client, "memory_read", session="trip")
            found = await answer(client, "recall", query="Lisbon", session="trip", mode="text")
            early = await answer(client, "recall", query="Lisbon", as_of=said["position"] - 1, mode="text")
            told = await answer(client, "timeline", session="trip", after=0)
            await answer(client, "session_end", session="by-train")
            sessions = await answer(client, "session_list", scope="acme")
            state = await answer(client, "status")
            fresh = await answer(client, "session_start", id="other")
        assert before is None
        assert started["result"] == now
        assert now == {
            "session": "trip", "name": "trip", "agent": "helper", "scope": "acme/alice", "lineage": ["trip"],
        }  # fmt: skip
        assert said["result"]["position"] == again["result"]["position"] == said["position"]
        assert gone is True
        assert then["result"]["values"] == {"budget": {"eur": 900}, "offer": None} == mind["result"]["values"]
        assert mind["result"]["task"]["step"] == 2
        assert [note["text"] for note in mind["result"]["notes"]] == ["prefers trains"]
        assert listed["result"] == mind["result"]["checkpoints"]
        assert branch["result"]["lineage"] == ["trip", "by-train"]
        assert [hit["text"] for hit in found["result"]["hits"]] == ["I moved to Lisbon."], "the other one is hidden"
        assert found["result"]["hits"][0]["position"] == said["position"]
        assert early["result"]["hits"] == []
        assert [event["what"] for event in told["result"]["events"]] == [
            *("session.started", "turn.recorded", "value.set", "value.set", "task.changed", "task.changed"),
            *("note.added", "checkpoint.created", "value.set", "value.deleted", "notes.cleared", "turn.recorded"),
            "checkpoint.restored",
        ]
        assert told["result"]["next"] is None
        assert [item["session"] for item in sessions["result"]] == ["trip", "by-train"]
        assert state["result"]["sessions"] == 2
        assert state["position"] < fresh["position"]
        with MemoryStore.open(folder, model=None, create=False) as store:
            assert store.verify().sound
            assert store.head().position == fresh["position"]
            assert store.session("other").agent == "helper"
            assert store.session("trip").get("budget") == {"eur": 900}

    asyncio.run(main())


def test_an_error_is_an_answer_with_a_hint_and_nothing_is_written(folder):
    """Of the library, of arguments, of a missing one; and the next call is answered as if nothing had been."""

    async def main():
        async with in_process(folder) as (client, store):
            await answer(client, "session_start", id="trip")
            before = await store.head()
            unknown = await refusal(client, "record", session="tripp", role="user", text="hello")
            empty = await refusal(client, "record", session="trip", role="user", text=" ")
            role = await refusal(client, "record", session="trip", role="bot", text="hello")
            excess = await refusal(client, "record", session="trip", role="user", text="hello", scop="acme")
            missing = await refusal(client, "record", session="trip", role="user")
            naive = await refusal(client, "recall", query="x", since="2026-01-01T00:00:00")
            ahead = await refusal(client, "recall", query="x", as_of=10_000)
            restore = await refusal(client, "checkpoint_restore", session="trip", checkpoint="none")
            assert await store.head() == before
            with pytest.raises(MCPError, match="there is no such tool"):
                await client.call_tool("remember", {})
        assert unknown == (
            "UnknownSession: there is no session 'tripp'\n"
            "hint: nothing was written; session_list lists the ids; session_start, where offered, starts one"
        )
        assert empty.startswith("InvalidInput: text")
        for text in (role, excess, missing, naive):
            assert text.startswith("InvalidArguments: ")
            assert "hint: nothing was written" in text
        assert "scop" in excess
        assert "position" in ahead
        assert "no checkpoint 'none'" in restore

    asyncio.run(main())


ODD = [2**63, 2**70, -1, "", "\x00", "x" * 70_000, "0001-01-01T00:00:00+14:00", {"a": 2**70}, ["a"]]


def test_no_argument_however_odd_is_more_than_refused(folder):
    """Each parameter of each tool, one odd value at a time; the log is sound behind them."""
    known = {"session": "s", "role": "user", "text": "tea", "query": "tea", "key": "k", "value": 1, "name": "n"}
    known |= {"checkpoint": "c", "description": "d", "reason": "rewind"}

    async def main():
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

    asyncio.run(main())


def test_a_failure_that_nobody_foresaw_ends_no_service(folder, monkeypatch, caplog):
    """The client gets an error, the log of the server has the traceback, the next call is answered."""

    async def main():
        async with in_process(folder) as (client, store):

            async def broken(*_, **__):
                raise ZeroDivisionError("oops")

            with monkeypatch.context() as patch:
                patch.setattr(store, "status", broken)
                text = await refusal(client, "status")
            assert "internal error: ZeroDivisionError('oops')" in text
            await answer(client, "status")

    asyncio.run(main())
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("mode", MODES)
def test_a_server_that_only_reads_offers_nothing_that_writes(folder, mode):
    """Not even to a client that asks for it all the same."""

    async def main():
        async with in_process(folder) as (client, _):
            await answer(client, "session_start", id="trip")
        async with in_process(folder, read_only=True, mode=mode) as (client, store):
            assert {tool.name for tool in (await client.list_tools()).tools} == READING
            before = await store.head()
            for name in sorted(WRITING):
                with pytest.raises(MCPError, match="read-only"):
                    await client.call_tool(name, {"session": "trip", "role": "user", "text": "hello"})
            assert (await answer(client, "status"))["result"]["read_only"] is True
            assert await store.head() == before

    asyncio.run(main())


def test_a_timeline_is_read_page_by_page_and_begins_with_the_newest(folder, monkeypatch):
    """Whatever the limit and however few positions are looked through at a time, nothing is left out or told twice."""
    monkeypatch.setattr(answers, "SCANNED_MAX", 7)

    async def main():
        async with in_process(folder) as (client, store):
            for session in ("a", "b"):
                await answer(client, "session_start", id=session)
            for number in range(20):
                await answer(client, "record", session="ab"[number % 2], role="user", text=f"{number} " + "x" * 500)
            whole = [event.position async for event in store.events()]
            for session in (None, "a"):
                told, after = [], 0
                while after is not None:
                    page = (await answer(client, "timeline", after=after, limit=3, session=session))["result"]
                    assert len(page["events"]) <= 3
                    told += page["events"]
                    after = page["next"]
                expected = [event.position async for event in store.events() if session is None or "a" in event.stream]
                assert [event["position"] for event in told] == expected
            newest = (await answer(client, "timeline", limit=4))["result"]
            assert [event["position"] for event in newest["events"]] == whole[-4:]
            assert newest["next"] is None
            assert len(newest["events"][0]["text"]) == answers.CUT_AT + 1

    asyncio.run(main())


@pytest.mark.parametrize("mode", MODES)
def test_sessions_are_resources_now_and_as_of_a_position(folder, mode):
    """Any id, listed in pages, read as JSON; what is none is an error of the protocol."""
    odd = "a/b ?#é%"

    async def main():
        async with in_process(folder, mode=mode) as (client, store):
            for number in range(150):
                await store.start_session(f"s{number}")
            session = await store.start_session(odd, title="odd")
            first = await session.record("user", "I moved to Lisbon.")
            await session.set("budget", 900)
            listed, cursor = [], None
            while True:
                page = await client.list_resources(cursor=cursor)
                listed += page.resources
                if (cursor := page.next_cursor) is None:
                    break
            assert [item.name for item in listed] == [*(f"s{number}" for number in range(150)), "odd"]
            uri = str(listed[-1].uri)
            now = json.loads((await client.read_resource(uri)).contents[0].text)
            then = json.loads((await client.read_resource(f"{uri}/at/{first.position}")).contents[0].text)
            assert now["session"] == odd
            assert now["values"] == {"budget": 900}
            assert then["values"] == {}
            assert [turn["text"] for turn in then["turns"]] == ["I moved to Lisbon."]
            assert (now["position"], then["position"]) == (first.position + 1, first.position)
            assert len((await client.list_resource_templates()).resource_templates) == 2
            for wrong in ("mnemolog://sessions/nobody", f"{uri}/at/x", f"{uri}/at/99999", "mnemolog://turns/1"):
                with pytest.raises(MCPError):
                    await client.read_resource(wrong)

    asyncio.run(main())


class SlowToLoad(HashEncoder):
    """A model that is not ready before it is released: not even its dimension is known."""

    def __init__(self):
        super().__init__()
        self.may, self._dimension, self.dimension = threading.Event(), self.dimension, None

    def encode(self, texts):
        assert self.may.wait(WAIT_S)
        self.dimension = self._dimension
        return super().encode(texts)


def test_until_the_model_is_loaded_words_are_looked_for_and_the_answer_says_so(folder):
    """And no longer than that; pages that started without it continue without it."""
    model = SlowToLoad()

    async def main():
        async with in_process(folder, model=model) as (client, _):
            await answer(client, "session_start", id="trip")
            for number in range(4):
                await answer(client, "record", session="trip", role="user", text=f"I moved to Lisbon in {number}.")
            early = await answer(client, "recall", query="Lisbon", k=2, session="trip")
            state = (await answer(client, "status"))["result"]["model"]
            model.may.set()
            async with asyncio.timeout(WAIT_S):
                while (await answer(client, "status"))["result"]["model"] == "loading":
                    pass
            late = await answer(client, "recall", query="Lisbon", k=2, session="trip")
            after = early["result"]["next"]
            further = await answer(client, "recall", query="Lisbon", k=2, session="trip", after=after)
        assert state == "loading"
        assert early["result"]["legs"] == ["text"]
        assert "not loaded yet" in early["result"]["unavailable_legs"]["vector"]
        assert late["result"]["legs"] == ["text", "vector"]
        assert further["result"]["legs"] == ["text"]
        assert not {hit["position"] for hit in further["result"]["hits"]} & {
            hit["position"] for hit in early["result"]["hits"]
        }

    asyncio.run(main())


def test_a_model_that_cannot_be_loaded_leaves_the_words_and_says_why(folder):
    """Both in the status and in every answer."""

    class Broken(HashEncoder):
        dimension = None

        def __init__(self):
            self.fingerprint, self.calls = "broken/1", []

        def encode(self, texts):
            raise RuntimeError("no weights")

    async def main():
        async with in_process(folder, model=Broken()) as (client, _):
            await answer(client, "session_start", id="trip")
            await answer(client, "record", session="trip", role="user", text="I moved to Lisbon.")
            async with asyncio.timeout(WAIT_S):
                while (state := (await answer(client, "status"))["result"]["model"]) == "loading":
                    pass
            found = await answer(client, "recall", query="Lisbon")
        assert "no weights" in state
        assert "no weights" in found["result"]["unavailable_legs"]["vector"]
        assert len(found["result"]["hits"]) == 1

    asyncio.run(main())
