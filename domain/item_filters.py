"""Filters of items, and patterns of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple

from mnemolog.domain.errors import InvalidInput

ANY_LABEL: Final = "*"

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": eq,
    "$ne": ne,
    "$gt": gt,
    "$gte": ge,
    "$lt": lt,
    "$lte": le,
}
_ORDERING: Final = frozenset({"$gt", "$gte", "$lt", "$lte"})


class Pattern(NamedTuple):
    """The labels that a namespace begins or ends with; `*` stands for any label."""

    labels: tuple[str, ...]
    at_end: bool = False

    def matches(self, namespace: tuple[str, ...]) -> bool:
        """Whether a namespace matches."""
        count = len(self.labels)
        if len(namespace) < count:
            return False
        part = namespace[len(namespace) - count :] if self.at_end else namespace[:count]
        return all(asked in (ANY_LABEL, label) for label, asked in zip(part, self.labels, strict=True))


def fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether an item's value matches a filter: by equality, nested, or by `$eq $ne $gt $gte $lt $lte`.

    Numbers are ordered with numbers only, texts with texts. What cannot be compared does not
    match. Raises `InvalidInput` for an unknown operator.
    """
    return all(_is(value.get(name), asked) for name, asked in (wanted or {}).items())


def _is(found: Any, asked: Any) -> bool:
    if isinstance(asked, Mapping):
        if any(str(name).startswith("$") for name in asked):
            return all(_compares(found, name, than) for name, than in asked.items())
        return isinstance(found, Mapping) and all(_is(found.get(name), than) for name, than in asked.items())
    if isinstance(asked, list | tuple):
        return isinstance(found, list) and len(found) == len(asked) and all(map(_is, found, asked))
    return bool(found == asked)


def _compares(found: Any, operator: str, than: Any) -> bool:
    compare = _OPERATORS.get(operator)
    if compare is None:
        raise InvalidInput("filter", f"{operator!r} is none of {', '.join(_OPERATORS)}")
    if operator not in _ORDERING:
        return compare(found, than)
    numbers = isinstance(found, int | float) and isinstance(than, int | float)
    return (numbers or (isinstance(found, str) and isinstance(than, str))) and compare(found, than)
