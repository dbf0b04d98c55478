"""Which values of a file are in no turn. Each is counted by the name of its field, so that nothing goes in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from mnemolog.adapters.importers.turn import ImportedTurn
from mnemolog.domain.message import may_tell_role

REASONS_MAX: Final = 200
"""Reasons that are counted apart: names of fields may come from users, and be without end."""
MORE: Final = "of other fields"
LONG: Final = 20
"""Characters of a value that, found in a text of a turn, did not get there by chance."""
_FIELD: Final = "field "
_KINDS: Final = ("type", "content_type")
"""What says how its neighbours are read."""
_TEXTS: Final = frozenset(("text", "content", "parts", "message", "payload"))

Leaf = str | int | float | bool


def count(left_out: Counter[str], reasons: Iterable[str]) -> None:
    """Count reasons."""
    for reason in reasons:
        left_out[reason if reason in left_out or len(left_out) < REASONS_MAX else MORE] += 1


def fields(values: Iterable[tuple[str, Leaf]]) -> set[str]:
    """Return the fields of values as reasons, each once."""
    return {_FIELD + path for path, _ in values}


def leaves(value: Any) -> Iterator[tuple[str, Leaf]]:
    """Yield every value within a JSON value that says something, with its path through objects."""
    waiting = [("", value)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{name}" if path else str(name), inner) for name, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [(path, inner) for inner in value]
        elif value is not None and (not isinstance(value, str) or value.strip()):
            yield path, value


def unread(
    value: Any, turns: Collection[ImportedTurn], *, read: Collection[str] = (), also: Iterable[object] = ()
) -> Iterator[tuple[str, Leaf]]:
    """Yield the values in a message that none of its turns has, as `leaves` does.

    `read` are fields that were read whatever became of them, such as a time; `also` are values that were read.
    """
    text = " ".join(_plain(turn.text) for turn in turns)
    kept = {_plain(item) for item in also}
    for turn in turns:
        of_turn = (turn.speaker, turn.session, turn.session_title, turn.scope, turn.agent, turn.role, turn.key)
        kept |= {_plain(item) for item in of_turn} | {_plain(line) for line in (turn.text, *turn.text.splitlines())}
        kept |= {_plain(leaf) for _, leaf in leaves([turn.tool_calls, turn.metadata])}
    for path, leaf in leaves(value):
        first, last = path.partition(".")[0], path.rpartition(".")[2]
        if first in read or path in read or may_tell_role(path) or last in _KINDS:
            continue
        plain = _plain(leaf)
        if plain not in kept and not ((len(plain) >= LONG or first in _TEXTS) and plain in text):
            yield path, leaf


def _plain(value: object) -> str:
    return " ".join(str(value).split())
