"""A database as Chroma's persistent client leaves it, without Chroma."""

from __future__ import annotations

import sqlite3
from pathlib import Path

TABLES = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT NOT NULL, dimension INTEGER, database_id TEXT NOT NULL);
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT NOT NULL, scope TEXT NOT NULL, collection TEXT NOT NULL);
CREATE TABLE embeddings (
    id INTEGER PRIMARY KEY, segment_id TEXT NOT NULL, embedding_id TEXT NOT NULL, seq_id BLOB NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE (segment_id, embedding_id)
);
CREATE TABLE embedding_metadata (
    id INTEGER REFERENCES embeddings(id), key TEXT NOT NULL, string_value TEXT, int_value INTEGER, float_value REAL,
    bool_value INTEGER, PRIMARY KEY (id, key)
);
"""
"""From chromadb/migrations, sysdb and metadb."""


def chroma_database(path: Path) -> None:
    """Create the database of two collections, with a vector that has no document."""
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        for number, name in enumerate(("notes", "chats"), start=1):
            database.execute("INSERT INTO collections VALUES (?, ?, 384, 'default')", (f"c{number}", name))
            kind = "urn:chroma:segment/metadata/sqlite"
            database.execute("INSERT INTO segments VALUES (?, ?, 'METADATA', ?)", (f"s{number}", kind, f"c{number}"))
        rows = [("s1", "n1"), ("s2", "m1"), ("s2", "m2"), ("s2", "bare")]
        database.executemany("INSERT INTO embeddings (segment_id, embedding_id, seq_id) VALUES (?, ?, 1)", rows)
        metadata = [
            (1, "chroma:document", "Rex is a dog.", None, None, None),
            (1, "page", None, 3, None, None),
            (1, "checked", None, None, None, 1),
            (2, "chroma:document", "I moved to Lisbon.", None, None, None),
            (2, "session_id", "trip", None, None, None),
            (2, "role", "user", None, None, None),
            (3, "chroma:document", "Congratulations!", None, None, None),
            (3, "session_id", "trip", None, None, None),
            (3, "role", "assistant", None, None, None),
            (4, "role", "user", None, None, None),
        ]
        database.executemany("INSERT INTO embedding_metadata VALUES (?, ?, ?, ?, ?, ?)", metadata)
    database.close()
