"""The items in the log of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from mnemolog.adapters.support.documents.batch import Batch, Scorer
from mnemolog.adapters.support.store_access import clock_of, encoder_of, log_of, open_tables
from mnemolog.domain.item_events import ItemPut
from mnemolog.domain.items import items_stream, join_namespace
from mnemolog.domain.position import Position
from mnemolog.projections.recall.similarity import Similarity
from mnemolog.projections.sql.item_tables import FILE, ItemTables, StoredItem
from mnemolog.store import MemoryStore

Texts = Callable[[Mapping[str, Any], Sequence[str] | None], Sequence[str]]
"""Gives the texts that an item is found by: of its value, at its own paths, or at those of the store for None."""


def whole(value: Mapping[str, Any], paths: Sequence[str] | None) -> Sequence[str]:
    """Return a value as one text, the JSON of all of it or, with paths, of the fields of those names."""
    told = value if paths is None else {name: value[name] for name in paths if name in value}
    return [json.dumps(told, sort_keys=True, ensure_ascii=False)] if told else []


class Items:
    """The items of a store. Safe for many threads and processes; to be closed before the store.

    Expired items are never given out, from that moment on and without a sweep. Where the store has a model, a search
    with a query ranks by it. Nothing is taken out of the log: what was replaced, deleted or has expired stays in it
    until it is forgotten (`positions`).
    """

    def __init__(self, store: MemoryStore, *, texts: Texts = whole) -> None:
        self._store, self._texts = store, texts
        self._log, self._clock = log_of(store), clock_of(store)
        self.tables = open_tables(store, FILE, ItemTables)
        """The items as tables, as far as they have read."""
        self._similarity = Similarity(self.tables.database, epoch=self._log.epoch)

    def close(self) -> None:
        """Let go of the files. The store stays open."""
        self.tables.database.close()

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Read and write at one moment: reads see what was before, and all writes are one append at the end.

        An error inside, and what every append raises, leave nothing written.
        """
        find_scorer = partial(self._find_scorer, read_in=self._log.epoch())
        batch = Batch(self.tables, find_scorer, now=self._clock.now())
        self.tables.catch_up()
        yield batch
        if events := batch.events():
            self._log.transact(lambda tx: [tx.append(stream, event) for stream, event in events])

    def positions(self, namespace: Sequence[str]) -> list[Position]:
        """Return the log positions of all values that a namespace ever had: what is to be forgotten to erase it."""
        stream = items_stream(join_namespace(namespace))
        events = self._log.read_stream(stream, upto=self._log.head().position)
        return [recorded.position for some in events for recorded in some if isinstance(recorded.event, ItemPut)]

    def sweep(self) -> int:
        """Delete what has expired from the tables, where it takes room and is seen by nobody. Return how many items.

        The log keeps it until it is forgotten.
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
