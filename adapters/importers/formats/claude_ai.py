"""`conversations.json` of a claude.ai export: an array of conversations, each with its `chat_messages`.

The fields are those of github.com/brandtcormorant/claude-json-schema, schema/claude-json-schema.json: a conversation
has `uuid`, `name` and `chat_messages`; a message has `uuid`, `sender` (`human` or `assistant`), `created_at`, `text`,
and in newer exports `content`, a list of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import OF
from mnemolog.adapters.importers.format import Conversation, Format, shared_by
from mnemolog.adapters.importers.turn import said_text
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import calls_in, content_text

_MESSAGES: Final = "chat_messages"


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get(_MESSAGES), list)


def _conversations(value: Any, session: str) -> Iterator[Conversation]:
    if not recognizes(value):
        raise InvalidInput(_MESSAGES, "expected an object with a list of messages")
    yield Conversation(value[_MESSAGES], shared_by(value), session)


def _said(message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a message that says something, calls a tool or has an attachment."""
    calls = calls_in(message.get("content"))
    files = [name for field in ("attachments", "files") for name in _file_names(message.get(field))]
    text = said_text(message.get("content")) or content_text(message.get("text"))
    if not calls and (not text or text.isspace()):
        text = " ".join(f"[attachment: {name}]" for name in files)
    if not text and not calls:
        return None
    return message | {"content": text, "tool_use": calls, "attachments": {"attachments": files} if files else None}


def _file_names(files: Any) -> list[str]:
    if not isinstance(files, list):
        return []
    return [str(file.get("file_name") or "unnamed") for file in files if isinstance(file, dict)]


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
    conversations=_conversations,
    said=_said,
)
