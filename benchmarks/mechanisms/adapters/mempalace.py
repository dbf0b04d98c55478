"""MemPalace by the tools that its MCP server gives to an agent; the model behind its interface for such services."""

import contextlib
import io
import os
from pathlib import Path

from benchmarks.mechanisms.embedding_service import embedding_url
from benchmarks.mechanisms.protocol import Memory, Model


class Adapter(Memory):
    """A user is a wing, a session a room, a source a source file. Facts are in its knowledge graph."""

    package = "mempalace"
    how = {
        "retry": "no key: a drawer's id is made of its wing, room and content, so the same text is filed once",
        "correction": "`update_drawer` for what `search` finds, `kg_supersede` for the fact: the graph keeps the old",
        "revocation": "`delete_by_source`: it is gone, and cannot be taken back",
        "erasure": "`delete_drawers`",
        "touched": "cells of its databases",
        "two processes": 'a second writer is refused: "palace is held by PID …; wait for it to finish"',
        "another model": 'another model behind `openai-compat`: "accepted silently; run `mempalace repair '
        'rebuild-index` yourself" (docstring of OpenAICompatEmbeddingFunction)',
        "index drift": "the folders of Chroma's HNSW index",
        "cost": "the model is asked over HTTP on this machine",
        "as of": "`kg_query(as_of=)` is about the graph; `search(before=)` leaves out what was filed later",
    }

    def __init__(self, folder: Path, model: Model) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {
            "HOME": str(folder / "home"),
            "MEMPALACE_PALACE_PATH": str(folder / "palace"),
            "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
            "MEMPALACE_EMBEDDING_API_URL": embedding_url(),
            "MEMPALACE_EMBEDDING_API_MODEL": model.name,
        }
        with contextlib.redirect_stdout(io.StringIO()):
            from mempalace import mcp_server

        self._tools, self._drawer_of = mcp_server, {}
        mcp_server.tool_reconnect()

    @staticmethod
    def _done(answer):
        if isinstance(answer, dict) and (answer.get("error") or answer.get("success") is False):
            raise RuntimeError(str(answer.get("error") or answer)[:300])
        return answer

    def close(self) -> None:
        self._tools.tool_reconnect()

    def add(self, user, text, *, session="s", source="x", key=None):
        return self._done(self._tools.tool_add_drawer(user, session, text, source_file=source))["drawer_id"]

    def _drawers(self, user):
        found, offset = [], 0
        while page := self._done(self._tools.tool_list_drawers(wing=user, limit=100, offset=offset))["drawers"]:
            found, offset = found + page, offset + len(page)
        return found

    def texts(self, user):
        ids = [drawer["drawer_id"] for drawer in self._drawers(user)]
        drawers = [self._done(self._tools.tool_get_drawer(one)) for one in ids]
        return [one["content"] for one in sorted(drawers, key=lambda one: one.get("metadata", {}).get("filed_at", ""))]

    def find(self, user, question, k, *, session=None):
        found = self._done(self._tools.tool_search(question, limit=k, wing=user, room=session))
        return [hit["text"] for hit in found["results"]]

    def set(self, user, subject, text):
        if subject not in self._drawer_of:
            self._drawer_of[subject] = self.add(user, text)
            self._done(self._tools.tool_kg_add(subject, "is", text))
        else:
            self._done(self._tools.tool_kg_supersede(subject, "is", self.get(user, subject), text))
            self._done(self._tools.tool_update_drawer(self._drawer_of[subject], content=text))

    def _facts(self, subject):
        return self._done(self._tools.tool_kg_query(subject, direction="outgoing"))["facts"]

    def get(self, user, subject):
        return next((fact["object"] for fact in self._facts(subject) if fact["current"]), None)

    def history(self, user, subject):
        return [fact["object"] for fact in self._facts(subject)]

    def distrust(self, user, source):
        self._done(self._tools.tool_delete_by_source(source, dry_run=False))

    def erase(self, user):
        self._done(self._tools.tool_delete_drawers([drawer["drawer_id"] for drawer in self._drawers(user)]))

    @staticmethod
    def index(folder):
        return [path for path in sorted((folder / "palace").iterdir()) if path.is_dir() and len(path.name) == 36]
