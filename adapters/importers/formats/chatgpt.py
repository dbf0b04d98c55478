"""`conversations.json` of a ChatGPT export: an array of conversations, each a tree of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, beside, shared_by
from mnemolog.adapters.importers.tree import Node, shown
from mnemolog.adapters.importers.turn import NOT_SAID, LeftOut, as_label
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, content_text, parse_role


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def _conversations(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation."""
    if not isinstance(value, dict) or not isinstance(value.get("mapping"), dict):
        raise InvalidInput("mapping", "expected an object of nodes")
    nodes = {name: _node(name, node) for name, node in value["mapping"].items()}
    messages, left_out = shown(nodes, value.get("current_node"))
    yield Conversation(messages, shared_by(value), session, left_out, beside(value, value["mapping"]))


def _node(name: str, node: Any) -> Node:
    if not isinstance(node, dict):
        return Node("damaged")
    message = node.get("message")
    if isinstance(message, dict):
        message = {**message, "id": message.get("id") or name}
    return Node(message, node.get("parent"), node.get("children"))


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message. Raises `InvalidInput`; `LeftOut` if it is hidden or by the program."""
    author, metadata = _object(message, "author"), _object(message, "metadata")
    text = content_text(message.get("content"))
    role = parse_role(author.get("role")) if text else None
    if role is Role.SYSTEM or metadata.get("is_visually_hidden_from_conversation"):
        raise LeftOut(NOT_SAID)
    recipient = message.get("recipient")
    kept = {"model": metadata.get("model_slug"), "recipient": None if recipient == "all" else recipient}
    name = author.get("name")
    return message | {
        "parts": text,
        "author.role": role,
        "author.name": as_label(name) if isinstance(name, str) else None,
        "model_slug, recipient": {name: value for name, value in kept.items() if value} or None,
    }


def _object(message: dict[str, Any], field: str) -> dict[str, Any]:
    value = message.get(field)
    if value is not None and not isinstance(value, dict):
        raise InvalidInput(field, f"expected an object, got {type(value).__name__}")
    return value or {}


FORMAT: Final = Format(
    name="chatgpt",
    kind="conversations.json of a ChatGPT export",
    recognizes=recognizes,
    fields={
        "text": ["parts"],
        "role": ["author.role"],
        "session": [OF + "conversation_id", OF + "id"],
        "session_title": [OF + "title"],
        "speaker": ["author.name"],
        "key": ["id"],
        "time": ["create_time"],
        "metadata": ["model_slug, recipient"],
    },
    links=("current_node",),
    conversations=_conversations,
    said=_said,
)
