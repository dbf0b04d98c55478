"""LanceDB in a process: one table, vectors of the caller's, no index, since small tables need none."""

from datetime import timedelta
from pathlib import Path

import lancedb
import pyarrow

from benchmarks.mechanisms.protocol import Memory, Model

TEXTS = ("owner", "session", "source", "key", "text")


def quoted(value: str) -> str:
    """Return a text for a filter."""
    return "'" + value.replace("'", "''") + "'"


class Adapter(Memory):
    """A user, a session and a source are columns, by which searches are filtered."""

    package = "lancedb"
    how = {
        "retry": "`merge_insert` on a column of the caller's",
        "correction": "`merge_insert` on a key; the table's earlier versions have what was there",
        "as of": "versions of the table: `checkout`. https://lancedb.github.io/lancedb/python/python/",
        "revocation": "`delete`: it is gone from this version on",
        "erasure": "`delete`, then `optimize(cleanup_older_than=0, delete_unverified=True)`: versions go too",
        "another model": "the width is in the table's schema",
        "index drift": "no index by default",
        "touched": "bytes of data files, where texts are not compressed",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        self._model, self._place = model, lancedb.connect(folder)
        vector = pyarrow.list_(pyarrow.float32(), model.width)
        schema = pyarrow.schema([*((name, pyarrow.string()) for name in TEXTS), ("vector", vector)])
        try:
            self._rows = self._place.open_table("memory")
        except ValueError:
            self._rows = self._place.create_table("memory", schema=schema, exist_ok=True)

    def add(self, user, text, *, session="s", source="x", key=None):
        values = (user, session, source, key or "", text)
        row = dict(zip(TEXTS, values, strict=True)) | {"vector": self._model(text)}
        if key is None:
            self._rows.add([row])
        else:
            self._rows.merge_insert(["owner", "key"]).when_not_matched_insert_all().execute([row])

    def texts(self, user):
        return [row["text"] for row in self._rows.search().where(f"owner = {quoted(user)}").limit(100_000).to_list()]

    def find(self, user, question, k, *, session=None):
        where = f"owner = {quoted(user)}" + ("" if session is None else f" AND session = {quoted(session)}")
        found = self._rows.search(self._model(question)).where(where, prefilter=True).limit(k)
        return [row["text"] for row in found.to_list()]

    def set(self, user, subject, text):
        row = dict(zip(TEXTS, (user, "s", "x", subject, text), strict=True)) | {"vector": self._model(text)}
        merge = self._rows.merge_insert(["owner", "key"])
        merge.when_matched_update_all().when_not_matched_insert_all().execute([row])

    def _held(self, user, subject):
        where = f"owner = {quoted(user)} AND key = {quoted(subject)}"
        return [row["text"] for row in self._rows.search().where(where).limit(1).to_list()]

    def get(self, user, subject):
        return next(iter(self._held(user, subject)), None)

    def history(self, user, subject):
        texts = {}
        for version in self._rows.list_versions():
            self._rows.checkout(version["version"])
            texts |= dict.fromkeys(self._held(user, subject))
        self._rows.checkout_latest()
        return list(texts)

    def moment(self):
        return self._rows.version

    def find_as_of(self, user, question, k, moment):
        self._rows.checkout(moment)
        found = self.find(user, question, k)
        self._rows.checkout_latest()
        return found

    def distrust(self, user, source):
        self._rows.delete(f"owner = {quoted(user)} AND source = {quoted(source)}")

    def erase(self, user):
        self._rows.delete(f"owner = {quoted(user)}")
        self._rows.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
