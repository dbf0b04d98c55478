"""Conversations that are trees: an edited prompt or a repeated answer begins a branch; one was shown last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from mnemolog.adapters.importers.turn import DAMAGED, DUPLICATE, OTHER_BRANCH


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
