"""Namespaces of items, and the checks of their keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mnemolog.domain.errors import InvalidInput
from mnemolog.domain.item_events import ItemPut
from mnemolog.domain.limits import ITEM_BYTES_MAX, KEY_BYTES_MAX, LABEL_BYTES_MAX, checked_json, checked_text
from mnemolog.domain.position import Micros

_STREAM_PREFIX: Final = "items/"
SEPARATOR: Final = "."
"""Separates the labels of a namespace, which therefore must not contain it."""
TTL_S_MAX: Final = 100 * 366 * 86_400.0
_DEPTH_MAX: Final = 32


def items_stream(namespace: str) -> str:
    """Return the name of the stream that holds the items of a namespace."""
    return _STREAM_PREFIX + namespace


def namespace_of(stream: str) -> str | None:
    """Return the namespace that a stream holds, or None for a stream of another kind."""
    return stream.removeprefix(_STREAM_PREFIX) if stream.startswith(_STREAM_PREFIX) else None


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
    if ttl_s is not None and not 0 <= ttl_s <= TTL_S_MAX:
        raise InvalidInput("ttl", f"{ttl_s} seconds are not between 0 and a hundred years")
    return ItemPut(
        key=checked_text("key", key, bytes_max=KEY_BYTES_MAX),
        value=dict(checked_json("value", dict(value), bytes_max=ITEM_BYTES_MAX)),
        paths=paths,
        ttl_s=ttl_s,
        expires_at=None if ttl_s is None else now + round(ttl_s * 1_000_000),
    )
