"""Which values of a file are in no turn. Each is counted by the name of its field, so that nothing goes in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final

import msgspec

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.message import may_tell_role

REASONS_MAX: Final = 200
"""Reasons that are counted apart: names of fields may come from users, and be without end."""
FIELDS_KEPT_MAX: Final = 10_000
MORE: Final = "of other fields"
LONG: Final = 20
"""Characters of a value that, found in a text of a turn, did not get there by chance."""
FIELD: Final = "field "
_KINDS: Final = ("type", "content_type")
"""What says how its neighbours are read."""
_TEXTS: Final = frozenset(("text", "content", "parts", "message", "payload"))

Leaf = str | int | float | bool


def count(left_out: Counter[str], reasons: Iterable[str]) -> None:
    """Count reasons."""
    for reason in reasons:
        left_out[reason if reason in left_out or len(left_out) < REASONS_MAX else MORE] += 1


class Turns:
    """What the turns of one message hold. `also` are values that were read beside."""

    def __init__(self, turns: Sequence[ImportedTurn], also: Iterable[object] = ()) -> None:
        self._words: set[object] = set(also)
        self.objects, self._text = list[Any](), "\n".join([turn.text for turn in turns])
        self._lines, self._values = set[str](), set[str]()
        for turn in turns:
            self._words |= {turn.speaker, turn.session, turn.session_title, turn.scope, turn.agent, turn.role, turn.key}
            self.objects += filter(None, (turn.metadata, turn.tool_calls))

    def hold(self, word: str, is_text: bool) -> bool:
        """Whether a text is a value of a turn, a line of its text, or a part of it that is not there by chance."""
        if word in self._words:
            return True
        is_part, is_inside = is_text or len(word) >= LONG, word in self._text
        if is_inside and is_part:
            return True
        if is_inside or " " in word or "\n" in word:  # Perhaps a line, or a part with other spaces.
            word = " ".join(word.split())
            self._lines = self._lines or {" ".join(line.split()) for line in (self._text, *self._text.splitlines(), "")}
            if word in self._lines or (is_part and word in " ".join(self._text.split())):
                return True
        if self.objects and not self._values:
            self._values = {" ".join(str(leaf).split()) for leaf in _leaves(self.objects)}
        return word in self._values


def _leaves(value: Any) -> Iterator[Any]:
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list | tuple):
            yield from _leaves(inner)
        else:
            yield inner


class _Field(msgspec.Struct):
    path: str = ""
    is_read: bool = False
    is_kind: bool = False
    is_text: bool = False
    below: dict[str, _Field] = {}


class Walk:
    """Walks over the values of messages. `read` are fields that are read whatever becomes of them, such as a time."""

    def __init__(self, read: Collection[str] = ()) -> None:
        self._read = read
        self._top = _Field()
        self._kept = 0

    def unread(self, value: Any, turns: Turns | None = None, taken: Container[Any] = ()) -> list[tuple[str, Leaf]]:
        """Return the values that the turns do not hold, each with the reason that counts its field.

        Without turns, what is in `taken` is held.
        """
        found, waiting = list[tuple[str, Leaf]](), [(self._top, value)]
        for at, container in waiting:  # It grows.
            inside = container.items() if isinstance(container, dict) else zip(repeat(None), container)
            for name, inner in inside:
                if inner is None or inner == "":
                    continue
                field = at if name is None else at.below.get(name) or self._below(at, name)
                if field.is_read or (turns is None and inner in taken):
                    continue
                if isinstance(inner, dict | list | tuple):
                    if turns is None or inner not in turns.objects:
                        waiting.append((field, inner))
                elif not field.is_kind and not (
                    isinstance(inner, str) and (inner.isspace() or (turns and turns.hold(inner, field.is_text)))
                ):
                    found.append((FIELD + field.path, inner))
        return found

    def _below(self, at: _Field, name: str) -> _Field:
        path = f"{at.path}.{name}" if at.path else str(name)
        made = _Field(
            path,
            is_read=path in self._read,
            is_kind=may_tell_role(path) or name in _KINDS,
            is_text=at.is_text or path in _TEXTS,
        )
        if self._kept < FIELDS_KEPT_MAX:  # Names may be without end.
            self._kept += 1
            at.below[name] = made
        return made


EVERYTHING: Final = Walk()
