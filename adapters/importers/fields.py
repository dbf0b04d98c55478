"""The mapping from the fields of a JSON Lines file to the parts of a turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.message import folded, role_of

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

_USUAL: Final = {target: tuple(map(folded, names)) for target, names in DEFAULT_FIELDS.items()}


FieldMap = Mapping[str, tuple[str, ...]]
"""By target, the fields that are joined to it, in order. Targets without an entry keep their defaults."""
DEFAULT_MAP: Final[FieldMap] = {}


def usual_names(fields: Iterable[str]) -> Names:
    """Return by target the fields that have one of its usual names, in any style: `createdAt` is `created_at`."""
    plain: dict[str, str] = {}
    for field in fields:
        plain.setdefault(folded(field), field)
    found = {target: [plain[name] for name in names if name in plain] for target, names in _USUAL.items()}
    return {target: names for target, names in found.items() if names}


def unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the fields of the object in it that holds the text, as in files of LangChain (`data`)."""
    for name in ("data", "kwargs", "message"):
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
    found = {
        target: [*own.get(target, ()), *(OF + name for name in usual.get(target, ()))]
        for target in ("session", "session_title", "scope", "agent")
    }
    found["session"] += [OF + name for name in ("id", "uuid", "key") if name in around]
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
                raise InvalidInput("field", f"{target!r} is not a target; use one of {', '.join(DEFAULT_FIELDS)}")
            if not equals or not all(fields):
                raise InvalidInput("field", f"{part.strip()!r} names no field; write it like {target}=name or a+b")
            if target in sources:
                raise InvalidInput("field", f"{target!r} is given twice; join fields with '+'")
            if target == "role" and len(fields) > 1:
                raise InvalidInput("field", f"{target!r} takes one field")
            sources[target] = fields
    return sources


Found = list[tuple[str, Any]]
"""Names and values of the fields that make up a target."""

PLANS_MAX: Final = 1_000


class Lookup:
    """Finds the fields of every target in the rows of a file."""

    def __init__(self, fields: FieldMap = DEFAULT_MAP, names: Names | None = None) -> None:
        """`names` are those of a format; without them the usual names are used."""
        # A word for a role is the role of all rows, also where a field has that name.
        is_constant = role_of(*fields.get("role", ("",))) is not None
        self._fields = {name: at for name, at in fields.items() if name != "role"} if is_constant else fields
        self._names = names
        self._plans: dict[tuple[str, ...], dict[str, list[str]]] = {}

    def found(self, row: dict[str, Any]) -> dict[str, Found]:
        """Return for each target the fields with a value. Targets without one are left out.

        Fields from a map are joined; of the usual names the first with a value is used.
        """
        shape = tuple(row)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self.plan(row)
            if len(self._plans) < PLANS_MAX:
                self._plans[shape] = plan
        found: dict[str, Found] = {}
        for target, fields in plan.items():
            values = [(field, value) for field in fields if (value := _value(row, field)) not in (None, "")]
            if values:
                found[target] = values if target in self._fields else values[:1]
        return found

    def mapping(self) -> dict[str, str]:
        """Return by target the fields that fill it in the rows so far, such as `date + time` or `text or body`."""
        plans = sorted((item for plan in self._plans.values() for item in plan.items()), key=lambda item: -len(item[1]))
        filled: dict[str, dict[str, None]] = {}
        for target, fields in plans:  # The longest list first: it is in the order in which they are tried.
            filled.setdefault(target, {}).update(dict.fromkeys(fields))
        glue = {name: " + " if name in self._fields else " or " for name in filled}
        return {name: glue[name].join(filled[name]) for name in DEFAULT_FIELDS if name in filled}

    def plan(self, row: dict[str, Any]) -> dict[str, list[str]]:
        """Return by target the fields that may fill it in such rows."""
        usual = self._names or guessed_names(row)
        plan = {name: self._fields.get(name) or usual.get(name, ()) for name in DEFAULT_FIELDS}
        by_name = {folded(field): field for field in row}
        there: dict[str, list[str]] = {}
        for target, names in plan.items():
            for name in names:
                first, dot, rest = name.partition(".")
                field = name if name in row or first in row else by_name.get(folded(name))
                if field is None and (outer := by_name.get(folded(first))) is not None:
                    field = f"{outer}{dot}{rest}"
                if field is not None:
                    there.setdefault(target, []).append(field)
        return there


def _value(row: dict[str, Any], field: str) -> Any:
    """Return the value of a field, which may be a path, None if there is none."""
    value = row.get(field)
    return value_at(row, field.split(".")) if value is None and "." in field else value


def value_at(value: Any, path: Iterable[str]) -> Any:
    """Return the value at a path through objects, whatever the style of its names, None if there is none."""
    for step in path:
        if not isinstance(value, dict):
            return None
        value = value[step] if step in value else _in_other_style(value, step)
    return value


def _in_other_style(row: dict[str, Any], name: str) -> Any:
    plain = folded(name)
    return next((value for field, value in row.items() if folded(field) == plain), None)
