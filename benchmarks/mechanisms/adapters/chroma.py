"""Chroma's persistent client, one collection for all users, its own defaults."""

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import chromadb
from chromadb.config import Settings

from benchmarks.mechanisms.protocol import Memory, Model


class Embedding(chromadb.EmbeddingFunction):
    """The model, as a collection takes it; with its name, so that Chroma can tell one from another."""

    def __init__(self, name: str = "") -> None:
        self._model = Model.named(name)

    def __call__(self, input):
        return [self._model(text) for text in input]

    @staticmethod
    def name():
        return "hashed"

    def get_config(self):
        return {"name": self._model.name}

    @staticmethod
    def build_from_config(config):
        return Embedding(config["name"])


class Adapter(Memory):
    """A user, a session and a source are metadata, by which queries are filtered."""

    package = "chromadb"
    how = {
        "retry": "an id of the caller's: `add` skips ids that are there",
        "correction": "`upsert` by id: https://docs.trychroma.com/docs/collections/update-data. What was there is gone",
        "revocation": "`delete(where=)`: it is gone, and cannot be taken back",
        "erasure": "`delete(where=)`, then `chroma utils vacuum`: https://docs.trychroma.com/docs/cli/vacuum",
        "another model": "another embedding function at `get_or_create_collection`",
        "index drift": "the folders of the HNSW index beside chroma.sqlite3",
        "touched": "cells of chroma.sqlite3",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        self._folder = folder
        self._client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
        self._rows = self._client.get_or_create_collection("memory", embedding_function=Embedding(model.name))

    def close(self) -> None:
        self._client.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        row = {"user": user, "session": session, "source": source}
        self._rows.add(ids=[key or uuid.uuid4().hex], documents=[text], metadatas=[row])

    def texts(self, user):
        return self._rows.get(where={"user": user})["documents"]

    def find(self, user, question, k, *, session=None):
        where = {"user": user}
        if session is not None:
            where = {"$and": [{"user": user}, {"session": session}]}
        return self._rows.query(query_texts=[question], n_results=k, where=where)["documents"][0]

    def set(self, user, subject, text):
        self._rows.upsert(ids=[f"{user}/{subject}"], documents=[text], metadatas=[{"user": user}])

    def get(self, user, subject):
        return next(iter(self._rows.get(ids=[f"{user}/{subject}"])["documents"]), None)

    def distrust(self, user, source):
        self._rows.delete(where={"$and": [{"user": user}, {"source": source}]})

    def erase(self, user):
        self._rows.delete(where={"user": user})
        program = shutil.which("chroma", path=str(Path(sys.executable).parent))
        self._client.close()
        subprocess.run([program, "vacuum", "--path", self._folder, "--force"], check=True, capture_output=True)

    @staticmethod
    def index(folder):
        return [path for path in sorted(folder.iterdir()) if path.is_dir()]
