"""A store as LangGraph's memory: threads of checkpoints, and items by namespace and key."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
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

from mnemolog.adapters.support.graph_checkpoints import Checkpoint as StoredCheckpoint
from mnemolog.adapters.support.graph_checkpoints import Threads, Typed
from mnemolog.adapters.support.items import Batch, Items, Pattern
from mnemolog.aio.wrappers import WorkerPools, in_read_pool, in_write_pool
from mnemolog.domain import errors
from mnemolog.domain.threads import checked_thread_id
from mnemolog.store import MemoryStore

LISTED_TOGETHER: Final = 50
"""Checkpoints that `alist` reads at once."""


class MnemologSaver(BaseCheckpointSaver[int]):
    """Checkpoints of graphs in the log of a store. Blocking and asyncio; safe for many threads and processes.

    Each checkpoint is one append. It stores only the channels that changed, and of a value only the difference from an
    earlier one. Nothing is removed from the log: deleted and pruned checkpoints are hidden. Serialised by LangGraph's
    own serialiser, without pickle unless you pass one that uses it.

    In addition to the errors that LangGraph documents, methods raise `LimitExceeded` beyond 64 MiB a channel
    (`BLOB_BYTES_MAX`) or 256 MiB a checkpoint (`CHECKPOINT_BYTES_MAX`), `InvalidInput`, and the errors of every append:
    nothing was written.
    """

    def __init__(self, store: MemoryStore, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self.threads = Threads(store)
        self._pools = WorkerPools()
        self._own: MemoryStore | None = None

    @classmethod
    def open(cls, path: str | Path, *, serde: SerializerProtocol | None = None, **how: Any) -> Self:
        """Open the store in the folder `path` for checkpoints only: without a model unless `how` names one.

        Arguments in `how` and errors are those of `MemoryStore.open`. The store is closed with the saver.
        """
        store = MemoryStore.open(path, **{"model": None, **how})
        try:
            saver = cls(store, serde=serde)
        except BaseException:
            store.close()
            raise
        saver._own = store
        return saver

    def close(self) -> None:
        """Close the files. A store that was passed in stays open."""
        self._pools.end()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pools.close(self._release)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as one append. It replaces a checkpoint with the same id."""
        thread, ns = _named(config)
        stored_metadata = get_checkpoint_metadata(config, metadata)
        self.threads.checkpoint(
            thread,
            ns,
            checkpoint["id"],
            parent=get_checkpoint_id(config),
            run=None if (run := stored_metadata.get("run_id")) is None else str(run),
            checkpoint=self._dumps({k: v for k, v in checkpoint.items() if k != "channel_values"}),
            metadata=self._dumps(stored_metadata),
            channels={name: partial(self._dumps, value) for name, value in checkpoint["channel_values"].items()},
            changed=new_versions.keys(),
        )
        return _config(thread, ns, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, as one append. Writes that are stored already are not stored again."""
        thread, ns = _named(config)
        placed = [
            (WRITES_IDX_MAP.get(channel, place), channel, self._dumps(value))
            for place, (channel, value) in enumerate(writes)
        ]
        checkpoint_id = get_checkpoint_id(config)
        if checkpoint_id is None:
            raise errors.InvalidInput(
                "config", "configurable.checkpoint_id is missing: name the checkpoint that the writes belong to"
            )
        self.threads.write(thread, ns, checkpoint_id, task_id, task_path, placed)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, by default the newest of its thread and namespace, or None."""
        found = self.threads.find(*_named(config), get_checkpoint_id(config))
        return None if found is None else self._tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first. `filter` has values that the metadata must have."""
        asked = {} if config is None else config["configurable"]
        thread = asked.get("thread_id")
        found = self.threads.listed(
            thread=None if thread is None else str(thread),
            ns=asked.get("checkpoint_ns"),
            checkpoint_id=asked.get("checkpoint_id") or None,
            before=None if before is None else get_checkpoint_id(before),
            fits=None if not filter else lambda metadata: _has(self.serde.loads_typed(metadata), filter),
        )
        yield from map(self._tuple, islice(found, limit))

    def delete_thread(self, thread_id: str) -> None:
        """Hide all checkpoints and writes of a thread. They stay in the log until they are forgotten."""
        self.threads.delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Hide the checkpoints of runs and the writes after them, as one append.

        Delta channels of the remaining checkpoints are unaffected: they are derived from hidden checkpoints, too.
        """
        self.threads.delete_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy the current content of a thread to another: one small event, regardless of size."""
        self.threads.copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Hide all but the newest checkpoint of each namespace (`keep_latest`), or everything (`delete`).

        Delta channels are unaffected. Raises `InvalidInput` for another strategy.
        """
        names = [str(name) for name in thread_ids]
        if strategy == "keep_latest":
            self.threads.keep_latest(names)
        elif strategy == "delete":
            for name in names:
                self.threads.delete(name)
        else:
            raise errors.InvalidInput("strategy", f"{strategy!r} is neither 'keep_latest' nor 'delete'")

    def positions(self, thread_id: str) -> Sequence[int]:
        """Return the log positions of all content of a thread, hidden or not: forget them to erase it."""
        return self.threads.positions(str(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes to channels before a checkpoint, and the value that they start from."""
        found: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        if not found:
            return {}
        for values, writes in self.threads.history(*_named(config), get_checkpoint_id(config), list(found)):
            for task, name, value in reversed(writes):
                found[name]["writes"].append((task, name, self.serde.loads_typed(value)))
            for name, value in values.items():
                found[name]["seed"] = self.serde.loads_typed(value)
        for history in found.values():
            history["writes"].reverse()
        return found

    @property
    def _of(self) -> Self:  # For the wrappers.
        return self

    aput = in_write_pool(put)
    aput_writes = in_write_pool(put_writes)
    aget_tuple = in_read_pool(get_tuple)
    adelete_thread = in_write_pool(delete_thread)
    adelete_for_runs = in_write_pool(delete_for_runs)
    acopy_thread = in_write_pool(copy_thread)
    aprune = in_write_pool(prune)
    aget_delta_channel_history = in_read_pool(get_delta_channel_history)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """See `list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while page := await self._pools.read(lambda: [*islice(found, LISTED_TOGETHER)]):
            for item in page:
                yield item

    def _tuple(self, found: StoredCheckpoint) -> CheckpointTuple:
        loads = self.serde.loads_typed
        checkpoint: Checkpoint = loads(found.checkpoint)
        checkpoint["channel_values"] = {name: loads(value) for name, value in found.values.items()}
        return CheckpointTuple(
            config=_config(found.thread, found.ns, found.id),
            checkpoint=checkpoint,
            metadata=loads(found.metadata),
            parent_config=None if found.parent is None else _config(found.thread, found.ns, found.parent),
            pending_writes=[(task, channel, loads(value)) for task, channel, value in found.writes],
        )

    def _dumps(self, value: Any) -> Typed:
        return Typed(*self.serde.dumps_typed(value))

    def _release(self) -> None:
        self.threads.close()
        if self._own is not None:
            self._own.close()


def _named(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread and the namespace of a configuration."""
    asked = config.get("configurable", {})
    if asked.get("thread_id") is None:
        raise errors.InvalidInput("config", "configurable.thread_id is missing")
    return checked_thread_id(str(asked["thread_id"])), str(asked.get("checkpoint_ns") or "")


def _config(thread: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _has(metadata: CheckpointMetadata, wanted: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == value for name, value in wanted.items())


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

    def __enter__(self) -> "MnemologStore":
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
