"""Items: keyed documents that agents share across threads and sessions. Each namespace has a stream of its own."""

import sys
from collections.abc import Callable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.event import Event, Moment, named_streams
from mnemolog.domain.values import (
    ITEM_BYTES_MAX,
    LABEL_BYTES_MAX,
    Micros,
    checked_json,
    checked_number,
    checked_text,
)


class ItemPut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a namespace was given a value, in place of what it had."""

    topic: ClassVar[str] = "item.put.v1"

    key: str
    value: dict[str, Any]
    """Any JSON object."""
    paths: list[str] | None = None
    """The fields to index, where they differ from those of the store; empty for an item that is not indexed."""
    ttl_s: Annotated[float, msgspec.Meta(ge=0, le=sys.float_info.max)] | None = None
    """How long it lives after each use, in seconds."""
    expires_at: Moment | None = None
    """When it expires, in microseconds since the Unix epoch; None for never."""


class ItemTouched(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An item was used, which prolongs its life."""

    topic: ClassVar[str] = "item.touched.v1"

    key: str
    expires_at: Moment


class ItemDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a namespace was removed."""

    topic: ClassVar[str] = "item.deleted.v1"

    key: str


items_stream, namespace_of = named_streams("items/")
"""The stream that holds the items of a namespace, and the namespace that a stream holds."""
SEPARATOR: Final = "."
"""Separates the labels of a namespace, which therefore must not contain it."""
TTL_S_MAX: Final = 100 * 366 * 86_400
_DEPTH_MAX: Final = 32


def join_namespace(labels: Sequence[str]) -> str:
    """Return a namespace as text. Raises `InvalidInput`, `LimitExceeded`."""
    if len(labels) > _DEPTH_MAX:
        raise InvalidInput("namespace", f"deeper than {_DEPTH_MAX} labels")
    for label in labels:
        checked_text("namespace", label, bytes_max=LABEL_BYTES_MAX)
        if SEPARATOR in label:
            raise InvalidInput("namespace", f"the label {label!r} holds a period")
    return SEPARATOR.join(labels)


def new_item(
    *, key: str, value: Mapping[str, Any], paths: list[str] | None, ttl_s: float | None, now: Micros
) -> ItemPut:
    """Return the event that gives a key a value, checked. Raises `InvalidInput`, `LimitExceeded`."""
    if not isinstance(value, Mapping):
        raise InvalidInput("value", f"expected a mapping, got {type(value).__name__}")
    if ttl_s is not None:
        checked_number("ttl", ttl_s, most=TTL_S_MAX)
    return ItemPut(
        key=checked_text("key", key),
        value=dict(checked_json("value", dict(value), bytes_max=ITEM_BYTES_MAX)),
        paths=paths,
        ttl_s=ttl_s,
        expires_at=None if ttl_s is None else now + round(ttl_s * 1_000_000),
    )


ANY_LABEL: Final = "*"

_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "$eq": eq,
    "$ne": ne,
    "$gt": gt,
    "$gte": ge,
    "$lt": lt,
    "$lte": le,
}


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
    if operator in ("$eq", "$ne"):
        return compare(found, than)
    numbers = isinstance(found, int | float) and isinstance(than, int | float)
    return (numbers or (isinstance(found, str) and isinstance(than, str))) and compare(found, than)
