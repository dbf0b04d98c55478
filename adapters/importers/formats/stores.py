"""What other stores of memories give out: collections of Chroma, items of LangGraph, agents of Letta.

- Chroma: docs.trychroma.com, `Collection.get`: columns of one length, `ids`, `documents`, `metadatas`, `embeddings`.
- LangGraph: github.com/langchain-ai/langgraph, libs/checkpoint/langgraph/store/base (`Item`), as `item.dict()` has it.
- Letta: docs.letta.com, Agent File: agents with their messages. What a user said is within a text of JSON; the agent
  answers by a call of `send_message`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, beside, shared_by
from mnemolog.adapters.importers.source import decode
from mnemolog.adapters.importers.turn import NOT_SAID, LeftOut
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, content_text

_ANSWERS_BY: Final = "send_message"
_OF_PROGRAM: Final = ("heartbeat", "login", "system_alert", "package_message")


def columns_in(value: Any) -> dict[str, list[Any]]:
    """Return the columns of a table: the longest lists of one length, one of them of texts. Empty for anything else.

    A message that says who speaks is none: its lists are parts.
    """
    is_object = isinstance(value, dict) and not isinstance(value.get("role"), str)
    lists = {name: item for name, item in value.items() if isinstance(item, list)} if is_object else {}
    if len(lists) < 2:
        return {}
    longest = max(map(len, lists.values()))
    columns = {name: item for name, item in lists.items() if len(item) == longest}
    texts = [name for name, item in columns.items() if any(isinstance(cell, str) for cell in item)]
    return columns if len(columns) > 1 and texts else {}


def rows_in(value: dict[str, Any], session: str) -> Conversation:
    """Return the rows of a table, each under the names of the columns."""
    columns = columns_in(value)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    around = {name: item for name, item in value.items() if name not in columns}
    return Conversation(rows, shared_by(value), session, around=around)


def _collections(value: Any, session: str) -> Iterator[Conversation]:
    if not columns_in(value):
        raise InvalidInput("documents", "expected lists of one length, as `collection.get()` returns them")
    yield rows_in(value, session)


CHROMA: Final = Format(
    name="chroma",
    kind="a collection of Chroma",
    recognizes=lambda value: {"ids", "documents"} <= columns_in(value).keys(),
    fields={
        "text": ["documents"],
        "role": ["metadatas.role"],
        "session": [
            *(f"metadatas.{name}" for name in ("session_id", "conversation_id", "thread_id")),
            OF + "collection",
        ],
        "speaker": ["metadatas.speaker"],
        "key": ["ids"],
        "time": [f"metadatas.{name}" for name in ("created_at", "timestamp", "time")],
        "metadata": ["metadatas"],
    },
    role=Role.USER,
    conversations=_collections,
)


LANGGRAPH: Final[Format] = Format(
    name="langgraph",
    kind="items of a LangGraph store",
    recognizes=lambda value: any(
        isinstance(item.get("namespace"), list) and isinstance(item.get("value"), dict)
        for item in LANGGRAPH.some_in(value)
    ),
    lists=("items",),
    fields={
        "text": [f"value.{name}" for name in ("text", "content.content", "content", "memory", "data", "value")],
        "role": ["value.role"],
        "session": ["namespace"],
        "key": ["key"],
        "time": ["created_at"],
        "metadata": ["value.metadata"],
    },
    role=Role.USER,
)


def _is_letta(value: Any) -> bool:
    agents = value.get("agents") if isinstance(value, dict) else None
    return isinstance(agents, list) and any(LETTA.list_in(agent) is not None for agent in agents)


def _agents(value: Any, session: str) -> Iterator[Conversation]:
    if not _is_letta(value):
        raise InvalidInput("agents", "expected a list of agents with their messages")
    around = beside(value, value["agents"])
    for number, agent in enumerate(value["agents"], start=1):
        messages = LETTA.list_in(agent) or []
        yield Conversation(messages, shared_by(agent), f"{session}-{number}", around=around | beside(agent, messages))


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message. Raises `LeftOut` for the prompt of the system and for what a program wrote."""
    text, calls = content_text(message.get("content")), message.get("tool_calls") or []
    packed: Any = None
    with suppress(InvalidInput):
        packed = decode(text.encode(errors="replace"))
    kind = packed.get("type") if isinstance(packed, dict) else None
    if message.get("role") == "system" or kind in _OF_PROGRAM:
        raise LeftOut(NOT_SAID)
    if isinstance(packed, dict) and isinstance(packed.get("message"), str):
        text = packed["message"]
    answers = [answer for call in calls if (answer := _answer(call)) is not None]
    return message | {
        "content": "\n".join(answers) or text,
        "tool_calls": [call for call in calls if _answer(call) is None],
        "tool_call_id": {"tool_call_id": message["tool_call_id"]} if message.get("tool_call_id") else None,
    }


def _answer(call: Any) -> str | None:
    """Return what an agent says by a call, None for a call of any other tool."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or function.get("name") != _ANSWERS_BY:
        return None
    with suppress(InvalidInput):
        given = decode(str(function.get("arguments")).encode())
        if isinstance(given, dict) and isinstance(given.get("message"), str):
            return str(given["message"])
    return None


LETTA: Final = Format(
    name="letta",
    kind="an agent file of Letta",
    recognizes=_is_letta,
    lists=("messages",),
    fields={
        "text": ["content"],
        "role": ["role"],
        "session": [OF + "id"],
        "session_title": [OF + "name"],
        "agent": [OF + "name"],
        "speaker": ["name"],
        "key": ["id"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
    conversations=_agents,
    said=_said,
)
