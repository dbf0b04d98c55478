"""A LangGraph agent whose threads and memories are in one store: python examples/langgraph_agent.py

It stops in the middle to ask, continues after the store was closed and opened again, and goes back in time. It needs no
model and no provider's key: the "model" repeats its input.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt

from mnemolog import MemoryStore
from mnemolog.adapters.langgraph import MnemologSaver, MnemologStore


class State(TypedDict):
    """What a thread holds."""

    messages: Annotated[list[AnyMessage], add_messages]


def answer(state: State, *, store: BaseStore) -> dict[str, Any]:
    """Repeat what was said, and all that is known of the user."""
    known = [item.value["likes"] for item in store.search(("users", "alice"))]
    return {"messages": [AIMessage(f"You said: {state['messages'][-1].content} You like: {', '.join(known) or '?'}.")]}


def remember(state: State, *, store: BaseStore) -> dict[str, Any]:
    """Ask what the user likes, and keep it for every thread, for a day from when it was last used."""
    likes = interrupt("What do you like?")
    store.put(("users", "alice"), likes, {"likes": likes}, ttl=24 * 60)
    return {}


def build(saver: MnemologSaver, items: MnemologStore) -> Any:
    """Return the graph."""
    graph = StateGraph(State)
    graph.add_node("remember", remember)
    graph.add_node("answer", answer)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver, store=items)


def main() -> None:
    """Run it."""
    thread = {"configurable": {"thread_id": "alice-1"}}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "memory"
        with (
            MemoryStore.open(folder, model=None) as store,
            MnemologSaver(store) as saver,
            MnemologStore(store) as items,
        ):
            found = build(saver, items).invoke({"messages": [("user", "Hello.")]}, thread)
            print("asked:", found["__interrupt__"][0].value)
        # Another process, another day.
        with (
            MemoryStore.open(folder, model=None) as store,
            MnemologSaver(store) as saver,
            MnemologStore(store) as items,
        ):
            graph = build(saver, items)
            print("answered:", graph.invoke(Command(resume="tea"), thread)["messages"][-1].content)
            history = list(graph.get_state_history(thread))
            print("checkpoints:", len(history), "- at first:", [m.content for m in history[-2].values["messages"]])
            print("sound:", not store.verify().findings)


if __name__ == "__main__":
    main()
