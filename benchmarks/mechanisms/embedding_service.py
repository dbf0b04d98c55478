"""The model behind an interface like OpenAI's, for memories that take nothing else: a thread, on this machine alone."""

from __future__ import annotations

import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.mechanisms.protocol import Model


class Answers(BaseHTTPRequestHandler):
    """POST /v1/embeddings; which model is in the request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer with the vectors of `input`."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, texts = Model.named(asked["model"]), asked["input"]
        texts = [texts] if isinstance(texts, str) else texts
        rows = [{"object": "embedding", "index": place, "embedding": model(text)} for place, text in enumerate(texts)]
        body = json.dumps({"object": "list", "data": rows, "model": model.name, "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@cache
def embedding_url() -> str:
    """Start it, once for a process, and return its address, without `/v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"
