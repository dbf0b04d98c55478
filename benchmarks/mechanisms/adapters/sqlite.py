"""Bare SQLite with numpy: what one writes in an afternoon. A table of texts and vectors, all of them compared."""

import sqlite3
from pathlib import Path

import numpy as np

from benchmarks.mechanisms.protocol import Memory, Model

SCHEMA = """
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, owner TEXT, session TEXT, source TEXT, key TEXT, text TEXT,
    vector BLOB, UNIQUE (owner, key))
"""


class Adapter(Memory):
    """SQLite's defaults. What an application would have to add itself is absent."""

    package = "numpy"
    how = {
        "retry": "a UNIQUE constraint and INSERT OR IGNORE",
        "correction": "UPDATE by key: what was there before is gone",
        "revocation": "DELETE by source: it is gone, and cannot be taken back",
        "erasure": "DELETE, then VACUUM: https://www.sqlite.org/lang_vacuum.html",
        "touched": "cells of the table",
        "index drift": "no index: each search compares all vectors",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._model = model
        self._rows = sqlite3.connect(folder / "texts.db", timeout=30, isolation_level=None, check_same_thread=False)
        self._rows.execute(SCHEMA)

    def close(self) -> None:
        self._rows.close()

    def _vector(self, text: str) -> np.ndarray:
        return np.array(self._model(text), dtype=np.float32)

    def add(self, user, text, *, session="s", source="x", key=None):
        row = (user, session, source, key, text, self._vector(text).tobytes())
        insert = "INSERT OR IGNORE INTO texts (owner, session, source, key, text, vector) VALUES (?, ?, ?, ?, ?, ?)"
        self._rows.execute(insert, row)

    def texts(self, user):
        return [text for (text,) in self._rows.execute("SELECT text FROM texts WHERE owner = ? ORDER BY id", (user,))]

    def find(self, user, question, k, *, session=None):
        where, values = "owner = ?", [user]
        if session is not None:
            where, values = "owner = ? AND session = ?", [user, session]
        rows = self._rows.execute(f"SELECT text, vector FROM texts WHERE {where} ORDER BY id", values).fetchall()
        asked = self._vector(question)
        scores = [float(np.frombuffer(vector, dtype=np.float32) @ asked) for _, vector in rows]
        return [rows[place][0] for place in np.argsort(scores)[::-1][:k]]

    def set(self, user, subject, text):
        values = (user, "s", "x", subject, text, self._vector(text).tobytes())
        upsert = (
            "INSERT INTO texts (owner, session, source, key, text, vector) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (owner, key) DO UPDATE SET text = excluded.text, vector = excluded.vector"
        )
        self._rows.execute(upsert, values)

    def get(self, user, subject):
        row = self._rows.execute("SELECT text FROM texts WHERE owner = ? AND key = ?", (user, subject)).fetchone()
        return row and row[0]

    def distrust(self, user, source):
        self._rows.execute("DELETE FROM texts WHERE owner = ? AND source = ?", (user, source))

    def erase(self, user):
        self._rows.execute("DELETE FROM texts WHERE owner = ?", (user,))
        self._rows.execute("VACUUM")
