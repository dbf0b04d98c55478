"""What the SDK's own session does, held against both: its SQLiteSession and ours."""

import asyncio
import json

import pytest
from agents.memory import OpenAIResponsesCompactionSession, Session, SessionSettings
from agents.run_internal.session_persistence import rewind_session_items

DEEP = "leaf"
for _ in range(60):
    DEEP = {"deeper": [DEEP]}

ITEMS = {
    "easy": {"role": "user", "content": "Hello."},
    "developer": {"role": "developer", "content": "Be brief."},
    "unicode": {"role": "user", "content": 'Grüße 你好 🎉 \u200b\u2028 "quoted" \\ \n\t\r'},
    "surrogate": {"role": "user", "content": "half \ud83d of a pair"},
    "NUL": {"role": "user", "content": "before\x00after"},
    "no text": {"role": "user", "content": ""},
    "blank": {"role": "user", "content": " \n\t "},
    "parts": {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": "data:image/png;base64," + "iVBOR" * 100, "detail": "auto"},
        ],
    },
    "answer": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is.", "annotations": [{"index": 0, "type": "file_citation"}]}],
    },
    "refusal": {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
    "reasoning": {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAAA" * 50},
    "call": {
        "type": "function_call",
        "call_id": "call_1",
        "name": "search",
        "arguments": json.dumps({"query": {"nested": ["a", {"b": None}], "quoted": json.dumps({"again": "ä"})}}),
    },
    "output": {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "x"}]},
    "image": {"type": "image_generation_call", "id": "ig_1", "result": "AAAA" * 1_000, "status": "completed"},
    "shell": {"type": "shell_call", "call_id": "c", "action": {"commands": ["ls -l"], "timeout_ms": None}},
    "approval": {"type": "mcp_approval_request", "id": "a", "name": "rm", "arguments": "{}", "server_label": "s"},
    "compaction": {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"},
    "unknown": {"type": "of tomorrow", "future": [1.5, -0.0, 1e300, 2**80, True, None, {"": ""}]},
    "odd": {"type": 7, "role": ["user"], "call_id": "x" * 5_000, "content": 5, "name": "\x07\ud800"},
    "deep": {"role": "user", "content": DEEP},
    "empty": {},
    "3 MiB of text": {"role": "user", "content": "Größe " * 500_000},
    "3 MiB of an image": {"type": "image_generation_call", "id": "ig_2", "result": "QUJD" * 800_000},
    "3 MiB of output": {"type": "function_call_output", "call_id": "c", "output": "\x00\ud800line\n" * 400_000},
}


def said(*texts, role="user"):
    return [{"role": role, "content": text} for text in texts]


def numbered(numbers):
    return said(*map(str, numbers))


async def test_a_session_in_which_nothing_was_put_has_nothing(session):
    """As the SDK's protocol has it, with an id and settings. Reading, popping and clearing do no harm."""
    assert isinstance(session, Session)
    assert session.session_id == "s"
    assert session.session_settings == SessionSettings()
    assert await session.get_items() == await session.get_items(3) == []
    assert await session.pop_item() is None
    await session.clear_session()
    await session.add_items([])
    assert await session.get_items() == []


async def test_an_item_comes_back_exactly(place):
    """Value by value and key by key in its order, after everything was closed; and so does a popped one."""
    wanted = {name: [{"role": "user", "content": "before"}, item, item] for name, item in ITEMS.items()}
    for name, items in wanted.items():
        await place.session(name).add_items(items)
    place.reopen()
    for name, items in wanted.items():
        session = place.session(name)
        assert list(map(json.dumps, await session.get_items())) == list(map(json.dumps, items)), name
        assert json.dumps(await session.pop_item()) == json.dumps(ITEMS[name])
        assert await session.get_items() == items[:2]


async def test_a_limit_is_of_the_latest_items_in_order(place):
    """Below 0 there is none. It may come with the call or with the settings, also later; that of the call counts."""
    session = place.session()
    await session.add_items(numbered(range(10)))
    for limit, expected in ((0, 0), (1, 1), (3, 3), (10, 10), (11, 10), (2**31 - 1, 10), (-1, 10), (-7, 10)):
        latest = numbered(range(10))[10 - expected :]
        assert await session.get_items(limit) == await session.get_items(limit=limit) == latest
        assert await place.session(session_settings={"limit": limit}).get_items() == latest
        assert await place.session(session_settings=SessionSettings(limit=4)).get_items(limit) == latest
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == numbered([9])
    session.session_settings = None
    assert await session.get_items() == numbered(range(10))
    with pytest.raises((TypeError, ValueError)):
        place.session(session_settings={"limit": "many"})


