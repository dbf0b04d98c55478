"""A request as the ASGI server passes it, and its answer: whole, in parts, or as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from mnemolog.domain.errors import InvalidInput
from mnemolog.server.http.access import Caller
from mnemolog.server.http.connections import RUNNING
from mnemolog.server.http.problems import send_problem

JSON: Final = b"application/json"
JSON_LINES: Final = b"application/jsonl"
EVENT_STREAM: Final = b"text/event-stream"
NO_STORE: Final = (b"cache-control", b"no-store")
REVALIDATED: Final = ((b"cache-control", b"private, no-cache"), (b"vary", b"authorization"))
"""Headers of an answer with an entity tag: the caller may keep it, and asks whether it is still right."""

_NO_QUERY: Final[tuple[tuple[str, str], ...]] = ()


class Exchange:
    """A request and the way to answer it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self._receive, self._send = scope, receive, send
        self.caller: Caller = scope["state"]["caller"]
        self._headers: Iterable[tuple[bytes, bytes]] = scope["headers"]
        self.is_begun = False
        """Whether a part of the answer was sent: then no other answer can be."""

    def header(self, name: bytes) -> bytes:
        """Return the value of a header, empty if there is none."""
        return next((value for found, value in self._headers if found == name), b"")

    def query(self) -> Sequence[tuple[str, str]]:
        """Return names and values of the query. Raises `InvalidInput`."""
        text: bytes = self.scope["query_string"]
        if not text:
            return _NO_QUERY
        try:
            return parse_qsl(text.decode(), keep_blank_values=True, errors="strict", max_num_fields=1_000)
        except ValueError as error:
            raise InvalidInput("query", "is not UTF-8, percent-encoded, of up to 1,000 arguments") from error

    async def body(self) -> bytes:
        """Return the body. Raises `InvalidInput` for one that is not JSON by its type."""
        parts = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise InvalidInput("body", "ended early")
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        found = b"".join(parts)
        if found and self.header(b"content-type").partition(b";")[0].strip().lower() != JSON:
            raise InvalidInput("content-type", "is not application/json")
        return found

    def follow(self) -> dict[str, Any] | None:
        """Count the request as one that follows the log. Return why it is refused as a problem, None if it is not."""
        running = self.scope["state"].get(RUNNING)
        return None if running is None else running.follow()

    def stop_when_gone(self) -> None:
        """Drop the request when its caller hangs up, as those are dropped that read by GET."""
        if (running := self.scope["state"].get(RUNNING)) is not None:
            running.can_stop = True

    async def gone(self) -> None:
        """Return when the caller has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def answer(self, status: int, body: bytes | None, *headers: tuple[bytes, bytes]) -> None:
        """Send a whole answer."""
        self.is_begun = True
        sent = [(b"content-length", str(len(body or b"")).encode()), *headers]
        if body is not None:
            sent.append((b"content-type", JSON))
        await self._send({"type": "http.response.start", "status": status, "headers": sent})
        shown = b"" if body is None or self.scope["method"] == "HEAD" else body
        await self._send({"type": "http.response.body", "body": shown})

    async def refuse(self, members: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> None:
        """Send a problem."""
        self.is_begun = True
        await send_problem(self._send, members, *headers)

    async def begin(self, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
        """Begin an answer that is sent part by part."""
        self.is_begun = True
        sent = [(b"content-type", kind), NO_STORE, *headers]
        await self._send({"type": "http.response.start", "status": 200, "headers": sent})

    async def send(self, part: bytes, *, is_last: bool = False) -> None:
        """Send a part of an answer."""
        message: Message = {"type": "http.response.body", "body": part, "more_body": not is_last}
        await self._send(message)


def sent_event(name: str, data: bytes, *, at: str = "") -> bytes:
    """Return a server-sent event; `at` is its id, with which the caller resumes."""
    return b"%bevent: %b\ndata: %b\n\n" % (f"id: {at}\n".encode() if at else b"", name.encode(), data)
