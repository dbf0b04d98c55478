"""Agents with the SDK's scripted model, which gives scripted answers and keeps its inputs."""

from agents import Agent, Runner, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call


@function_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"Sun in {city}."


@function_tool(needs_approval=True)
def book(city: str) -> str:
    """Book a trip."""
    return f"Booked {city}."


def answers(text, number=0):
    return [assistant_message(text, item_id=f"msg_{text}_{number}")]


def calls(tool, call_id, **arguments):
    return [function_call(tool, arguments, call_id=call_id)]


def agent(*steps, **how):
    return Agent(name="Guide", model=ScriptedModel(steps), tools=[weather, book], **how)


def echo(name="Echo"):
    """An agent that answers with the number of its input items, and the last of them."""

    def respond(call):
        return answers(f"{len(call.input)}: {call.input[-1].get('content') or call.input[-1].get('output')}", id(call))

    return Agent(name=name, model=ScriptedModel([ModelStep.respond(respond)] * 1_000), tools=[weather])


def asked(agent):
    """Return what the model was asked with, call by call."""
    return [call.input for call in agent.model.calls]


async def streamed(agent, text, **how):
    """Run and read all events. Return what `Runner.run` would have."""
    result = Runner.run_streamed(agent, text, **how)
    async for _ in result.stream_events():
        pass
    return result
