"""Lians in a process, over SQLite; a user is an agent and the subject of what it says."""

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

os.environ |= {"EMBEDDING_PROVIDER": "local"}

from lians import LocalLiansClient

from benchmarks.mechanisms.protocol import Memory, Model


def _changed(folder: Path, statement: str) -> int:
    """Change the eighth row: content is encrypted, so it is not found by its text."""
    with sqlite3.connect(folder / "lians.db") as rows:
        changed = rows.execute(statement).rowcount
    rows.close()
    return changed


class Adapter(Memory):
    """Its own vectors of words: its package names no other model that needs no download."""

    package = "lians-sdk"
    models = False
    keyed = False
    how = {
        "retry": "idempotency keys are of the server's HTTP interface, not of the local client",
        "correction": "`metadata` with `ticker` and `metric`, the keys by which facts supersede: `fact_history`",
        "as of": "`recall_at`",
        "erasure": "`erase(subject_id, request_ref)`: the key of the subject is destroyed",
        "another model": "`embedding_provider=` names services, or a model to be downloaded: not tried here",
        "index drift": "vectors are in rows of the same database",
        "touched": "the content of a row, and a row; `verify_chain` is about its log of events",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        self._store = LocalLiansClient(db_path=str(folder / "lians.db"), embedding_provider="local")

    def close(self) -> None:
        self._store.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        said = {"content": text, "subject_id": user, "source": source, "metadata": {"session": session}}
        self._store.add(agent_id=user, event_time=datetime.now(UTC), **said)

    def _all(self, user):
        return self._store.snapshot(user, datetime.now(UTC), limit=100_000)["items"]

    def texts(self, user):
        return [item["content"] for item in self._all(user) if item["content"]]

    def _found(self, found):
        return [item["content"] for item in found["memories"] if item["content"]]

    def find(self, user, question, k, *, session=None):
        where = None if session is None else {"session": session}
        return self._found(self._store.recall(user, question, k=k, filters=where))

    def set(self, user, subject, text):
        owner, thing = subject.split("/")
        metadata = {"ticker": owner, "metric": thing}
        self._store.add(user, text, datetime.now(UTC), subject_id=user, metadata=metadata)

    def history(self, user, subject):
        owner, thing = subject.split("/")
        return [item["content"] or "" for item in self._store.fact_history(user, owner, thing)]

    def moment(self):
        return datetime.now(UTC)

    def find_as_of(self, user, question, k, moment):
        return self._found(self._store.recall_at(user, question, moment, k=k))

    def erase(self, user):
        self._store.erase(user, request_ref="r1")

    @staticmethod
    def edit(folder, text, other):
        flipped = "CAST(substr(content_encrypted, 1, 20) || x'00' || substr(content_encrypted, 22) AS BLOB)"
        return _changed(folder, f"UPDATE memories SET content_encrypted = {flipped} WHERE rowid = 8")

    @staticmethod
    def remove(folder, text):
        return _changed(folder, "DELETE FROM memories WHERE rowid = 8")

    def check(self):
        found = self._store.verify_chain()
        return [] if found["status"] == "ok" else [str(problem) for problem in found["violations"]]
