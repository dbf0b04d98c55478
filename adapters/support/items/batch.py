"""A batch of reads and writes of items: reads see the state before, writes are one append."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mnemolog.adapters.support.items.item import Item, item_of
from mnemolog.domain import errors
from mnemolog.domain.events import Event
from mnemolog.domain.item_events import ItemDeleted, ItemTouched
from mnemolog.domain.item_filters import Pattern, fits
from mnemolog.domain.items import SEPARATOR, items_stream, join_namespace, new_item
from mnemolog.domain.position import Micros
from mnemolog.projections.sql.item_tables import ItemTables, StoredItem

Scorer = Callable[[str, Sequence[StoredItem]], Sequence[float | None]]
"""Returns how similar items are to a query, as `Item.score`."""

TOUCHES_A_LIFE: Final = 20
"""Maximum number of recorded uses per lifetime of an item: expiry is exact to a twentieth of the lifetime."""


class Batch:
    """Operations on items at one moment. Created by `Items.batch`, which appends the writes at the end."""

    def __init__(self, tables: ItemTables, find_scorer: Callable[[], Scorer | None], *, now: Micros) -> None:
        self._tables, self._find_scorer, self._now = tables, find_scorer, now
        self._puts: dict[tuple[str, str], list[tuple[str, Event]]] = {}
        self._used: dict[tuple[str, str], StoredItem] = {}

    def get(self, namespace: Sequence[str], key: str, *, refresh: bool = True) -> Item | None:
        """Return an item, or None. `refresh` extends its lifetime, if it has one.

        Raises `InvalidInput`, `LimitExceeded` for an invalid namespace, as all methods do.
        """
        found = self._tables.find(join_namespace(namespace), key, now=self._now)
        if found is None:
            return None
        self._use([found] if refresh else [])
        return item_of(found)

    def search(
        self,
        prefix: Sequence[str] = (),
        *,
        query: str | None = None,
        where: Mapping[str, Any] | None = None,
        limit: int = 10,
        offset: int = 0,
        refresh: bool = True,
    ) -> list[Item]:
        """Return items of a namespace and of all below it: `limit` items after the first `offset`.

        With a `query`, in a store with a model, the most similar come first: all matching items are compared, and texts
        without a vector are embedded. Otherwise the newest come first. `where` is a filter (see
        `mnemolog.domain.item_filters`).
        Raises `InvalidInput`, `ModelUnavailable`, `EncodingFailed`.
        """
        end = offset + limit
        scorer = self._find_scorer() if query else None
        some = end if scorer is None and not where else None
        below = self._tables.below(join_namespace(prefix), now=self._now, limit=some)
        found = [item for item in below if fits(item.value, where)]
        scores: Sequence[float | None] = [None] * len(found)
        if scorer is not None and query is not None:
            scores = scorer(query, found)
        ranked = sorted(zip(found, scores, strict=True), key=lambda hit: (hit[1] is None, -(hit[1] or 0.0)))
        hits = ranked[offset:end]
        self._use([item for item, _ in hits] if refresh else [])
        return [item_of(item, score=score) for item, score in hits]

    def namespaces(
        self,
        patterns: Sequence[Pattern] = (),
        *,
        depth_max: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[tuple[str, ...]]:
        """Return the namespaces that have items and match every pattern, in order, cut to `depth_max` labels."""
        found = {tuple(name.split(SEPARATOR)) for name in self._tables.namespaces(now=self._now)}
        fitting = {name for name in found if all(pattern.matches(name) for pattern in patterns)}
        return sorted({name[:depth_max] for name in fitting})[offset : offset + limit]

    def put(
        self,
        namespace: Sequence[str],
        key: str,
        value: Mapping[str, Any],
        *,
        paths: Sequence[str] | None = None,
        ttl_s: float | None = None,
    ) -> None:
        """Set the value of a key. The last of several in a batch wins.

        `paths` are the fields to compare with queries, instead of those of the store; an empty list excludes the item
        from ranking. It expires `ttl_s` seconds after its last use, or never. Raises `InvalidInput`, `LimitExceeded`
        (`ITEM_BYTES_MAX`, 1 MiB): nothing of the batch is written.
        """
        name, own = _named(namespace), None if paths is None else list(paths)
        put = new_item(key=key, value=value, paths=own, ttl_s=ttl_s, now=self._now)
        self._puts[name, key] = [(items_stream(name), put)]

    def delete(self, namespace: Sequence[str], key: str) -> None:
        """Delete a key. Appends nothing if it does not exist."""
        name = _named(namespace)
        there = self._tables.find(name, key, now=self._now) is not None
        self._puts[name, key] = [(items_stream(name), ItemDeleted(key=key))] if there else []

    def events(self) -> list[tuple[str, Event]]:
        """Return the events to append, with their streams: writes, and extended lifetimes."""
        put = [event for events in self._puts.values() for event in events]
        return put + [event for item in self._used.values() for event in _touch(item, self._now)]

    def _use(self, found: Sequence[StoredItem]) -> None:
        self._used |= {(item.namespace, item.key): item for item in found}


def _named(namespace: Sequence[str]) -> str:
    name = join_namespace(namespace)
    if not name:
        raise errors.InvalidInput("namespace", "empty")
    return name


def _touch(item: StoredItem, now: Micros) -> list[tuple[str, Event]]:
    """Return the event that extends the lifetime of an item, unless it was extended a moment ago."""
    if item.ttl_s is None or item.expires_at is None:
        return []
    life = round(item.ttl_s * 1_000_000)
    if now + life - item.expires_at < life / TOUCHES_A_LIFE:
        return []
    return [(items_stream(item.namespace), ItemTouched(key=item.key, expires_at=now + life))]
