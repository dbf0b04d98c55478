"""JSON of no particular program: an array of turns, or of conversations that hold a list of turns.

A conversation is a list, or an object with a list under a usual name. ShareGPT files have this shape:
`[{"id": "…", "conversations": [{"from": "human", "value": "…"}]}]`
(github.com/lm-sys/FastChat, data/dummy_conversation.json).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from mnemolog.adapters.importers.fields import Names, usual_names
from mnemolog.adapters.importers.format import Format, Found, each_message
from mnemolog.adapters.importers.formats import jsonl

_LISTS: Final = ("messages", "conversation", "conversations", "turns", "dialog", "dialogue", "history", "items", "data")
"""Usual names for the turns of a conversation, or for the conversations of a file."""
_IDS: Final = ("id", "uuid", "key")
_INHERITED: Final = ("session", "session_title", "scope", "agent")
_LEVELS_MAX: Final = 3
"""How deeply conversations may be nested."""
_OF: Final = "conversation "
_NUMBERED: Final = "number"


def recognizes(value: Any) -> bool:
    """Whether a value is a turn under usual names, or a conversation of such turns."""
    turns = _turns_in(value)
    if turns is None:
        return jsonl.recognizes(value)
    return any(jsonl.recognizes(turn) or _turns_in(turn) is not None for turn in turns[:10])


def rows_of(value: Any, session: str, levels: int = _LEVELS_MAX) -> Iterator[Found]:
    """Yield the turns of a value. Turns of a conversation have its id, title, scope and agent."""
    turns = _turns_in(value)
    if turns is None:
        yield from each_message([value], dict)
        return
    if levels and any(_turns_in(turn) is not None for turn in turns):
        for number, inner in enumerate(turns, start=1):
            yield from rows_of(inner, f"{session}-{number}", levels - 1)
        return
    inherited = _inherited(value, session)
    yield from each_message(turns, lambda turn: turn | inherited)


def names_of(fields: Iterable[str]) -> Names:
    """Return the names for a turn; those of its conversation come after its own."""
    own = usual_names(field for field in fields if not field.startswith(_OF))
    conversation = [field.removeprefix(_OF) for field in fields if field.startswith(_OF)]
    usual = usual_names(conversation)
    ids = [name for name in conversation if name in (*_IDS, _NUMBERED)]
    found = {target: [*own.get(target, ()), *(_OF + name for name in usual.get(target, ()))] for target in _INHERITED}
    found["session"] += [_OF + name for name in ids]
    return {**own, **{target: names for target, names in found.items() if names}}


def _turns_in(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or jsonl.recognizes(value):
        return None  # What has a text is a turn, whatever else it holds.
    found = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    return found if found and isinstance(found[0], dict | list) else None


def _inherited(conversation: Any, session: str) -> dict[str, Any]:
    """Return what a conversation says of all its turns; without an id it has the name `session`."""
    found: dict[str, Any] = {_OF + _NUMBERED: session}
    if isinstance(conversation, dict):
        usual = usual_names(conversation)
        names = [*_IDS, *(name for target in _INHERITED for name in usual.get(target, ()))]
        found = {_OF + name: value for name in names if isinstance(value := conversation.get(name), str | int)} | found
    return found


FORMAT = Format(
    name="json",
    kind="a JSON array of turns or of conversations",
    recognizes=recognizes,
    rows_of=rows_of,
    names_of=names_of,
)
