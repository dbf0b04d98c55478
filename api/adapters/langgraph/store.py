"""A store as LangGraph's long-term memory: items by namespace and key, in the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from mnemolog.adapters.langgraph.items import FILE, ItemTables, StoredItem
from mnemolog.adapters.langgraph.matching import fits, matches
from mnemolog.adapters.langgraph.similarity import Similarity
from mnemolog.aio.lanes import Lanes
from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.events import Event
from mnemolog.domain.item_events import ItemDeleted, ItemPut, ItemTouched
from mnemolog.domain.items import SEPARATOR, items_stream, join_namespace, new_item
from mnemolog.domain.position import Micros
from mnemolog.seam import clock_of, encoder_of, log_of, open_tables
from mnemolog.store import MemoryStore

TOUCHES_A_LIFE: Final = 20
"""How often, at most, the uses of an item are written down while it lives: an expiry is exact to a twentieth of it."""
WHOLE: Final = "$"
"""The path of the whole item."""


class MnemologStore(BaseStore):
    """Items in the log of a store, for any thread and session. Blocking and asyncio; many threads and processes.

    All that a `batch` puts is one append; what it reads is as it was before. Expired items are never given out. Where
    the store has a model, `search` with a query ranks by it; `fields` are the paths that items are found by.

    Raises `InvalidInput` and `LimitExceeded` (`ITEM_BYTES_MAX`, 1 MiB an item), and what every append raises: nothing
    was written.
    """

    supports_ttl = True

    def __init__(self, store: MemoryStore, *, fields: Sequence[str] = (WHOLE,), ttl: TTLConfig | None = None) -> None:
        self.ttl_config = ttl
        self._store, self._fields = store, list(fields)
        self._log, self._clock = log_of(store), clock_of(store)
        self._tables = open_tables(store, FILE, ItemTables)
        self._similarity = Similarity(self._tables.database)
        self._lanes = Lanes()

    def close(self) -> None:
        """Let go of the files. The store stays open."""
        self._lanes.end()
        self._tables.database.close()

    def __enter__(self) -> MnemologStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what is asked, all reads before all writes, and the writes as one append. Results are in order."""
        asked, now = list(ops), self._clock.now()
        self._tables.catch_up()
        used: dict[tuple[str, str], StoredItem] = {}
        results = [self._read(op, now, used) for op in asked]
        puts = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}  # The last one of a key counts.
        events = [event for op in puts.values() for event in self._put(op, now)]
        events += [event for item in used.values() for event in _touch(item, now)]
        if events:
            self._log.transact(lambda tx: [tx.append(stream, event) for stream, event in events])
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `batch`."""
        asked = list(ops)
        searches = any(isinstance(op, SearchOp) and op.query for op in asked)
        writes = any(isinstance(op, PutOp) for op in asked)
        if searches and writes:  # What calls a model may be cut short, an append never.
            found = await self.abatch([op for op in asked if not isinstance(op, PutOp)])
            await self.abatch([op for op in asked if isinstance(op, PutOp)])
            left = iter(found)
            return [None if isinstance(op, PutOp) else next(left) for op in asked]
        do = self._lanes.write if writes else self._lanes.recall if searches else self._lanes.read
        return await do(partial(self.batch, asked))

    def positions(self, namespace: Sequence[str]) -> list[int]:
        """Return the log positions of all values that a namespace ever had: what is to be forgotten to erase it."""
        stream = items_stream(join_namespace(namespace))
        events = self._log.read_stream(stream, upto=self._log.head().position)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, ItemPut)]

    def sweep_ttl(self) -> int:
        """Delete what has expired from the tables, where it takes room and is seen by nobody. Return how many items.

        The log keeps it until it is forgotten.
        """
        self._tables.catch_up()
        return self._tables.sweep(now=self._clock.now())

    def _read(self, op: Op, now: Micros, used: dict[tuple[str, str], StoredItem]) -> Result:
        match op:
            case GetOp():
                found = self._tables.find(join_namespace(op.namespace), op.key, now=now)
                if found is not None and op.refresh_ttl:
                    used[found.namespace, found.key] = found
                return None if found is None else Item(**_fields(found))
            case SearchOp():
                hits = self._search(op, now)
                if op.refresh_ttl:
                    used |= {(item.namespace, item.key): item for item, _ in hits}
                return [SearchItem(**_fields(item), score=score) for item, score in hits]
            case ListNamespacesOp():
                return self._namespaces(op, now)
            case PutOp():
                return None
        raise errors.InvalidInput("op", f"{type(op).__name__} is no operation of a store")

    def _search(self, op: SearchOp, now: Micros) -> list[tuple[StoredItem, float | None]]:
        """Return items that fit, best first where there is a query and a model, else those put last first."""
        prefix, end = join_namespace(op.namespace_prefix), op.offset + op.limit
        encoder = encoder_of(self._store) if op.query else None
        some = end if encoder is None and not op.filter else None
        found = [item for item in self._tables.below(prefix, now=now, limit=some) if fits(item.value, op.filter)]
        if encoder is None or op.query is None:
            return [(item, None) for item in found[op.offset : end]]
        scores = self._similarity.scores(encoder, op.query, [self._texts(item) for item in found])
        ranked = sorted(zip(found, scores, strict=True), key=lambda hit: (hit[1] is None, -(hit[1] or 0.0)))
        return ranked[op.offset : end]

    def _texts(self, item: StoredItem) -> list[str]:
        paths = self._fields if item.paths is None else item.paths
        parsed = [path if path == WHOLE else tokenize_path(path) for path in paths]
        return [text for path in parsed for text in get_text_at_path(item.value, path) if text.strip()]

    def _namespaces(self, op: ListNamespacesOp, now: Micros) -> list[tuple[str, ...]]:
        found = {tuple(name.split(SEPARATOR)) for name in self._tables.namespaces(now=now)}
        fitting = {name for name in found if all(matches(name, asked) for asked in op.match_conditions or ())}
        return sorted({name[: op.max_depth] for name in fitting})[op.offset : op.offset + op.limit]

    def _put(self, op: PutOp, now: Micros) -> list[tuple[str, Event]]:
        namespace = join_namespace(op.namespace)
        if not namespace:
            raise errors.InvalidInput("namespace", "empty")
        stream = items_stream(namespace)
        if op.value is None:
            known = self._tables.find(namespace, op.key, now=now)
            return [] if known is None else [(stream, ItemDeleted(key=op.key))]
        paths = [] if op.index is False else op.index
        ttl_s = None if op.ttl is None else op.ttl * 60
        return [(stream, new_item(key=op.key, value=op.value, paths=paths, ttl_s=ttl_s, now=now))]


def _touch(item: StoredItem, now: Micros) -> list[tuple[str, Event]]:
    """Return what says that an item lives longer, unless that was said a moment ago."""
    if item.ttl_s is None or item.expires_at is None:
        return []
    life = round(item.ttl_s * 1_000_000)
    if now + life - item.expires_at < life / TOUCHES_A_LIFE:
        return []
    return [(items_stream(item.namespace), ItemTouched(key=item.key, expires_at=now + life))]


def _fields(item: StoredItem) -> dict[str, Any]:
    return {
        "namespace": tuple(item.namespace.split(SEPARATOR)),
        "key": item.key,
        "value": item.value,
        "created_at": to_datetime(item.created_at),
        "updated_at": to_datetime(item.updated_at),
    }
