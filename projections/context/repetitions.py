"""Find turns that say the same in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mnemolog.domain.position import Position
from mnemolog.projections.recall.answer import Hit
from mnemolog.projections.sql.words import stems_of, words_of

SAME_STEMS: Final = 0.9
"""Two texts say the same if they share at least this much of all their stems: no less than nine of ten.

A fact that changed has other words or other numbers. Which of two different statements holds takes a reader.
"""
COMPARED_CHARACTERS_MAX: Final = 1_000
"""A longer text repeats only one that is equal to it: statements are short, and a long answer has many."""
NEGATIONS: Final = frozenset(("no", "not", "never", "none", "nothing", "nobody", "without", "cannot", "t"))
"""English words that turn a statement into its opposite (`t` is that of `don't`). Texts must agree in them."""


def repetitions(hits: Sequence[Hit], language: str) -> Mapping[Position, list[Hit]]:
    """Return hits that are repeated later: by the position of the newest of them, the older ones, newest first.

    Only turns of one role, speaker and scope repeat each other: `I live in Porto` means another thing from another
    user. They must agree in every number and every negation.
    """
    alike: dict[object, list[tuple[frozenset[str], list[Hit]]]] = {}
    for hit in hits:
        if len(hit.text) > COMPARED_CHARACTERS_MAX:
            groups = alike.setdefault((hit.role, hit.speaker, hit.scope, hit.text), [(frozenset(), [])])
            groups[0][1].append(hit)
            continue
        decisive = frozenset(word for word in words_of(hit.text) if word in NEGATIONS or any(map(str.isdigit, word)))
        stems = frozenset(stems_of(hit.text, language))
        groups = alike.setdefault((hit.role, hit.speaker, hit.scope, decisive), [])
        for others, group in groups:
            if _same(stems, others):
                group.append(hit)
                break
        else:
            groups.append((stems, [hit]))
    found: dict[Position, list[Hit]] = {}
    for _, group in (group for groups in alike.values() for group in groups if len(group[1]) > 1):
        newest, *older = sorted(group, key=lambda hit: (hit.said_at, hit.position), reverse=True)
        found[newest.position] = older
    return found


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    if min(len(one), len(other)) < SAME_STEMS * max(len(one), len(other), 1):
        return False
    shared = len(one & other)
    return shared >= SAME_STEMS * (len(one) + len(other) - shared)
