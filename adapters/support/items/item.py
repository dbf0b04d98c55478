"""An item as it is returned."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from mnemolog.domain.clock import to_datetime
from mnemolog.domain.items import SEPARATOR
from mnemolog.projections.sql.item_tables import StoredItem


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An item that has not expired."""

    namespace: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    """When its key was first set, after the last deletion or expiry. In UTC."""
    updated_at: datetime
    score: float | None = None
    """Cosine similarity of its best text to the query, -1 to 1. None without a query, a model or texts."""


def item_of(stored: StoredItem, *, score: float | None = None) -> Item:
    """Return the item for a stored one."""
    return Item(
        namespace=tuple(stored.namespace.split(SEPARATOR)),
        key=stored.key,
        value=stored.value,
        created_at=to_datetime(stored.created_at),
        updated_at=to_datetime(stored.updated_at),
        score=score,
    )
