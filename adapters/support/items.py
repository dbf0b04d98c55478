"""Items: JSON objects by namespace and key, with expiry, filters and similarity, for any thread and session.

For frameworks with a document store for agents. Independent of frameworks: adapters convert items
(docs/adapters/README.md).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from mnemolog.adapters.support.store_access import encoder_of, log_of, open_tables
from mnemolog.domain import errors
from mnemolog.domain.events import Event
from mnemolog.domain.items import (
    SEPARATOR,
    ItemDeleted,
    ItemPut,
    ItemTouched,
    Pattern,
    fits,
    items_stream,
    join_namespace,
    new_item,
)
from mnemolog.domain.values import Micros, Position, to_datetime
from mnemolog.projections.recall.similarity import Similarity
from mnemolog.projections.sql import item_tables
from mnemolog.store import MemoryStore

__all__ = ["Batch", "Item", "Items", "Pattern"]

Scorer = Callable[[str, Sequence[item_tables.StoredItem]], Sequence[float | None]]
"""Returns how similar items are to a query, as `Item.score`."""

TOUCHES_A_LIFE: Final = 20
"""Maximum number of recorded uses per lifetime of an item: expiry is exact to a twentieth of the lifetime."""
Texts = Callable[[Mapping[str, Any], Sequence[str] | None], Sequence[str]]
"""Returns the texts to compare with queries, from a value and its paths (None: those of the store)."""


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


def item_of(stored: item_tables.StoredItem, *, score: float | None = None) -> Item:
    """Return the item for a stored one."""
    return Item(
        namespace=tuple(stored.namespace.split(SEPARATOR)),
        key=stored.key,
        value=stored.value,
        created_at=to_datetime(stored.created_at),
        updated_at=to_datetime(stored.updated_at),
        score=score,
    )


class Batch:
    """Operations on items at one moment. Created by `Items.batch`, which appends the writes at the end."""

    def __init__(self, connection: sa.Connection, find_scorer: Callable[[], Scorer | None], *, now: Micros) -> None:
        self._connection = connection
        self._find_scorer = find_scorer
        self._now = now
        self._puts: dict[tuple[str, str], list[tuple[str, Event]]] = {}
        self._used: dict[tuple[str, str], item_tables.StoredItem] = {}

    def get(self, namespace: Sequence[str], key: str, *, refresh: bool = True) -> Item | None:
        """Return an item, or None. `refresh` extends its lifetime, if it has one.

        Raises `InvalidInput`, `LimitExceeded` for an invalid namespace, as all methods do.
        """
        found = item_tables.find(self._connection, join_namespace(namespace), key, now=self._now)
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
        `mnemolog.domain.items`).
        Raises `InvalidInput`, `ModelUnavailable`, `EncodingFailed`.
        """
        end = offset + limit
        scorer = self._find_scorer() if query else None
        some = end if scorer is None and not where else None
        below = item_tables.below(self._connection, join_namespace(prefix), now=self._now, limit=some)
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
        names = item_tables.namespaces(self._connection, now=self._now)
        found = {tuple(name.split(SEPARATOR)) for name in names}
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
        there = item_tables.find(self._connection, name, key, now=self._now) is not None
        self._puts[name, key] = [(items_stream(name), ItemDeleted(key=key))] if there else []

    def events(self) -> list[tuple[str, Event]]:
        """Return the events to append, with their streams: writes, and extended lifetimes."""
        put = [event for events in self._puts.values() for event in events]
        return put + [event for item in self._used.values() for event in _touch(item, self._now)]

    def _use(self, found: Sequence[item_tables.StoredItem]) -> None:
        self._used |= {(item.namespace, item.key): item for item in found}


def _named(namespace: Sequence[str]) -> str:
    name = join_namespace(namespace)
    if not name:
        raise errors.InvalidInput("namespace", "empty")
    return name


def _touch(item: item_tables.StoredItem, now: Micros) -> list[tuple[str, Event]]:
    """Return the event that extends the lifetime of an item, unless it was extended a moment ago."""
    if item.ttl_s is None or item.expires_at is None:
        return []
    life = round(item.ttl_s * 1_000_000)
    if now + life - item.expires_at < life / TOUCHES_A_LIFE:
        return []
    return [(items_stream(item.namespace), ItemTouched(key=item.key, expires_at=now + life))]


def whole(value: Mapping[str, Any], paths: Sequence[str] | None) -> Sequence[str]:
    """Return a value as one text: the JSON of all of it or, with paths, of the fields with these names."""
    chosen = value if paths is None else {name: value[name] for name in paths if name in value}
    return [json.dumps(chosen, sort_keys=True, ensure_ascii=False)] if chosen else []


class Items:
    """The items of a store. Safe for many threads and processes. Close it before the store.

    Expired items are never returned, even before a sweep. In a store with a model, a search with a query ranks by
    similarity. Nothing is removed from the log: replaced, deleted and expired values stay in it until they are
    forgotten (`positions`).
    """

    def __init__(self, store: MemoryStore, *, texts: Texts = whole) -> None:
        self._store, self._texts = store, texts
        self._log, self._clock = log_of(store), store.parts.clock
        self.tables = open_tables(store, item_tables.FILE, item_tables.ItemTables)
        """The items as tables, up to the position they have read."""
        self._similarity = Similarity(self.tables.database, epoch=self._log.epoch)

    def close(self) -> None:
        """Close the files. The store stays open."""
        self.tables.database.close()

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Read and write at one moment: reads see the state before, and all writes are one append at the end.

        On an error inside the block, or of the append, nothing is written.
        """
        find_scorer = partial(self._find_scorer, read_in=self._log.epoch())
        now = self._clock.now()
        with self.tables.current() as connection:
            batch = Batch(connection, find_scorer, now=now)
            yield batch
        if events := batch.events():
            self._log.appends.transact(lambda tx: [tx.append(stream, event) for stream, event in events])

    def positions(self, namespace: Sequence[str]) -> list[Position]:
        """Return the log positions of all values that a namespace ever had: forget them to erase it."""
        stream = items_stream(join_namespace(namespace))
        events = self._log.read_stream(stream, upto=self._log.head().position)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, ItemPut)]

    def sweep(self) -> int:
        """Delete expired items from the tables, to save space. Return their number.

        The log keeps them until they are forgotten.
        """
        self.tables.catch_up()
        return self.tables.sweep(now=self._clock.now())

    def _find_scorer(self, *, read_in: int) -> Scorer | None:
        """Return the scorer of items read in a forgetting epoch; None in a store without a model.

        Raises `ModelMismatch`.
        """
        encoder = encoder_of(self._store)
        if encoder is None:
            return None

        def score(query: str, found: Sequence[item_tables.StoredItem]) -> list[float | None]:
            texts = [[text for text in self._texts(item.value, item.paths) if text.strip()] for item in found]
            return self._similarity.scores(encoder, query, texts, read_in=read_in)

        return score
