"""Hermes' real agent, with a model that repeats its input: `python -m tests.adapters.hermes.real_agent`.

Prints as JSON the last message of each request that came to the model. Hermes' home is in HERMES_HOME.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from run_agent import AIAgent

SENT: list[Any] = []


class Model(BaseHTTPRequestHandler):
    """An endpoint in the manner of OpenAI."""

    def log_message(self, *about):
        pass

    def do_GET(self):
        self.answer({"data": [{"id": "fake", "context_length": 200_000}]})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "messages" not in asked:  # Hermes asks what kind of endpoint it is.
            self.send_error(404)
            return
        SENT.append(asked["messages"][-1]["content"])
        message = {"role": "assistant", "content": f"You said: {SENT[-1]}"}
        choice = {"index": 0, "message": message, "delta": message, "finish_reason": "stop"}
        about = {"id": "x", "created": 1, "model": "fake", "choices": [choice]}
        if asked.get("stream"):
            chunk = json.dumps({"object": "chat.completion.chunk", **about})
            self.answer(f"data: {chunk}\n\ndata: [DONE]\n\n", kind="text/event-stream")
        else:
            self.answer({"object": "chat.completion", **about})

    def answer(self, body, kind="application/json"):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def converse(address: str, session: str, *messages: str) -> None:
    """One agent, from its start to its end."""
    agent = AIAgent(
        base_url=f"{address}/v1",
        api_key="none",
        model="fake",
        quiet_mode=True,
        enabled_toolsets=["memory"],
        skip_context_files=True,
        platform="cli",
        session_id=session,
    )
    history: list[Any] = []
    for message in messages:
        history = agent.run_conversation(message, conversation_history=history)["messages"]
    agent.shutdown_memory_provider(history)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    where = f"http://127.0.0.1:{server.server_port}"
    converse(where, "monday", "My dog Nero hates the stairs.", "Good night.")
    converse(where, "tuesday", "Which stairs does Nero hate?")
    print(json.dumps(SENT))
