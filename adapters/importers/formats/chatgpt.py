"""`conversations.json` of a ChatGPT export: an array of conversations, each a tree of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from mnemolog.adapters.importers.format import Format
from mnemolog.adapters.importers.times import parse_time
from mnemolog.adapters.importers.turn import ImportedTurn, as_label, checked_turn, text_or_none
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.limits import quoted
from mnemolog.domain.message_content import content_text
from mnemolog.domain.role import Role, parse_role
from mnemolog.infra.text_file import BrokenDocument, TextSource, decode, elements

# Thoughts of the model and settings of the user: not part of the conversation.
_NOT_SAID: Final = frozenset(
    {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}
)


def read(source: TextSource) -> Iterator[ImportedTurn]:
    """Yield the messages on the visible branch of each conversation.

    The whole file is held in memory as bytes, but only one conversation at a time is decoded.
    """
    if source.is_blank:
        return
    data = source.document()
    try:
        conversations = elements(data) if source.is_array else [data]
    except BrokenDocument as error:
        raise ImportRefused(source.path, error.line, str(error)) from error
    ordinal = done = 0
    for number, conversation in enumerate(conversations, start=1):
        try:
            value = decode(conversation)
            name = _conversation_id(value, source.stem, number)
            messages = _shown(value)
        except InvalidInput as error:
            source.refuse(ordinal + 1, f"conversation {number}: {error}")
        else:
            for message in messages:
                ordinal += 1
                try:
                    turn = _turn(source, ordinal, name, as_label(_title(value)), message)
                except InvalidInput as error:
                    source.refuse(ordinal, f"message {ordinal}, in conversation {quoted(name)}: {error}")
                else:
                    if turn is not None:
                        yield turn
        done += len(conversation)
        source.tell(done * source.size // max(1, len(data)))
    source.tell(source.size)


def _conversation_id(value: object, stem: str, number: int) -> str:
    if not isinstance(value, dict):
        raise InvalidInput("conversation", f"expected an object, got {type(value).__name__}")
    for field in ("conversation_id", "id"):
        if (name := text_or_none(field, value.get(field))) is not None:
            return name
    return f"{stem}-{number}"


def _title(conversation: dict[str, Any]) -> str | None:
    title = conversation.get("title")
    return title if isinstance(title, str) else None


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


def _turn(
    source: TextSource, ordinal: int, session: str, title: str | None, message: dict[str, Any]
) -> ImportedTurn | None:
    """Return the turn, None for a message that is hidden or not part of the conversation. Raises `InvalidInput`."""
    author, content = _object(message, "author"), _object(message, "content")
    metadata = _object(message, "metadata")
    text = _text(content)
    if not text or text.isspace() or metadata.get("is_visually_hidden_from_conversation"):
        return None
    role = parse_role(author.get("role")).value
    if role == Role.SYSTEM:
        return None
    kept = {"model": metadata.get("model_slug"), "recipient": message.get("recipient")}
    if kept["recipient"] == "all":
        del kept["recipient"]
    name = author.get("name")
    return checked_turn(
        path=source.path,
        line=ordinal,
        where=f"message {ordinal}",
        session=session,
        session_title=title,
        role=role,
        speaker=as_label(name) if isinstance(name, str) else None,
        text=text,
        key=text_or_none("id", message.get("id")) or "",
        said_at=parse_time("create_time", message.get("create_time")),
        metadata={name: value for name, value in kept.items() if value},
    )


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


FORMAT = Format(
    name="chatgpt",
    kind="conversations.json of a ChatGPT export",
    recognizes=lambda value: isinstance(value, dict) and isinstance(value.get("mapping"), dict),
    read=read,
    mapping={
        "text": ["content.parts"],
        "role": ["author.role"],
        "session": ["conversation_id"],
        "session_title": ["title"],
        "speaker": ["author.name"],
        "key": ["id"],
        "time": ["create_time"],
        "metadata": ["model_slug, recipient"],
    },
)
