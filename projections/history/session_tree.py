"""The tree of sessions and their branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mnemolog.projections.read_models import SessionSummary

LEVELS_MAX: Final = 100
"""Levels of one tree. A chain of a thousand sessions, each branched from the last, fits no page and no JSON."""


class SessionNode(SessionSummary, frozen=True, kw_only=True):
    """A session with those that were branched from it, in the order they were started."""

    children: tuple[SessionNode, ...] = ()


def tree(sessions: Sequence[SessionSummary]) -> list[SessionNode]:
    """Return the roots among `sessions` with all the others below them, in the order they were started.

    A root is a session without a parent, one whose parent is not among `sessions` (a scope may leave it
    out), and one that would lie deeper than `LEVELS_MAX`: its `parent` still says where it belongs.
    """
    in_order = sorted(sessions, key=lambda item: item.started_position)
    level: dict[str, int] = {}
    for item in in_order:  # A parent comes before its children; what does not is no parent.
        above = 0 if item.parent is None else level.get(item.parent, 0)
        level[item.session] = 1 if above == LEVELS_MAX else above + 1
    children: dict[str, list[SessionNode]] = {item.session: [] for item in in_order}
    roots: list[SessionNode] = []
    for item in reversed(in_order):
        below = tuple(reversed(children[item.session]))
        node = SessionNode(**msgspec.structs.asdict(item), children=below)
        if item.parent is None or level[item.session] == 1:
            roots.append(node)
        else:
            children[item.parent].append(node)
    return roots[::-1]
