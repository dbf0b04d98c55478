"""Messages of Zep: a thread or session with its `messages`, an array of these, or one message a line.

The fields are those of github.com/getzep/zep-python, src/zep_cloud/types/message.py: a message has `content`, `uuid`,
`created_at` and `metadata`. Of versions 1 and 2 it has the kind of speaker in `role_type` and their name in `role`; of
version 3 and later in `role` and `name`. Sessions have a `session_id`, threads a `thread_id`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import Names
from mnemolog.adapters.importers.format import Format, Found, each_message

_IDS: Final = ("session_id", "thread_id")
_THREAD_FIELDS: Final = ("thread_created_at", "row_count", *_IDS)
_NAMES: Final = {
    "text": ["content"],
    "role": ["role"],
    "session": list(_IDS),
    "speaker": ["name"],
    "key": ["uuid"],
    "time": ["created_at"],
    "metadata": ["metadata"],
}
_NAMES_OF_V2: Final = _NAMES | {"role": ["role_type"], "speaker": ["role"]}
_NO_ROLE: Final = "norole"


def names_of(fields: Iterable[str]) -> Names:
    """Return the names of the version that a message is of."""
    return _NAMES_OF_V2 if "role_type" in fields else _NAMES


def recognizes(value: Any) -> bool:
    """Whether a value is a message of version 1 or 2, or a thread or session with messages."""
    if not isinstance(value, dict):
        return False
    messages = value.get("messages")
    if not isinstance(messages, list):
        return "role_type" in value and isinstance(value.get("content"), str)
    first = messages[0] if messages else None
    if not isinstance(first, dict) or not isinstance(first.get("content"), str):
        return False
    return "role_type" in first or ("uuid" in first and any(field in value for field in _THREAD_FIELDS))


def rows_of(value: Any, session: str) -> Iterator[Found]:
    """Yield the messages of a value; those of a thread or session with its id."""
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        yield from each_message([value], _row)
        return
    id_ = next((value[name] for name in _IDS if value.get(name)), session)
    for row in each_message(messages, _row):
        own = isinstance(row, dict) and any(row.get(name) for name in _IDS)
        yield row | {"session_id": id_} if isinstance(row, dict) and not own else row


def _row(message: dict[str, Any]) -> dict[str, Any]:
    return message | {"role_type": "user"} if message.get("role_type") == _NO_ROLE else message


FORMAT = Format(name="zep", kind="messages of Zep", recognizes=recognizes, rows_of=rows_of, names_of=names_of)
