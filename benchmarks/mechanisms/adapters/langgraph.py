"""LangGraph's store over SQLite, with an index of vectors: a namespace for each user.

Its vectors need an SQLite that loads extensions: pysqlite3 has one.
"""

import uuid
from pathlib import Path

import pysqlite3
from langgraph.store.sqlite import SqliteStore

from benchmarks.mechanisms.protocol import Memory, Model


class Adapter(Memory):
    """Items are looked up by key, and found by the vector of their field `text`."""

    package = "langgraph-checkpoint-sqlite"
    how = {
        "retry": "a key of the caller's: `put` replaces what is there",
        "correction": "`put` under the same key: what was there is gone",
        "revocation": "no filter but equality in `search`; items are listed and deleted, and cannot be taken back",
        "erasure": "`delete` of each item; VACUUM is the caller's, over its own connection",
        "index drift": "vectors are rows of the same database",
        "another model": "another `embed` in `index`; the width is noted by the caller alone",
        "touched": "cells of the database",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._rows = pysqlite3.connect(str(folder / "store.db"), check_same_thread=False, isolation_level=None)
        embed = {"dims": model.width, "embed": lambda texts: [model(text) for text in texts], "fields": ["text"]}
        self._store = SqliteStore(self._rows, index=embed)
        self._store.setup()

    def close(self) -> None:
        self._store.stop_ttl_sweeper()
        self._rows.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        self._store.put((user,), key or uuid.uuid4().hex, {"text": text, "session": session, "source": source})

    def _items(self, user):
        return self._store.search((user,), limit=100_000)

    def texts(self, user):
        return [item.value["text"] for item in sorted(self._items(user), key=lambda item: item.created_at)]

    def find(self, user, question, k, *, session=None):
        where = None if session is None else {"session": session}
        return [item.value["text"] for item in self._store.search((user,), query=question, limit=k, filter=where)]

    def set(self, user, subject, text):
        self.add(user, text, key=subject)

    def get(self, user, subject):
        item = self._store.get((user,), subject)
        return item and item.value["text"]

    def distrust(self, user, source):
        for item in self._store.search((user,), filter={"source": source}, limit=100_000):
            self._store.delete((user,), item.key)

    def erase(self, user):
        for item in self._items(user):
            self._store.delete((user,), item.key)
        self._rows.execute("VACUUM")
