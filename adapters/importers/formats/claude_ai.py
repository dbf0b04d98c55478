"""`conversations.json` of a claude.ai export: an array of conversations, each with its `chat_messages`.

The fields are those of github.com/brandtcormorant/claude-json-schema, schema/claude-json-schema.json: a conversation
has `uuid`, `name` and `chat_messages`; a message has `uuid`, `sender` (`human` or `assistant`), `created_at`, `text`,
and in newer exports `content`, a list of blocks, and `parent_message_uuid`: an edited or repeated message is a branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, beside, shared_by
from mnemolog.adapters.importers.tree import shown_of
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import calls_in, content_text

_MESSAGES: Final = "chat_messages"
_LINKS: Final = ("uuid", "parent_message_uuid")


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get(_MESSAGES), list)


def _conversations(value: Any, session: str) -> Iterator[Conversation]:
    if not recognizes(value):
        raise InvalidInput(_MESSAGES, "expected an object with a list of messages")
    messages, left_out = shown_of(value[_MESSAGES], _LINKS, value.get("current_leaf_message_uuid"))
    yield Conversation(messages, shared_by(value), session, left_out, beside(value, value[_MESSAGES]))


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message. What was pasted is said; other attachments are named if nothing else is."""
    calls = calls_in(message.get("content"))
    attached = [file for field in ("attachments", "files") for file in _objects(message.get(field))]
    files = [str(file.get("file_name") or "unnamed") for file in attached]
    texts = [content_text(message.get("content")) or content_text(message.get("text")), *map(_pasted, attached)]
    text = "\n".join(text for text in texts if text and not text.isspace())
    if not calls and not text:
        text = " ".join(f"[attachment: {name}]" for name in files)
    return message | {"content": text, "tool_use": calls, "attachments": {"attachments": files} if files else None}


def _objects(values: Any) -> list[dict[str, Any]]:
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _pasted(file: dict[str, Any]) -> str:
    """Return what the user pasted: a long text becomes a file without a name of the user's."""
    name, content = file.get("file_name"), file.get("extracted_content")
    is_pasted = not name or (isinstance(name, str) and name.lower().startswith("paste"))
    return content if is_pasted and isinstance(content, str) else ""


FORMAT: Final = Format(
    name="claude-ai",
    kind="conversations.json of a claude.ai export",
    recognizes=recognizes,
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
    conversations=_conversations,
    said=_said,
)
