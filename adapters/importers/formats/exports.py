"""Exports of ChatGPT and claude.ai: conversations that are trees, of which one branch was shown last."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.turn import (
    DAMAGED,
    DUPLICATE,
    NOT_SAID,
    OF,
    OTHER_BRANCH,
    Conversation,
    Format,
    LeftOut,
    as_label,
    beside,
    shared_by,
)
from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import Role, calls_in, content_text, parse_role


class Node(msgspec.Struct, frozen=True):
    """A place in a conversation. Links to other nodes may be missing, or lead nowhere."""

    message: Any
    """None for a node without one; anything else that is not an object counts as damaged."""
    parent: Any = None
    children: Any = None


def shown(nodes: Mapping[str, Node], current: object) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the messages that were shown last, in order, and what is left out by reason.

    Those are the messages from the root to the node `current`. In a tree that is cut, each part that hangs together has
    such a branch; a part without a valid current node ends with the last child of each node that leads to a message.
    """
    up, down = _links(nodes)
    said = {name for name, node in nodes.items() if isinstance(node.message, dict)}
    leads = set[str]()
    for name in said:
        leads.update(_walk(name, lambda at: None if up.get(at) in leads else up.get(at)))

    def last_child(at: str) -> str | None:
        return next((child for child in reversed(down.get(at, {})) if child in leads), None)

    roots = [name for name in dict.fromkeys((*nodes, *up.values())) if name not in up]
    branches = []
    for part in _parts((*roots, *nodes), up, down):
        to_current = _walk(current, up.get)[::-1] if isinstance(current, str) and current in part else []
        ways = [[name for name in way if name in said] for way in (to_current, _walk(part[0], last_child))]
        if any(ways):
            branches.append(ways[0] or ways[1])
    messages = [nodes[name].message for branch in _in_order(nodes, branches) for name in branch]
    broken = sum(not (node.message is None or isinstance(node.message, dict)) for node in nodes.values())
    missing = sum(name not in nodes for name in {*up, *roots})
    if roots and not nodes.keys() & set(roots):
        missing -= 1  # Exports of claude.ai name a root that they do not have.
    return messages, Counter({OTHER_BRANCH: len(said) - len(messages), DAMAGED: broken + missing})


def _parts(names: Iterable[str], up: Mapping[str, str], down: Mapping[str, Mapping[str, None]]) -> Iterator[list[str]]:
    """Yield the nodes of each part that hangs together, its root first."""
    seen = set[str]()
    for name in names:
        if name not in seen:
            part = [_walk(name, up.get)[-1]]  # Parents may form a circle: then it is a node of that.
            for at in part:  # It grows.
                seen.add(at)
                part += [child for child in down.get(at, ()) if child not in seen]
            yield part


def _in_order(nodes: Mapping[str, Node], branches: Sequence[list[str]]) -> list[list[str]]:
    """Return branches by the times of their first messages; by their places, if one has no time."""
    place = {name: number for number, name in enumerate(nodes)}
    times = {branch[0]: nodes[branch[0]].message.get("create_time") for branch in branches}
    timed = all(isinstance(time, int | float) for time in times.values())
    return sorted(branches, key=lambda branch: times[branch[0]] if timed else place[branch[0]])


def shown_of(
    messages: Iterable[Any], links: tuple[str, str], current: object
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return what `shown` does, of a list of messages: `links` are the fields with a message's id and its parent's."""
    nodes, twice = dict[str, Node](), 0
    for number, message in enumerate(messages):
        name, parent = map(message.get, links) if isinstance(message, dict) else (None, None)
        if isinstance(name, str) and name in nodes:
            if nodes[name].message == message:
                twice += 1
                continue
            name, parent = None, None  # The same message, changed.
        nodes[name if isinstance(name, str) and name else f"message {number}"] = Node(message or 0, parent)
    found, left_out = shown(nodes, current)
    return found, left_out + Counter({DUPLICATE: twice})


def _links(nodes: Mapping[str, Node]) -> tuple[dict[str, str], dict[str, dict[str, None]]]:
    """Return by name the parent and the children. Each link is in two places, so that one of them may be missing."""
    up = {name: node.parent for name, node in nodes.items() if isinstance(node.parent, str) and node.parent}
    down: dict[str, dict[str, None]] = {}
    for name, node in nodes.items():
        for child in node.children if isinstance(node.children, list) else ():
            if isinstance(child, str) and up.setdefault(child, name) == name:
                down.setdefault(name, {})[child] = None
    for name, parent in up.items():
        down.setdefault(parent, {})[name] = None
    return up, down


def _walk(at: str | None, following: Any) -> list[str]:
    """Return the names from one to the next, each once: a damaged tree may have a circle."""
    path: dict[str, None] = {}
    while at is not None and at not in path:
        path[at] = None
        at = following(at)
    return list(path)


def _tree(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation of ChatGPT."""
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
    recognizes=lambda value: isinstance(value, dict) and isinstance(value.get("mapping"), dict),
    expected=("mapping", "expected an object of nodes"),
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


def _chat_messages(value: Any, session: str) -> Iterator[Conversation]:
    """Yield the visible branch of a conversation of claude.ai."""
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
    recognizes=lambda value: isinstance(value, dict) and isinstance(value.get("chat_messages"), list),
    expected=("chat_messages", "expected an object with a list of messages"),
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
