"""Formats whose messages are flat objects: JSON Lines, JSON, lists of chat APIs, mem0 and Zep.

- JSON: conversations as in files of ShareGPT (github.com/lm-sys/FastChat, data/dummy_conversation.json) are included.
- mem0: github.com/mem0ai/mem0, mem0/configs/base.py (`MemoryItem`) and mem0/memory/main.py (`user_id`, `actor_id`).
- Zep: github.com/getzep/zep-python, src/zep_cloud/types/message.py. Versions 1 and 2 have the kind of speaker in
  `role_type` and their name in `role`; version 3 and later in `role` and `name`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF, unwrapped, usual_names
from mnemolog.adapters.importers.format import SAMPLES, Conversation, Format, Message, beside, shared_by
from mnemolog.adapters.importers.formats.stores import columns_in, rows_in
from mnemolog.adapters.importers.source import Source
from mnemolog.adapters.importers.tree import shown_of
from mnemolog.adapters.importers.turn import as_label
from mnemolog.adapters.importers.unread import EVERYTHING
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, folded, role_beside, said_in

LEVELS_MAX: Final = 3
"""How deeply conversations of JSON may be nested."""


def has_usual_text(value: Any) -> bool:
    """Whether a value is an object with a text under a usual name."""
    fields = unwrapped(value) if isinstance(value, dict) else {}
    return any(isinstance(fields[name], str | list) for name in usual_names(fields).get("text", ()))


def _lines(source: Source) -> Iterator[Message]:
    for number, row in source.rows():
        table = rows_in(row, "") if columns_in(row) else Conversation([row])
        for message in table.messages:
            yield Message(number, f"line {number}", message, table.shared, around=table.around)


JSONL: Final = Format(name="jsonl", kind="JSON Lines, one turn a line", recognizes=has_usual_text, messages=_lines)


def _turns_in(value: Any) -> list[Any] | None:
    """Return the turns or conversations in a value, None for a turn: what has a text is one, whatever else it holds."""
    if isinstance(value, list):
        return value
    found = None if has_usual_text(value) else JSON.list_in(value)
    return found if found and any(isinstance(turn, dict | list) for turn in found[:SAMPLES]) else None


def _is_json(value: Any) -> bool:
    turns = _turns_in(value)
    if turns is None:
        return has_usual_text(value)
    return any(has_usual_text(turn) or _turns_in(turn) is not None for turn in turns[:SAMPLES])


def _conversations(value: Any, session: str, levels: int = LEVELS_MAX) -> Iterator[Conversation]:
    turns = _turns_in(value)
    if turns is None and columns_in(value):
        yield rows_in(value, session)
    elif turns is None:
        yield Conversation([value])
    elif levels and any(_turns_in(turn) is not None for turn in turns):
        yield Conversation((), left_out=Counter({reason for reason, _ in EVERYTHING.unread(beside(value, turns))}))
        for number, inner in enumerate(turns, start=1):
            yield from _conversations(inner, f"{session}-{number}", levels - 1)
    else:
        names = {folded(name): name for name in turns[0]} if turns and isinstance(turns[0], dict) else {}
        messages, left_out = turns, Counter[str]()
        if names.keys() >= _LINKS and ("role" in names or role_beside(turns[0]) is not None):
            # With a model, not among people, who reply to whom they like: an answer made again is a branch.
            links, last = (names["messageid"], names["parentmessageid"]), turns[-1]
            messages, left_out = shown_of(turns, links, last.get(links[0]) if isinstance(last, dict) else None)
        yield Conversation(messages, shared_by(value), session, left_out, beside(value, turns))


_LINKS: Final = {"messageid", "parentmessageid"}
JSON: Final = Format(
    name="json",
    kind="a JSON array of turns or of conversations",
    recognizes=_is_json,
    lists=(
        *("messages", "conversation", "conversations", "turns", "dialog", "dialogue", "history", "items", "data"),
        *("contents", "chat_history", "chat.messages", "chunkedPrompt.chunks"),
    ),
    links=("parentMessageId", "parent_message_id"),
    conversations=_conversations,
)


def is_message(value: object) -> bool:
    """Whether a value looks like one message of a chat API."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and bool(value.keys() & _SAYING)


_SAYING: Final = {"content", "tool_calls", "function_call", "refusal"}


def _is_openai(value: Any) -> bool:
    messages = OPENAI.list_in(value)
    return messages is not None and (not messages or any("role" in message for message in OPENAI.some_in(value)))


def _said_to_api(message: dict[str, Any]) -> dict[str, Any]:
    said = said_in(message)
    if not said.text and not message.keys() & _SAYING:
        raise InvalidInput("content", "missing")
    name = message.get("name")
    return message | {
        "content": said.text,
        "role": said.role,
        "name": as_label(name) if isinstance(name, str) else None,
        "tool_calls": said.tool_calls,
        "tool_call_id": said.metadata or None,
    }


OPENAI: Final = Format(
    name="openai",
    kind="messages as chat APIs have them",
    recognizes=_is_openai,
    lists=("messages", "body.messages"),
    fields={
        "text": ["content"],
        "role": ["role"],
        "session": [OF + "custom_id", OF + "id"],
        "session_title": [OF + "title"],
        "speaker": ["name"],
        "key": ["id"],
        "time": ["created_at"],
        "tool_calls": ["tool_calls"],
        "metadata": ["tool_call_id"],
    },
    said=_said_to_api,
)


MEM0: Final[Format] = Format(
    name="mem0",
    kind="memories of mem0",
    recognizes=lambda value: any(isinstance(item.get("memory"), str) for item in MEM0.some_in(value)),
    lists=("results",),
    fields={
        "text": ["memory"],
        "role": ["role"],
        "session": ["run_id", "user_id", "agent_id"],
        "agent": ["agent_id"],
        "speaker": ["actor_id"],
        "key": ["id"],
        "time": ["created_at"],
        "metadata": ["metadata"],
    },
    role=Role.USER,
)


def _is_zep(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    messages = ZEP.list_in(value)
    is_thread = messages is not None and bool(value.keys() & {"thread_created_at", "row_count", *_ZEP_IDS})
    return any(
        "content" in first and ("role_type" in first or ("uuid" in first and is_thread)) for first in ZEP.some_in(value)
    )


def _said_to_zep(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of version 1 or 2 with its role and name where later versions have them."""
    fields = dict(message)
    if "role_type" in fields:
        fields["name"] = fields.pop("role", None)
    kind = "role_type" if "role_type" in fields else "role"
    return fields | {kind: "user"} if fields.get(kind) == "norole" else fields


_ZEP_IDS: Final = ("session_id", "thread_id")
ZEP: Final = Format(
    name="zep",
    kind="messages of Zep",
    recognizes=_is_zep,
    lists=("messages",),
    fields={
        "text": ["content"],
        "role": ["role_type", "role"],
        "session": [*_ZEP_IDS, *(OF + name for name in _ZEP_IDS)],
        "speaker": ["name"],
        "key": ["uuid"],
        "time": ["created_at"],
        "metadata": ["metadata"],
    },
    said=_said_to_zep,
)
