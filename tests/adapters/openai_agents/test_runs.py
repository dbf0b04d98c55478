"""The SDK's runner on both sessions: added items, inputs of the model, and the state after failures."""

import asyncio
import json
from contextlib import closing, suppress

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    RunConfig,
    Runner,
    RunState,
    SessionSettings,
    input_guardrail,
)
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel

from tests.adapters.openai_agents.agents_of_tests import agent, answers, asked, calls, streamed
from tests.adapters.openai_agents.conftest import Ours, Theirs
from tests.adapters.openai_agents.test_behaviour import ITEMS, Compactor


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
