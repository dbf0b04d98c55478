"""The mapping from the fields of a JSON Lines file to the parts of a turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import may_tell_role

DEFAULT_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text", "content", "message", "body", "utterance", "value", "parts", "mes"),
    "role": ("role", "role_type"),
    "session": ("session", "session_id", "conversation", "conversation_id", "thread", "thread_id", "chat_id"),
    "session_title": ("session_title", "session_name", "title", "conversation_title"),
    "scope": ("scope",),
    "agent": ("agent", "agent_id"),
    "speaker": ("speaker", "sender", "author", "from", "name", "who"),
    "key": ("key", "id", "message_id", "uuid"),
    "time": ("time", "timestamp", "created_at", "sent_at", "datetime", "date", "when"),
    "tool_calls": ("tool_calls",),
    "metadata": ("metadata",),
}
"""By target, the usual names: the first field that exists is used."""

Names = Mapping[str, Sequence[str]]
"""By target, the fields that may fill it; the first with a value is used."""
OF: Final = "conversation "
"""Begins the names of fields that a message has from the conversation that it is in."""

_INHERITED: Final = ("session", "session_title", "scope", "agent")
_IDS: Final = ("id", "uuid", "key")
_WRAPPERS: Final = ("data", "kwargs", "message")
_ONE_SOURCE: Final = frozenset({"role"})
_FIELD: Final = "field"
_BETWEEN_WORDS: Final = re.compile(r"[\s-]+")


class FieldMap(msgspec.Struct, frozen=True):
    """By target, the fields that are joined to it, in order. Targets without an entry keep their defaults."""

    sources: dict[str, tuple[str, ...]] = {}


DEFAULT_MAP: Final = FieldMap()


def usual_names(fields: Iterable[str]) -> Names:
    """Return by target the fields that have one of its usual names, in any case: `Created At` is `created_at`."""
    plain: dict[str, str] = {}
    for field in fields:
        plain.setdefault(_BETWEEN_WORDS.sub("_", field.strip().lower()), field)
    found = {target: [plain[name] for name in names if name in plain] for target, names in DEFAULT_FIELDS.items()}
    return {target: names for target, names in found.items() if names}


def unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the fields of the object in it that holds the text, as in files of LangChain (`data`)."""
    for name in _WRAPPERS:
        inner = message.get(name)
        if isinstance(inner, dict) and "text" in usual_names(inner):
            outer = {field: value for field, value in message.items() if field != name}
            if isinstance(path := outer.get("id"), list) and path:
                outer |= {"id": None, "type": path[-1]}  # The class of a message of LangChain.
            return outer | inner
    return message


def guessed_names(fields: Iterable[str]) -> Names:
    """Return the usual names among the fields of a message; those of its conversation come after its own."""
    own = usual_names(field for field in fields if not field.startswith(OF))
    around = [field.removeprefix(OF) for field in fields if field.startswith(OF)]
    usual = usual_names(around)
    found = {target: [*own.get(target, ()), *(OF + name for name in usual.get(target, ()))] for target in _INHERITED}
    found["session"] += [OF + name for name in _IDS if name in around]
    return {**own, **found}


def parse_field_map(options: Sequence[str]) -> FieldMap:
    """Return the map that options such as `text=text+caption,session=room+day` describe.

    A name may be a path through objects (`message.content`). Raises `InvalidInput` for a target that does
    not exist or is named twice, and for a target without a field.
    """
    sources: dict[str, tuple[str, ...]] = {}
    for option in options:
        for part in option.split(","):
            target, equals, names = (piece.strip() for piece in part.partition("="))
            fields = tuple(name.strip() for name in names.split("+"))
            if target not in DEFAULT_FIELDS:
                raise InvalidInput(_FIELD, f"{target!r} is not a target; use one of {', '.join(DEFAULT_FIELDS)}")
            if not equals or not all(fields):
                raise InvalidInput(_FIELD, f"{part.strip()!r} names no field; write it like {target}=name or a+b")
            if target in sources:
                raise InvalidInput(_FIELD, f"{target!r} is given twice; join fields with '+'")
            if target in _ONE_SOURCE and len(fields) > 1:
                raise InvalidInput(_FIELD, f"{target!r} takes one field")
            sources[target] = fields
    return FieldMap(sources)


