"""`conversations.json` of a ChatGPT export: an array of conversations, each a tree of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, shared_by
from mnemolog.adapters.importers.turn import as_label
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import content_text
from mnemolog.domain.role import Role, parse_role

# Thoughts of the model and settings of the user: not part of the conversation.
_NOT_SAID: Final = frozenset(
    {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}
)


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def _conversations(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation."""
    if not isinstance(value, dict):
        raise InvalidInput("conversation", f"expected an object, got {type(value).__name__}")
    yield Conversation(_shown(value), shared_by(value), session)


_Nodes = dict[str, dict[str, Any]]


def _shown(conversation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages from the root to the current node. Raises `InvalidInput`."""
    nodes = _nodes(conversation)
    at = _known(nodes, conversation.get("current_node")) or _last_leaf(nodes)
    branch: list[dict[str, Any]] = []
    seen: set[str] = set()
    while at is not None and at not in seen:
        seen.add(at)  # A damaged file may have a cycle.
        node = nodes[at]
        message = node.get("message")
        if isinstance(message, dict):
            branch.append({**message, "id": message.get("id") or at})
        at = _known(nodes, node.get("parent"))
    return branch[::-1]


def _nodes(conversation: dict[str, Any]) -> _Nodes:
    mapping = conversation.get("mapping")
    if not isinstance(mapping, dict) or not all(isinstance(node, dict) for node in mapping.values()):
        raise InvalidInput("mapping", "expected an object of nodes")
    return mapping


def _known(nodes: _Nodes, name: object) -> str | None:
    """Return `name` if it names a node, None otherwise."""
    return name if isinstance(name, str) and name in nodes else None


def _last_leaf(nodes: _Nodes) -> str | None:
    """Return the end of the newest branch: follow the last child of each node."""
    at = next((name for name, node in nodes.items() if _known(nodes, node.get("parent")) is None), None)
    seen: set[str] = set()
    while at is not None and at not in seen:
        seen.add(at)
        children = nodes[at].get("children")
        there = [child for child in children if _known(nodes, child)] if isinstance(children, list) else []
        if not there:
            break
        at = there[-1]
    return at


def _said(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a message, None if it is hidden or not part of the conversation. Raises `InvalidInput`."""
    author, content = _object(message, "author"), _object(message, "content")
    metadata = _object(message, "metadata")
    text = _text(content)
    if not text or text.isspace() or metadata.get("is_visually_hidden_from_conversation"):
        return None
    role = parse_role(author.get("role"))
    if role is Role.SYSTEM:
        return None
    recipient = message.get("recipient")
    kept = {"model": metadata.get("model_slug"), "recipient": None if recipient == "all" else recipient}
    name = author.get("name")
    return message | {
        "parts": text,
        "author.role": role.value,
        "author.name": as_label(name) if isinstance(name, str) else None,
        "model_slug, recipient": {name: value for name, value in kept.items() if value} or None,
    }


def _object(message: dict[str, Any], field: str) -> dict[str, Any]:
    value = message.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(field, f"expected an object, got {type(value).__name__}")
    return value


def _text(content: dict[str, Any]) -> str:
    kind = content.get("content_type")
    if isinstance(kind, str) and kind in _NOT_SAID:
        return ""
    parts = content.get("parts")
    if isinstance(parts, list):
        return content_text([_part(part) for part in parts if part is not None])
    for field in ("text", "result"):
        if isinstance(content.get(field), str):
            return str(content[field])
    return ""


def _part(part: object) -> object:
    """Return a part as a block: these objects have their type in another field."""
    if not isinstance(part, dict):
        return part
    if isinstance(part.get("text"), str):
        return part["text"]
    kind = part.get("content_type")
    return {"type": kind if isinstance(kind, str) else "attachment"}


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
    conversations=_conversations,
    said=_said,
)
