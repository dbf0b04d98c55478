"""mem0 without a language model: `infer=False`, its default Qdrant on disk, the model behind its OpenAI interface."""

import os
from pathlib import Path

os.environ |= {"MEM0_TELEMETRY": "False", "OPENAI_API_KEY": "none"}

from mem0 import Memory as Mem0

from benchmarks.mechanisms.embedding_service import embedding_url
from benchmarks.mechanisms.protocol import Memory, Model


class Adapter(Memory):
    """A user is `user_id`, a session `run_id`."""

    package = "mem0ai"
    keyed = False
    how = {
        "retry": "`add` takes no id",
        "correction": '`update(memory_id)`: "Mem0 overwrites the stored value"; `history` has what was there',
        "revocation": "no filter by source but metadata; `delete` of each: gone, and cannot be taken back",
        "erasure": "`delete_all(user_id=)`; https://docs.mem0.ai/core-concepts/memory-operations/delete",
        "another model": "another model in `embedder`",
        "index drift": "vectors are rows of Qdrant's local database, which has no index apart",
        "touched": "cells of both databases",
        "two processes": "Qdrant's folder is for one process: the second is refused; its server takes more",
        "cost": "the model is asked over HTTP on this machine",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        service = {"model": model.name, "openai_base_url": embedding_url() + "/v1", "api_key": "none"}
        place = {"path": str(folder / "qdrant"), "on_disk": True, "embedding_model_dims": model.width}
        config = {
            "vector_store": {"provider": "qdrant", "config": place},
            "embedder": {"provider": "openai", "config": service | {"embedding_dims": model.width}},
            "history_db_path": str(folder / "history.db"),
        }
        self._store = Mem0.from_config(config)
        self._ids: dict[tuple[str, str], str] = {}

    def close(self) -> None:
        self._store.vector_store.client.close()
        self._store.close()

    def add(self, user, text, *, session="s", source="x", key=None):
        about = {"user_id": user, "run_id": session, "metadata": {"source": source}, "infer": False}
        return self._store.add([{"role": "user", "content": text}], **about)["results"][0]["id"]

    def _all(self, user, **where):
        found = self._store.get_all(filters={"user_id": user} | where, top_k=100_000)["results"]
        return sorted(found, key=lambda item: item["created_at"])

    def texts(self, user):
        return [item["memory"] for item in self._all(user)]

    def find(self, user, question, k, *, session=None):
        where = {"user_id": user} | ({} if session is None else {"run_id": session})
        return [item["memory"] for item in self._store.search(question, top_k=k, filters=where)["results"]]

    def set(self, user, subject, text):
        if (user, subject) in self._ids:
            self._store.update(self._ids[user, subject], text=text)
        else:
            self._ids[user, subject] = self.add(user, text)

    def get(self, user, subject):
        return self._store.get(self._ids[user, subject])["memory"]

    def history(self, user, subject):
        changes = self._store.history(self._ids[user, subject])
        return [str(change["old_memory"]) for change in changes] + [str(change["new_memory"]) for change in changes]

    def distrust(self, user, source):
        for item in self._all(user, source=source):
            self._store.delete(item["id"])

    def erase(self, user):
        self._store.delete_all(user_id=user)
