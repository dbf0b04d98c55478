"""An agent of the OpenAI Agents SDK with a memory that outlives it: python examples/openai_agent.py

Two conversations, each after the store was opened again. In the second the agent looks up what was said in the first;
then its last answer is taken back. It needs no provider's key: the SDK's scripted model returns the lines below.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

from mnemolog import AsyncMemoryStore
from mnemolog.adapters.openai_agents import MnemologSession, recall_tool

SCOPE = "acme/alice"


def repeat_what_was_found(call: Any) -> list[Any]:
    """Answer with the output of the tool."""
    return [assistant_message(f"I found: {call.input[-1]['output'].partition('user: ')[2]}")]


async def talk(folder: Path, session_id: str, said: str, *steps: Any) -> None:
    """Say something in a session, and print what the agent answers."""
    async with AsyncMemoryStore.open(folder, model=None) as store:
        session = MnemologSession(session_id, store, scope=SCOPE)
        agent = Agent(name="Helper", model=ScriptedModel(steps), tools=[recall_tool(store, scope=SCOPE, k=1)])
        result = await Runner.run(agent, said, session=session)
        print(f"{session_id}: {result.final_output}")


async def main() -> None:
    """Run it."""
    set_tracing_disabled(True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "memory"
        await talk(folder, "monday", "I like Earl Grey.", [assistant_message("Noted.")])
        # Another process, another day.
        call = function_call("recall", {"query": "Earl Grey"}, call_id="call_1")
        await talk(folder, "tuesday", "What do I like?", [call], ModelStep.respond(repeat_what_was_found))
        async with AsyncMemoryStore.open(folder, model=None) as store:
            tuesday = MnemologSession("tuesday", store)
            await tuesday.pop_item()
            print("left:", [item.get("type") or item["role"] for item in await tuesday.get_items()])
            print("in the log:", [turn.role.value for turn in await store.turns("tuesday")])
            print("sound:", not (await store.verify()).findings)


if __name__ == "__main__":
    asyncio.run(main())