Found = list[tuple[str, Any]]
"""Names and values of the fields that make up a target."""

_PLANS_MAX: Final = 1_000


class Lookup:
    """Finds the fields of every target in the rows of a file."""

    def __init__(self, fields: FieldMap = DEFAULT_MAP, names: Names | None = None) -> None:
        """`names` are those of a format; without them the usual names are used."""
        self._fields, self._names = fields, names
        self._plans: dict[tuple[str, ...], list[_Target]] = {}

    def found(self, row: dict[str, Any]) -> dict[str, Found]:
        """Return for each target the fields with a value. Targets without one are left out."""
        shape = tuple(row)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plan(row)
            if len(self._plans) < _PLANS_MAX:
                self._plans[shape] = plan
        found: dict[str, Found] = {}
        for target in plan:
            if target.only is None:
                if values := target.values(row):
                    found[target.name] = values
            elif (value := row[target.only]) is not None and value != "":
                found[target.name] = [(target.only, value)]
        return found

    def names(self, target: str, row: dict[str, Any]) -> list[str]:
        """Return the fields of a row that may fill a target."""
        return next((found.fields for found in self._plan(row) if found.name == target), [])

    def mapping(self) -> dict[str, str]:
        """Return by target the fields that fill it in the rows so far, such as `date + time` or `text or body`."""
        targets = sorted(
            (target for plan in self._plans.values() for target in plan), key=lambda found: -len(found.fields)
        )
        filled: dict[str, dict[str, None]] = {}
        for target in targets:  # The longest list first: it is in the order in which they are tried.
            filled.setdefault(target.name, {}).update(dict.fromkeys(target.fields))
        glue = {name: " + " if name in self._fields.sources else " or " for name in filled}
        return {name: glue[name].join(filled[name]) for name in DEFAULT_FIELDS if name in filled}

    def unread(self) -> list[str]:
        """Return the fields of the rows so far that fill no target, in their order."""
        fields = [field for plan in self._plans.values() for target in plan for field in target.fields]
        read = {*fields, *map(_first_step, fields)}
        there = dict.fromkeys(name for shape in self._plans for name in shape)
        return [field for field in there if field not in read and not may_tell_role(field)]

    def _plan(self, row: dict[str, Any]) -> list[_Target]:
        """Return the targets that a row with these fields can fill: most rows of a file have the same fields."""
        targets = []
        usual = self._names or guessed_names(row)
        for name in DEFAULT_FIELDS:
            names = self._fields.sources.get(name) or usual.get(name, ())
            there = [field for field in names if field in row or _first_step(field) in row]
            if there:
                targets.append(_Target(name, there, joins=name in self._fields.sources))
        return targets


class _Target:
    """Finds the fields of one target.

    Fields from a map are joined; of the usual names the first with a value is used.
    """

    def __init__(self, name: str, fields: list[str], *, joins: bool) -> None:
        self.name, self.fields = name, fields
        self._paths = [(field, field.split(".") if "." in field else []) for field in fields]
        self._joins = joins
        # The usual case, a tenth of the work: one field, not nested.
        self.only = fields[0] if len(fields) == 1 and not self._paths[0][1] else None

    def values(self, row: dict[str, Any]) -> Found:
        found = []
        for name, path in self._paths:
            value = row.get(name)
            if value is None and path:
                value = _walk(row, path)
            if value is not None and value != "":
                found.append((name, value))
                if not self._joins:
                    break
        return found


def _first_step(field: str) -> str:
    return field.split(".", 1)[0]


def _walk(row: Any, path: list[str]) -> Any:
    for step in path:
        if not isinstance(row, dict):
            return None
        row = row.get(step)
    return row
