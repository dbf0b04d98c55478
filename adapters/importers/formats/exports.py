"""`conversations.json` of an export of ChatGPT or of claude.ai: an array of conversations.

- ChatGPT: a conversation is a tree of messages, its `mapping`.
- claude.ai: github.com/brandtcormorant/claude-json-schema, schema/claude-json-schema.json: a conversation has `uuid`,
  `name` and `chat_messages`; a message has `uuid`, `sender` (`human` or `assistant`), `created_at`, `text`, and in
  newer exports `content`, a list of blocks, and `parent_message_uuid`: an edited or repeated message is a branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.format import OF, Conversation, Format, beside, shared_by
from mnemolog.adapters.importers.tree import Node, shown, shown_of
from mnemolog.adapters.importers.turn import NOT_SAID, LeftOut, as_label
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, calls_in, content_text, parse_role


def _is_of_chatgpt(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def _tree(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation of ChatGPT."""
    if not _is_of_chatgpt(value):
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


def _said_in_chatgpt(message: dict[str, Any]) -> dict[str, Any]:
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


CHATGPT: Final = Format(
    name="chatgpt",
    kind="conversations.json of a ChatGPT export",
    recognizes=_is_of_chatgpt,
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
    conversations=_tree,
    said=_said_in_chatgpt,
)


def _is_of_claude_ai(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)


def _chat_messages(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation of claude.ai."""
    if not _is_of_claude_ai(value):
        raise InvalidInput("chat_messages", "expected an object with a list of messages")
    listed, links = value["chat_messages"], ("uuid", "parent_message_uuid")
    messages, left_out = shown_of(listed, links, value.get("current_leaf_message_uuid"))
    yield Conversation(messages, shared_by(value), session, left_out, beside(value, listed))


def _said_in_claude_ai(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message. What was pasted is said; other attachments are named if nothing else is."""
    calls = calls_in(message.get("content"))
    given = [message[field] for field in ("attachments", "files") if isinstance(message.get(field), list)]
    attached = [file for files in given for file in files if isinstance(file, dict)]
    names = [str(file.get("file_name") or "unnamed") for file in attached]
    texts = [content_text(message.get("content")) or content_text(message.get("text")), *map(_pasted, attached)]
    text = "\n".join(text for text in texts if text and not text.isspace())
    if not calls and not text:
        text = " ".join(f"[attachment: {name}]" for name in names)
    return message | {"content": text, "tool_use": calls, "attachments": {"attachments": names} if names else None}


def _pasted(file: dict[str, Any]) -> str:
    """Return what the user pasted: a long text becomes a file without a name of the user's."""
    name, content = file.get("file_name"), file.get("extracted_content")
    is_pasted = not name or (isinstance(name, str) and name.lower().startswith("paste"))
    return content if is_pasted and isinstance(content, str) else ""


CLAUDE_AI: Final = Format(
    name="claude-ai",
    kind="conversations.json of a claude.ai export",
    recognizes=_is_of_claude_ai,
    fields={
        "text": ["content"],
        "role": ["sender"],
        "session": [OF + "uuid"],
        "session_title": [OF + "name"],
        "key": ["uuid"],
        "time": ["created_at"],
        "tool_calls": ["tool_use"],
        "metadata": ["attachments"],
    },
    links=("current_leaf_message_uuid", "parent_message_uuid"),
    conversations=_chat_messages,
    said=_said_in_claude_ai,
)
