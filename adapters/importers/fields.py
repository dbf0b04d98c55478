"""The mapping from the fields of a JSON Lines file to the parts of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mnemolog.domain.errors import InvalidInput

DEFAULT_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text", "content"),
    "role": ("role",),
    "session": ("session",),
    "session_title": ("session_title", "session_name", "title"),
    "scope": ("scope",),
    "agent": ("agent",),
    "speaker": ("speaker",),
    "key": ("key", "id"),
    "time": ("time", "timestamp"),
    "tool_calls": ("tool_calls",),
    "metadata": ("metadata",),
}
"""By target, the default names: the first field that exists is used."""

_ONE_SOURCE: Final = frozenset({"role"})
_FIELD: Final = "field"


class FieldMap(msgspec.Struct, frozen=True):
    """By target, the fields that are joined to it, in order. Targets without an entry keep their defaults."""

    sources: dict[str, tuple[str, ...]] = {}

    def option(self) -> str:
        """Return this map as an option for `parse_field_map`."""
        return ",".join(f"{target}={'+'.join(names)}" for target, names in self.sources.items())

    def names(self, target: str) -> tuple[str, ...]:
        """Return the names of the fields of a target."""
        return self.sources.get(target) or DEFAULT_FIELDS[target]


DEFAULT_MAP: Final = FieldMap()


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

    def __init__(self, fields: FieldMap) -> None:
        self._fields = fields
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

    def _plan(self, row: dict[str, Any]) -> list[_Target]:
        """Return the targets that a row with these fields can fill: most rows of a file have the same fields."""
        targets = []
        for name in DEFAULT_FIELDS:
            there = [field for field in self._fields.names(name) if field in row or _first_step(field) in row]
            if there:
                targets.append(_Target(name, there, joins=name in self._fields.sources))
        return targets


class _Target:
    """Finds the fields of one target.

    Fields from a map are joined; of the default names the first with a value is used.
    """

    def __init__(self, name: str, fields: list[str], *, joins: bool) -> None:
        self.name = name
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
