"""A store as LangGraph's long-term memory: items by namespace and key, in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
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

from mnemolog.adapters.support.items import Batch, Items, Pattern
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.domain import errors
from mnemolog.store import MemoryStore

WHOLE = "$"
"""The path of the whole item."""
_FIELDS = ("namespace", "key", "value", "created_at", "updated_at")


class MnemologStore(BaseStore):
    """Items in the log of a store, for any thread and session. Blocking and asyncio; many threads and processes.

    All puts of a `batch` are one append; its reads see the state before. Expired items are never returned. In a store
    with a model, `search` with a query ranks by similarity; `fields` are the paths whose text is compared.

    Raises `InvalidInput` and `LimitExceeded` (`ITEM_BYTES_MAX`, 1 MiB an item), and the errors of every append: nothing
    was written.
    """

    supports_ttl = True

    def __init__(self, store: MemoryStore, *, fields: Sequence[str] = (WHOLE,), ttl: TTLConfig | None = None) -> None:
        self.ttl_config = ttl
        self._fields = list(fields)
        self.items = Items(store, texts=self._texts)
        self._pools = WorkerPools()

    def close(self) -> None:
        """Close the files. The store stays open."""
        self._pools.end()
        self.items.close()

    def __enter__(self) -> MnemologStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: all reads before all writes, the writes as one append. Results are in order."""
        with self.items.batch() as batch:
            return [_do(batch, op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """See `batch`."""
        asked = list(ops)
        searches = any(isinstance(op, SearchOp) and op.query for op in asked)
        writes = any(isinstance(op, PutOp) for op in asked)
        if searches and writes:  # A call of a model may be interrupted, an append must not be.
            found = await self.abatch([op for op in asked if not isinstance(op, PutOp)])
            await self.abatch([op for op in asked if isinstance(op, PutOp)])
            left = iter(found)
            return [None if isinstance(op, PutOp) else next(left) for op in asked]
        do = self._pools.write if writes else self._pools.recall if searches else self._pools.read
        return await do(partial(self.batch, asked))

    def positions(self, namespace: Sequence[str]) -> Sequence[int]:
        """Return the log positions of all values that a namespace ever had: forget them to erase it."""
        return self.items.positions(namespace)

    def sweep_ttl(self) -> int:
        """Delete expired items from the tables, to save space. Return their number.

        The log keeps them until they are forgotten.
        """
        return self.items.sweep()

    def _texts(self, value: Mapping[str, Any], paths: Sequence[str] | None) -> list[str]:
        asked = self._fields if paths is None else paths
        parsed = [path if path == WHOLE else tokenize_path(path) for path in asked]
        return [text for path in parsed for text in get_text_at_path(value, path)]


def _do(batch: Batch, op: Op) -> Result:
    match op:
        case GetOp():
            found = batch.get(op.namespace, op.key, refresh=op.refresh_ttl)
            return None if found is None else Item(**{name: getattr(found, name) for name in _FIELDS})
        case SearchOp():
            hits = batch.search(
                op.namespace_prefix,
                query=op.query,
                where=op.filter,
                limit=op.limit,
                offset=op.offset,
                refresh=op.refresh_ttl,
            )
            return [SearchItem(**msgspec.structs.asdict(item)) for item in hits]
        case ListNamespacesOp():
            patterns = [Pattern(tuple(asked.path), asked.match_type == "suffix") for asked in op.match_conditions or ()]
            return batch.namespaces(patterns, depth_max=op.max_depth, limit=op.limit, offset=op.offset)
        case PutOp() if op.value is None:
            return batch.delete(op.namespace, op.key)
        case PutOp():
            paths = [] if op.index is False else op.index
            ttl_s = None if op.ttl is None else op.ttl * 60
            return batch.put(op.namespace, op.key, op.value, paths=paths, ttl_s=ttl_s)
    raise errors.InvalidInput("op", f"{type(op).__name__} is not an operation of a store")