async def test_pops_and_puts_in_any_order_leave_what_a_list_would(session, rng):
    """A random script, against a list."""
    expected = []
    for number in range(120):
        match rng.randrange(5):
            case 0 | 1:
                fresh = numbered(range(number, number + rng.randrange(3)))
                await session.add_items(fresh)
                expected += fresh
            case 2 | 3:
                assert await session.pop_item() == (expected.pop() if expected else None)
            case 4 if rng.random() < 0.15:
                await session.clear_session()
                expected.clear()
        limit = rng.randrange(6)
        assert await session.get_items(limit) == expected[max(0, len(expected) - limit) :]
    assert await session.get_items() == expected


async def test_sessions_in_one_place_know_nothing_of_one_another(place):
    """Whatever is put, popped and cleared in between."""
    ids = ["a", "b", "a/b", "A", "ä", "a" * 200]
    sessions = {name: place.session(name) for name in ids}
    for number in range(3):
        for name, session in sessions.items():
            await session.add_items(said(f"{name} {number}"))
    await sessions["a"].clear_session()
    await sessions["b"].pop_item()
    assert await sessions["a"].get_items() == []
    assert await sessions["b"].get_items() == said("b 0", "b 1")
    for name in ids[2:]:
        assert await sessions[name].get_items() == said(*(f"{name} {number}" for number in range(3)))


CIRCLE = {"role": "user", "content": []}
CIRCLE["content"].append(CIRCLE)


@pytest.mark.parametrize(
    "bad", [{"is": object()}, {"is": b"bytes"}, {("a", "b"): 1}, CIRCLE], ids=["object", "bytes", "key", "circle"]
)
async def test_what_is_no_json_is_refused_and_nothing_is_put(bad, session):
    """Not even the items before it."""
    await session.add_items(numbered([1]))
    with pytest.raises((TypeError, ValueError, RecursionError)):
        await session.add_items([*numbered([2]), bad])
    assert await session.get_items() == numbered([1])


async def test_tasks_of_one_loop_lose_nothing_to_one_another(session):
    """What one call puts stays together; pops take each item once."""
    await asyncio.gather(*(session.add_items(numbered([n, n, n])) for n in range(20)))
    there = [int(item["content"]) for item in await session.get_items()]
    popped = [int(item["content"]) for item in await asyncio.gather(*(session.pop_item() for _ in range(30)))]
    assert sorted(there) == sorted([*range(20)] * 3)
    assert all(len(set(there[place : place + 3])) == 1 for place in range(0, 60, 3))
    assert sorted(popped) == sorted(there[30:])
    assert [int(item["content"]) for item in await session.get_items()] == there[:30]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_change_is_settled_before_the_cancellation_is_raised(times, session):
    """It has been made whole or not at all, and nothing comes of it later."""

    async def cancelled(change):
        task = asyncio.ensure_future(change)
        for _ in range(times):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        then = await session.get_items()
        await asyncio.sleep(0.05)
        assert await session.get_items() == then
        return len(then)

    await session.add_items(numbered([0]))
    assert await cancelled(session.add_items(numbered([1, 1]))) in (1, 3)
    before = len(await session.get_items())
    assert await cancelled(session.pop_item()) in (before, before - 1)
    assert await cancelled(session.clear_session()) in (0, before, before - 1)


async def test_a_retry_takes_its_items_back_and_puts_them_again(session):
    """As the SDK's runner does it: only where they are the end of the session."""
    await session.add_items(numbered(range(3)))
    mine = [ITEMS["call"], ITEMS["output"]]
    await session.add_items(mine)
    await rewind_session_items(session, mine)
    assert await session.get_items() == numbered(range(3))
    await session.add_items(mine)
    await session.add_items(numbered([9]))
    await rewind_session_items(session, mine)
    assert await session.get_items() == [*numbered(range(3)), *mine, *numbered([9])]


class Compactor:
    """Answers `responses.compact` as OpenAI does, with scripted output."""

    def __init__(self, output=None, error=None):
        self.responses, self.asked = self, []
        self._output, self._error = output, error

    async def compact(self, **asked):
        self.asked.append(asked)
        if self._error is not None:
            raise self._error
        return self

    @property
    def output(self):
        return self._output

    usage = None


async def test_the_sdk_can_compact_it(session):
    """The history is replaced by what the service makes of it. It stays as it was if that fails."""
    told = [*numbered(range(4)), ITEMS["answer"]]
    failing = OpenAIResponsesCompactionSession("s", session, client=Compactor(error=RuntimeError("no service")))
    await failing.add_items(told)
    with pytest.raises(RuntimeError):
        await failing.run_compaction({"force": True, "compaction_mode": "input"})
    assert await session.get_items() == told
    client = Compactor([{"role": "user", "content": "0"}, ITEMS["compaction"]])
    compacting = OpenAIResponsesCompactionSession("s", session, client=client)
    await compacting.run_compaction({"force": True, "compaction_mode": "input"})
    assert len(client.asked[0]["input"]) == 5
    assert [item["type"] for item in await session.get_items() if "type" in item][-1] == "compaction"
    assert await session.get_items() == await compacting.get_items()
    assert len(await session.get_items()) == 2
    await compacting.add_items(numbered([7]))
    assert await session.get_items(1) == numbered([7])
