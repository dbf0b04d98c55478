"""Ways to edit a copy of a log from outside. The live file is never touched: SQLite copies it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from pysqlite3 import dbapi2

from benchmarks.outside.stored_log import COLUMNS, TEXTS, StoredLog
from mnemolog.domain.chain import link
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite.engine import APPEND_ONLY_TRIGGERS, LOG_FILE
from mnemolog.projections.sql import checked_json
from mnemolog.projections.vectors.folders import MANIFEST_FILE, read_manifest


class Tampering:
    """A plain connection to a copy, with the triggers out of the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = dbapi2.connect(path, isolation_level=None)
        self.connection.text_factory = bytes
        for name in APPEND_ONLY_TRIGGERS:
            self.connection.execute(f"DROP TRIGGER {name}")

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()

    def row(self, position: int) -> dict[str, Any]:
        """The stored bytes of an event, texts as bytes."""
        (found,) = self.execute(f"SELECT {', '.join(COLUMNS)} FROM events WHERE position = ?", (position,))
        return dict(zip(COLUMNS, found, strict=True))

    def write(self, at: int, /, **values: Any) -> None:
        """Overwrite columns of an event; texts are given as bytes and need not be UTF-8."""
        columns = ", ".join(f"{name} = {'CAST(? AS TEXT)' if name in TEXTS else '?'}" for name in values)
        self.execute(f"UPDATE events SET {columns} WHERE position = ?", (*values.values(), at))

    def replace_text(self, at: int, old: str, new: str) -> None:
        """Change what a turn says, as somebody would who has the keys."""
        stored = StoredLog(self.path.parent)
        self.write(at, state=stored.restated(self.row(at), lambda text: text.replace(old, new)))

    def recompute_links(self, *, genesis: bytes) -> None:
        """Make the chain fit what the rows say now, as somebody would who knows how it is made."""
        before = genesis
        for (position,) in self.execute("SELECT position FROM events ORDER BY position"):
            row = self.row(position)
            before = link(
                before,
                position,
                row["stream"],
                row["version"],
                row["topic"],
                row["state"],
                row["key"],
                row["recorded_at"],
            )
            self.write(position, digest=before)

    def put_triggers_back(self) -> None:
        """Cover the tracks."""
        for statement in APPEND_ONLY_TRIGGERS.values():
            self.execute(statement)

    def close(self) -> None:
        self.connection.close()


def rewrite_manifest(segment: Path, **fields: Any) -> None:
    """Change what the manifest of a segment says, and seal it anew: nothing about it looks damaged."""
    manifest = msgspec.structs.replace(read_manifest(segment), **fields)
    (segment / MANIFEST_FILE).write_bytes(checked_json.encode(manifest))


def copy_store(log: EventLog, folder: Path) -> Path:
    """Copy a store into `folder`: log and keys with the backup API, the projections' segments as files."""
    folder.mkdir(parents=True)
    for name in (LOG_FILE, KEYS_FILE):
        copy, source = dbapi2.connect(folder / name), dbapi2.connect(log.path.with_name(name))
        source.backup(copy)
        source.close()
        copy.close()
    segments = log.path.parent / "projections" / "vectors"
    if segments.exists():
        shutil.copytree(segments, folder / "projections" / "vectors")
    return folder
