"""`conversations.json` of a claude.ai export: an array of conversations, each with its `chat_messages`.

The fields are those of github.com/brandtcormorant/claude-json-schema, schema/claude-json-schema.json: a conversation
has `uuid`, `name` and `chat_messages`; a message has `uuid`, `sender` (`human` or `assistant`), `created_at`, `text`,
and in newer exports `content`, a list of blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import fixed_names
from mnemolog.adapters.importers.format import Format, Found, each_message
from mnemolog.adapters.importers.turn import fitting_calls
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message_content import calls_in, calls_text, content_text

_MESSAGES: Final = "chat_messages"
_SAID: Final = ("text", "image")
"""The other parts are thoughts, calls and results of tools, and bookkeeping."""
_NAMES: Final = {
    "text": ["content", "text"],
    "role": ["sender"],
    "session": ["conversation uuid"],
    "session_title": ["conversation name"],
    "key": ["uuid"],
    "time": ["created_at"],
    "tool_calls": ["tool_use"],
    "metadata": ["attachments"],
}


def recognizes(value: Any) -> bool:
    """Whether a value is a conversation of such an export."""
    return isinstance(value, dict) and isinstance(value.get(_MESSAGES), list)


def rows_of(value: Any, session: str) -> Iterator[Found]:
    """Yield the messages of a conversation that say something, call a tool or have an attachment."""
    if not recognizes(value):
        raise InvalidInput(_MESSAGES, "expected an object with a list of messages")
    conversation = {"conversation uuid": value.get("uuid") or session, "conversation name": value.get("name")}
    for row in each_message(value[_MESSAGES], _row):
        yield conversation | row if isinstance(row, dict) else row


def _row(message: dict[str, Any]) -> dict[str, Any] | None:
    content = message.get("content")
    calls, shortened = fitting_calls(calls_in(content))
    files = [name for field in ("attachments", "files") for name in _file_names(message.get(field))]
    if isinstance(content, list):
        content = [part for part in content if isinstance(part, str) or _kind(part) in _SAID]
    text = content_text(content)
    if not text or text.isspace():
        text = content_text(message.get("text"))
    if not text or text.isspace():
        text = calls_text(calls) if calls else " ".join(f"[attachment: {name}]" for name in files)
    if not text:
        return None
    metadata: dict[str, Any] = {"attachments": files} if files else {}
    return {
        "content": text,
        "sender": message.get("sender"),
        "uuid": message.get("uuid"),
        "created_at": message.get("created_at"),
        "tool_use": calls or None,
        "attachments": metadata | ({"tool_calls_shortened": True} if shortened else {}) or None,
    }


def _kind(part: Any) -> object:
    return part.get("type") if isinstance(part, dict) else None


def _file_names(files: Any) -> list[str]:
    if not isinstance(files, list):
        return []
    return [str(file.get("file_name") or "unnamed") for file in files if isinstance(file, dict)]


FORMAT = Format(
    name="claude-ai",
    kind="conversations.json of a claude.ai export",
    recognizes=recognizes,
    rows_of=rows_of,
    names_of=fixed_names(_NAMES),
)
