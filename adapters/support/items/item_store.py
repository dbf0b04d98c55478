"""The items in the log of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from mnemolog.adapters.support.items.batch import Batch, Scorer
from mnemolog.adapters.support.store_access import clock_of, encoder_of, log_of, open_tables
from mnemolog.domain.item_events import ItemPut
from mnemolog.domain.items import items_stream, join_namespace
from mnemolog.domain.position import Position
from mnemolog.projections.recall.similarity import Similarity
from mnemolog.projections.sql.item_tables import FILE, ItemTables, StoredItem
from mnemolog.store import MemoryStore

Texts = Callable[[Mapping[str, Any], Sequence[str] | None], Sequence[str]]
"""Returns the texts to compare with queries, from a value and its paths (None: those of the store)."""


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
        self._log, self._clock = log_of(store), clock_of(store)
        self.tables = open_tables(store, FILE, ItemTables)
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
        batch = Batch(self.tables, find_scorer, now=self._clock.now())
        self.tables.catch_up()
        yield batch
        if events := batch.events():
            self._log.transact(lambda tx: [tx.append(stream, event) for stream, event in events])

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

        def score(query: str, found: Sequence[StoredItem]) -> list[float | None]:
            texts = [[text for text in self._texts(item.value, item.paths) if text.strip()] for item in found]
            return self._similarity.scores(encoder, query, texts, read_in=read_in)

        return score
