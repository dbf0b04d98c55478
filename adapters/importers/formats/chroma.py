"""Documents of Chroma: the folder of a persistent client, or what `collection.get()` returned, saved as JSON.

The tables are those of github.com/chroma-core/chroma, chromadb/migrations (sysdb and metadb): a collection has
segments, a segment has embeddings, and what is known of an embedding is in `embedding_metadata`, the document under the
key `chroma:document`. The JSON has the fields of `GetResult`: `ids`, `documents`, `metadatas`. Vectors are not read.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from mnemolog.adapters.importers.fields import usual_names
from mnemolog.adapters.importers.format import Conversation, Format, Message
from mnemolog.adapters.importers.turn import EMPTY
from mnemolog.domain.errors import ImportRefused, InvalidInput
from mnemolog.domain.role import Role
from mnemolog.infra.runtime.regular_files import open_file

DATABASE: Final = "chroma.sqlite3"
_MAGIC: Final = b"SQLite format 3\0"
_DOCUMENT: Final = "chroma:document"
_FROM_METADATA: Final = ("role", "session", "session_title", "scope", "agent", "speaker", "time")
"""Parts of a turn that the metadata may have under usual names."""
_TABLES: Final = {"collections", "segments", "embeddings", "embedding_metadata"}
_QUERY: Final = """
SELECT e.id, e.embedding_id, c.name, m.key,
       coalesce(m.string_value, m.int_value, m.float_value, m.bool_value), m.bool_value IS NOT NULL
FROM embeddings e
JOIN segments s ON s.id = e.segment_id
JOIN collections c ON c.id = s.collection
JOIN embedding_metadata m ON m.id = e.id
ORDER BY c.name, e.id, m.key
"""


def recognizes(value: Any) -> bool:
    """Whether a value is the result of `collection.get()`."""
    if not isinstance(value, dict) or not isinstance(value.get("ids"), list):
        return False
    return any(isinstance(value.get(field), list) for field in ("documents", "metadatas"))


def _conversations(value: Any, _session: str) -> Iterator[Conversation]:
    """Yield the records."""
    if not recognizes(value):
        raise InvalidInput("ids", "expected the result of collection.get(): lists of ids, documents and metadatas")
    ids = value["ids"]
    if ids and isinstance(ids[0], list):
        raise InvalidInput("ids", "expected the result of collection.get(), not of collection.query()")
    documents, metadatas = (
        found if isinstance(found := value.get(field), list) else [None] * len(ids)
        for field in ("documents", "metadatas")
    )
    if not len(ids) == len(documents) == len(metadatas):
        raise InvalidInput("ids", f"{len(ids)} ids, {len(documents)} documents and {len(metadatas)} metadatas")
    records = list(map(_record, ids, documents, metadatas))
    with_text = [record for record in records if record["document"] or record.get("data")]
    yield Conversation(with_text, left_out={EMPTY: len(records) - len(with_text)})


def database_in(path: Path) -> Path | None:
    """Return the database of a folder of Chroma, or the file itself if it is a database of SQLite.

    Raises `ImportRefused` for any other folder.
    """
    if path.is_dir():
        if not (path / DATABASE).is_file():
            raise ImportRefused(path, 1, f"this is a folder without {DATABASE}; name the files in it")
        return path / DATABASE
    if not path.is_file():
        return None  # A pipe would wait for a writer.
    try:
        with open_file(path, follow=True) as file:
            return path if file.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None  # Reading it as text reports why.


def database_messages(path: Path) -> Generator[Message, None, None]:
    """Yield the records of all collections, by collection and in the order of insertion.

    The database is opened read-only. Raises `ImportRefused` if it is not one of Chroma or cannot be read.
    """
    # In WAL mode, even a reader creates files beside the database, unless the database is declared immutable.
    unused = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    try:
        connection = sqlite3.connect(f"file:{quote(os.fsencode(path.absolute()))}?mode=ro{unused}", uri=True)
        try:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables >= _TABLES:
                raise ImportRefused(path, 1, "this database of SQLite is not one of Chroma; export it as CSV or JSON")
            for number, row in enumerate(_records(connection), start=1):
                yield Message(number, f"document {number}", row)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise ImportRefused(path, 1, f"the database of Chroma cannot be read: {error}") from error


def _records(connection: sqlite3.Connection) -> Iterator[dict[str, Any]]:
    for (_, id_, collection), rows in groupby(connection.execute(_QUERY), itemgetter(0, 1, 2)):
        metadata = {key: bool(value) if is_bool else value for *_, key, value, is_bool in rows}
        yield _record(id_, metadata.pop(_DOCUMENT, None), metadata) | {"collection": collection}


def _record(id_: Any, document: Any, metadata: Any) -> dict[str, Any]:
    """Return the fields of a record. mem0 keeps its texts under `data`, in the metadata."""
    known = {key: value for key, value in metadata.items() if value is not None} if isinstance(metadata, dict) else {}
    usual = usual_names(known)
    named = ((target, name) for target in _FROM_METADATA for name in reversed(usual.get(target, ())))
    parts = {target: known[name] for target, name in named if known[name] != ""}
    return known | parts | {"id": id_, "document": document, "metadata": known or None}


FORMAT: Final = Format(
    name="chroma",
    kind="a folder of Chroma, or the result of collection.get()",
    recognizes=recognizes,
    fields={
        "text": ["document", "data"],
        "key": ["id"],
        "session": ["session", "collection"],
        **{target: [target] for target in _FROM_METADATA if target != "session"},
        "metadata": ["metadata"],
    },
    role=Role.USER,
    conversations=_conversations,
)
