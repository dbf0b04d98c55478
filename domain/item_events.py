"""The facts of a namespace of items: keyed documents that agents share across threads and sessions.

A namespace lies in a stream of its own (`mnemolog.domain.items`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from mnemolog.domain.event import Event


class ItemPut(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a namespace was given a value, in place of what it had."""

    topic: ClassVar[str] = "item.put.v1"

    key: str
    value: dict[str, Any]
    """Any JSON object."""
    paths: list[str] | None = None
    """The fields to be found by, where they are not those of the store; none for an item that is not."""
    ttl_s: float | None = None
    """Seconds of life that every use gives anew."""
    expires_at: int | None = None
    """Microseconds since the Unix epoch from which on it is gone; None for never."""


class ItemTouched(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An item was used, and so lives longer."""

    topic: ClassVar[str] = "item.touched.v1"

    key: str
    expires_at: int


class ItemDeleted(Event, frozen=True, kw_only=True, omit_defaults=True):
    """A key of a namespace was removed."""

    topic: ClassVar[str] = "item.deleted.v1"

    key: str


ITEM_EVENTS: tuple[type[Event], ...] = (ItemPut, ItemTouched, ItemDeleted)
