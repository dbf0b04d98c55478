"""Clients of a server, in a process of their own: each sends a request as soon as it has the answer to the last one.

    python -m benchmarks.server_clients URL record|recall FIRST END SECONDS

FIRST and END are the numbers of the clients. They speak HTTP with as little work as possible, so that the server is
measured and not they. The answer is a line of JSON: the time of each request in microseconds, and how many were
answered in all, those of the warm-up too.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import count
from urllib.parse import urlsplit

TEXT = "The ferry to Porto leaves at noon, and tea is served on the upper deck from eleven."
WARM_UP_S = 1.0
QUERIES = ("w17 w404 w3999", "w1 w2", "w1000 w2000 w3000 w12", "w77")


def record(client: int) -> Iterator[tuple[str, dict[str, object]]]:
    for number in count():
        yield f"/v1/sessions/client{client}/turns", {"role": "user", "text": f"{TEXT} {client}/{number}"}


def recall(client: int) -> Iterator[tuple[str, dict[str, object]]]:
    for number in count(client):
        yield "/v1/recall", {"query": QUERIES[number % len(QUERIES)], "k": 5}


KINDS: dict[str, Callable[[int], Iterator[tuple[str, dict[str, object]]]]] = {"record": record, "recall": recall}


class Client(asyncio.Protocol):
    """One connection that asks again and again."""

    def __init__(self, host: str, requests: Iterator[tuple[str, dict[str, object]]], until: float) -> None:
        self._host, self._requests, self._until = host, requests, until
        self._from = time.perf_counter() + WARM_UP_S
        self.times, self.answered = array("d"), 0
        self.done = asyncio.get_running_loop().create_future()
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; after the last one, send the next request."""
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        at = head.lower().index(b"content-length:") + len(b"content-length:")
        if len(body) < int(head[at:].partition(b"\r\n")[0]):
            return
        now = time.perf_counter()
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(RuntimeError(self._received.decode()))
            return
        self.answered += 1
        if self._sent_at >= self._from:
            self.times.append((now - self._sent_at) * 1e6)
        self._received = b""
        if now < self._until:
            self._ask()
        else:
            self._transport.close()
            self.done.set_result(None)

    def _ask(self) -> None:
        path, said = next(self._requests)
        body = json.dumps(said).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: {self._host}\r\ncontent-type: application/json\r\n"
        self._sent_at = time.perf_counter()
        self._transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)  # type: ignore[attr-defined]


async def run(url: str, kind: str, clients: range, seconds: float) -> dict[str, object]:
    where, loop = urlsplit(url), asyncio.get_running_loop()
    until = time.perf_counter() + WARM_UP_S + seconds
    made = [Client(where.netloc, KINDS[kind](number), until) for number in clients]
    for client in made:
        await loop.create_connection(lambda client=client: client, str(where.hostname), int(where.port or 80))  # type: ignore[misc]
    await asyncio.gather(*(client.done for client in made))
    times = [round(took, 1) for client in made for took in client.times]
    return {"times": times, "answered": sum(client.answered for client in made)}


if __name__ == "__main__":
    url, kind, first, end, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(run(url, kind, range(int(first), int(end)), float(seconds)))))
