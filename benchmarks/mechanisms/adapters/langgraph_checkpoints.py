"""LangGraph's checkpointer over SQLite: a thread for each user, whose state is a list of messages."""

import sqlite3
from pathlib import Path

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.mechanisms.protocol import Memory, Model


class Adapter(Memory):
    """It keeps what a graph's state was after each step, and finds nothing by what it says."""

    package = "langgraph-checkpoint-sqlite"
    find = None
    how = {
        "retry": "the id of a message: `add_messages` replaces the one with the same id",
        "as of": "the state of an earlier checkpoint: all messages of then",
        "durable": "a checkpoint after each message",
        "two processes": "all write to one thread: a checkpoint that is made at once with another leaves that one out",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rows = sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)
        graph = StateGraph(MessagesState)
        graph.add_node("nothing", lambda state: {})
        graph.add_edge(START, "nothing")
        graph.add_edge("nothing", END)
        self._graph = graph.compile(checkpointer=SqliteSaver(self._rows))

    def close(self) -> None:
        self._rows.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        message = {"role": "user", "content": text} | ({} if key is None else {"id": key})
        self._graph.update_state({"configurable": {"thread_id": user}}, {"messages": [message]})

    def texts(self, user):
        state = self._graph.get_state({"configurable": {"thread_id": user}})
        return [message.content for message in state.values.get("messages", [])]

    def moment(self):
        return self._graph.get_state({"configurable": {"thread_id": "ann"}}).config

    def find_as_of(self, user, question, k, moment):
        return [message.content for message in self._graph.get_state(moment).values["messages"]]
