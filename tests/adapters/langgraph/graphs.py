"""Graphs of LangGraph's own to run on a saver."""

import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.types import INTERRUPT
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt


class Talk(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    count: int


def talk(saver: Any) -> Any:
    """Repeats its input, and drops its oldest message now and then."""

    def answer(state: Talk) -> dict[str, Any]:
        said = state["messages"][-1]
        return {"messages": [AIMessage(f"you said {said.content}", id=f"a-{said.id}")], "count": state["count"] + 1}

    def trim(state: Talk) -> dict[str, Any]:
        if state["count"] % 3:
            return {}
        return {"messages": [RemoveMessage(str(state["messages"][0].id))]}

    graph = StateGraph(Talk)
    graph.add_node("answer", answer)
    graph.add_node("trim", trim)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "trim")
    graph.add_edge("trim", END)
    return graph.compile(checkpointer=saver)


def said(number: int) -> dict[str, Any]:
    """Return the input of a turn of `talk`."""
    return {"messages": [HumanMessage(f"thing {number}", id=f"h-{number}")], "count": number}


def extended(state: list[Any], writes: list[list[Any]]) -> list[Any]:
    """Reduce as a delta channel does: all writes of a step at once."""
    return [*state, *(item for write in writes for item in write)]


class Gathered(TypedDict):
    notes: Annotated[list[str], DeltaChannel(extended, snapshot_frequency=4)]
    wanted: int


def gather(saver: Any) -> Any:
    """Gathers notes of parallel tasks in a delta channel."""

    def fan_out(state: Gathered) -> list[Send]:
        return [Send("note", {"wanted": number}) for number in range(state["wanted"])]

    def note(state: Gathered) -> dict[str, Any]:
        return {"notes": [f"note {state['wanted']}"]}

    graph = StateGraph(Gathered)
    graph.add_node("begin", lambda state: {"notes": ["begun"]})
    graph.add_node("note", note)
    graph.add_edge(START, "begin")
    graph.add_conditional_edges("begin", fan_out, ["note"])
    graph.add_edge("note", END)
    return graph.compile(checkpointer=saver)


class Asked(TypedDict):
    answers: Annotated[list[str], operator.add]


def asking(saver: Any) -> Any:
    """Asks in a subgraph, and waits for the answer."""

    def ask(state: Asked) -> dict[str, Any]:
        return {"answers": [interrupt("what do you like?")]}

    inner = StateGraph(Asked)
    inner.add_node("ask", ask)
    inner.add_edge(START, "ask")
    outer = StateGraph(Asked)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


def normal(found: Any) -> Any:
    """Return what a tuple says, but for what each run makes up anew: ids and times."""
    written = [(channel, value) for _, channel, value in found.pending_writes]
    return {
        "values": dict(sorted(found.checkpoint["channel_values"].items())),
        "writes": [(name, [i.value for i in value] if name == INTERRUPT else value) for name, value in written],
        "step": found.metadata["step"],
        "source": found.metadata["source"],
        "has_parent": found.parent_config is not None,
        "ns": found.config["configurable"]["checkpoint_ns"].partition(":")[0],
    }
