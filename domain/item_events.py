"""The events of a namespace of items: keyed documents that agents share across threads and sessions.

A namespace lies in a stream of its own (`mnemolog.domain.items`).
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, ClassVar

import msgspec

from mnemolog.domain.event import Event, Moment


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


ITEM_EVENTS: tuple[type[Event], ...] = (ItemPut, ItemTouched, ItemDeleted)
