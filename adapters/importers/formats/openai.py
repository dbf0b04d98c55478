"""Lists of `messages` in the format of chat APIs: one document, or one conversation per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from mnemolog.adapters.importers.fields import fixed_names
from mnemolog.adapters.importers.format import Format, Found, each_message
from mnemolog.adapters.importers.turn import as_label, fitting_calls
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import said_in

_SAYING: Final = {"content", "tool_calls", "function_call", "refusal"}


def messages_of(value: object) -> list[Any] | None:
    """Return the messages of a conversation or of a request in a batch file; None for anything else."""
    if not isinstance(value, dict):
        return None
    body = value.get("body")
    messages = value.get("messages", body.get("messages") if isinstance(body, dict) else None)
    return messages if isinstance(messages, list) else None


def is_message(value: object) -> bool:
    """Whether a value looks like one message."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and bool(value.keys() & _SAYING)


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation whose messages have roles."""
    messages = messages_of(value)
    return messages is not None and (
        not messages or any(isinstance(message, dict) and "role" in message for message in messages[:10])
    )


def rows_of(value: Any, session: str) -> Iterator[Found]:
    """Yield every message that has text or calls a tool: of a conversation, or the value itself."""
    messages = messages_of(value)
    if messages is None:
        yield from each_message([value], _row)
        return
    named = value.get("custom_id"), value.get("id")
    conversation = {
        "conversation id": next((name for name in named if name), session),
        "conversation title": value.get("title") if isinstance(value.get("title"), str) else None,
    }
    yield from each_message(messages, lambda message: _row(message, conversation))


def _row(message: dict[str, Any], conversation: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any] | None:
    said = said_in(message)
    calls, shortened = fitting_calls(said.tool_calls)
    if not said.text:
        if message.keys() & _SAYING:
            return None
        raise InvalidInput("content", "missing")
    name = message.get("name")
    return {
        **conversation,
        "content": said.text,
        "role": said.role.value,
        "name": as_label(name) if isinstance(name, str) else None,
        "id": message.get("id"),
        "created_at": message.get("created_at"),
        "tool_calls": calls or None,
        "tool_call_id": said.metadata | ({"tool_calls_shortened": True} if shortened else {}) or None,
    }


FORMAT = Format(
    name="openai",
    kind="messages as chat APIs have them",
    recognizes=recognizes,
    rows_of=rows_of,
    names_of=fixed_names(
        {
            "text": ["content"],
            "role": ["role"],
            "session": ["conversation id"],
            "session_title": ["conversation title"],
            "speaker": ["name"],
            "key": ["id"],
            "time": ["created_at"],
            "tool_calls": ["tool_calls"],
            "metadata": ["tool_call_id"],
        }
    ),
)
