"""What the SDK's own session does, held against both: its SQLiteSession and ours.

The SDK's runner on both sessions: added items, inputs of the model, and the state after failures. Several processes
on one session, and a process that is killed.
"""

import asyncio
import itertools
import json
import subprocess
import sys
from contextlib import ExitStack, closing, suppress

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    RunConfig,
    Runner,
    RunState,
    input_guardrail,
)
from agents.memory import OpenAIResponsesCompactionSession, Session, SessionSettings
from agents.run_internal.session_persistence import rewind_session_items
from agents.testing import ScriptedModel

from mnemolog import MemoryStore
from mnemolog.adapters.openai_agents import MnemologSession
from tests.adapters.openai_agents.agents_of_tests import agent, answers, asked, calls, streamed
from tests.adapters.openai_agents.children import first_call
from tests.adapters.openai_agents.conftest import Ours, Theirs
from tests.children.first_calls import said

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


def texts_of(*texts, role="user"):
    return [{"role": role, "content": text} for text in texts]


def numbered(numbers):
    return texts_of(*map(str, numbers))


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
            await session.add_items(texts_of(f"{name} {number}"))
    await sessions["a"].clear_session()
    await sessions["b"].pop_item()
    assert await sessions["a"].get_items() == []
    assert await sessions["b"].get_items() == texts_of("b 0", "b 1")
    for name in ids[2:]:
        assert await sessions[name].get_items() == texts_of(*(f"{name} {number}" for number in range(3)))


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


async def plain(agent, text, **how):
    return await Runner.run(agent, text, **how)


@pytest.fixture(params=[plain, streamed], ids=["run", "streamed"])
def runs(request):
    return request.param


def kinds(items):
    return [item.get("type") or item["role"] for item in items]


async def test_a_conversation_with_tool_calls_resumes_where_it_was(place, runs):
    """In another object, after everything was closed: the model gets the whole conversation, in its order."""
    await runs(agent(calls("weather", "c1", city="Faro"), answers("Sunny.")), "Weather?", session=place.session())
    place.reopen()
    second = agent(calls("weather", "c2", city="Porto"), answers("There too."))
    await runs(second, "And in Porto?", session=place.session())
    items = await place.session().get_items()
    assert kinds(items) == ["user", "function_call", "function_call_output", "message"] * 2
    assert [item["output"] for item in items if "output" in item] == ["Sun in Faro.", "Sun in Porto."]
    assert asked(second) == [items[:5], items[:-1]]


@input_guardrail(run_in_parallel=False)
def never(_context, _agent, _input):
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)


async def test_both_keep_the_same(folder, runs):
    """Item by item, of one script of runs, tools, limits, callbacks, failures and guardrails."""
    found = []
    folder.mkdir()
    for kind in (Theirs, Ours):
        with closing(kind(folder / kind.__name__)) as place:
            session, there = place.session(session_settings=SessionSettings(limit=30)), []
            script = [
                (agent(answers("one")), {}),
                (agent(calls("weather", "c1", city="Faro"), calls("weather", "c2", city="Porto"), answers("two")), {}),
                (agent(answers("three")), {"run_config": RunConfig(session_settings=SessionSettings(limit=3))}),
                (
                    agent(answers("four")),
                    {"run_config": RunConfig(session_input_callback=lambda old, new: old[-2:] + new)},
                ),
                (agent(answers("five"), handoffs=[agent(answers("six"))]), {}),
                (agent(ConnectionError("lost")), {}),
                (agent(answers("no"), input_guardrails=[never]), {}),
                (agent(answers("seven")), {}),
            ]
            for number, (made, how) in enumerate(script):
                with suppress(ConnectionError, InputGuardrailTripwireTriggered):
                    await runs(made, f"question {number}", session=session, **how)
                there.append((asked(made), await session.get_items()))
            found.append(there)
    assert found[0] == found[1]
    assert [len(items) for _, items in found[1]][:6] == [2, 8, 10, 12, 14, 15], "a question without an answer is kept"


@pytest.mark.parametrize("approved", [True, False], ids=["approved", "rejected"])
async def test_a_run_that_waits_for_approval_resumes_after_a_restart(approved, place, runs):
    """The state is taken along as JSON; the session has each item once."""
    first = agent(calls("book", "c1", city="Faro"))
    result = await runs(first, "Book Faro.", session=place.session())
    assert len(result.interruptions) == 1
    state = json.dumps(result.to_state().to_json())
    place.reopen()
    second = agent(answers("Done."))
    loaded = await RunState.from_json(second, json.loads(state))
    (waiting,) = loaded.get_interruptions()
    (loaded.approve if approved else loaded.reject)(waiting)
    assert (await runs(second, loaded, session=place.session())).final_output == "Done."
    items = await place.session().get_items()
    assert kinds(items) == ["user", "function_call", "function_call_output", "message"]
    assert (items[2]["output"] == "Booked Faro.") is approved


async def test_a_run_that_is_cancelled_leaves_whole_steps(place):
    """Added items stay, in order, and the session continues."""
    session = place.session()
    made = agent(calls("weather", "c1", city="Faro"), answers("Sunny."))
    task = asyncio.ensure_future(Runner.run(made, "Weather?", session=session))
    while not await session.get_items():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    there = await session.get_items()
    whole = ["user", "function_call", "function_call_output", "message"]
    assert kinds(there) in (whole[:1], whole[:3], whole)
    await Runner.run(agent(answers("yes")), "Again?", session=session)
    assert (await session.get_items())[: len(there)] == there


async def test_the_runner_compacts_automatically(place, runs):
    """When enough was said; the next run begins with what was made of it."""
    client = Compactor([ITEMS["compaction"]])
    session = OpenAIResponsesCompactionSession(
        "s", place.session(), client=client, should_trigger_compaction=lambda about: len(about["session_items"]) >= 4
    )
    made = Agent(
        name="A",
        model=ScriptedModel([answers("one"), answers("two"), answers("three")]),
        model_settings=ModelSettings(store=False),
    )
    await runs(made, "first", session=session)
    assert client.asked == []
    await runs(made, "second", session=session)
    assert len(client.asked) == 1
    assert kinds(await place.session().get_items()) == ["compaction"]
    await runs(made, "third", session=session)
    assert kinds(asked(made)[2]) == ["compaction", "user"]


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
