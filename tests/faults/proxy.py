"""A proxy in front of a server's socket that drops, delays, repeats and cuts what goes through it."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

LATE_S: Final = 0.02
SOCKET: Final = ".s.PGSQL.5432"


class Proxy:
    """Forwards what comes in at `listening` to a new connection to the server, made by `upstream`.

    `arm` has the next message of a client fail.
    """

    def __init__(self, listening: socket.socket, upstream: Callable[[], socket.socket], rng: random.Random) -> None:
        self.upstream, self._rng, self._listening = upstream, rng, listening
        self._listening.listen()
        self._armed: Callable[[Connection, bytes], bool] | None = None
        self._connections: list[Connection] = []
        self.faults: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def arm(self) -> None:
        """Let one of the faults happen to what a client sends next."""
        name = self._rng.choice(list(FAULTS))
        fault = FAULTS[name]

        def happen(connection: Connection, data: bytes) -> bool:
            self.faults[name] += 1
            return fault(connection, data)

        self._armed = happen

    def take(self) -> Callable[[Connection, bytes], bool] | None:
        """Return the fault that was armed, and disarm it."""
        armed, self._armed = self._armed, None
        return armed

    def close(self) -> None:
        """Listen no more, and end all connections."""
        end(self._listening)
        self._accepting.join()
        for connection in self._connections:
            connection.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    self._connections.append(Connection(self, client, self.upstream()))
                except OSError:  # The server is gone.
                    end(client)


def of_postgres(folder: Path, server: Path, rng: random.Random) -> Proxy:
    """Return a proxy that listens in `folder` as PostgreSQL does, in front of the socket `server`."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / SOCKET))

    def upstream() -> socket.socket:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(str(server))
        except OSError:
            connected.close()
            raise
        return connected

    return Proxy(listening, upstream, rng)


class Connection:
    """One client and its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server, self.sent = proxy, client, server, b""
        self.answers = True
        """Whether what the server answers reaches the client."""
        threading.Thread(target=self._requests, daemon=True).start()
        threading.Thread(target=self._replies, daemon=True).start()

    def cut(self) -> None:
        """End both sides."""
        for side in (self.client, self.server):
            end(side)

    def _requests(self) -> None:
        with suppress(OSError):
            while data := self.client.recv(1 << 16):
                fault = self.proxy.take()
                if fault is not None and not fault(self, data):
                    return
                self.sent += data
                self.server.sendall(data)
        end(self.server)

    def _replies(self) -> None:
        with suppress(OSError):
            while data := self.server.recv(1 << 16):
                if self.answers:
                    self.client.sendall(data)
                else:
                    break
        self.cut()


def end(side: socket.socket) -> None:
    """Shut a socket down and close it."""
    with suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()


def drop(connection: Connection, data: bytes) -> bool:
    """The request never arrives."""
    connection.cut()
    return False


def half(connection: Connection, data: bytes) -> bool:
    """Only a part of the request arrives."""
    with suppress(OSError):
        connection.server.sendall(data[: len(data) // 2])
    connection.cut()
    return False


def lose_the_answer(connection: Connection, data: bytes) -> bool:
    """The request is carried out; the answer never arrives."""
    connection.answers = False
    return True


def arrive_late(connection: Connection, data: bytes) -> bool:
    """The client loses its connection at once; the request arrives after it has made another one."""
    end(connection.client)

    def deliver() -> None:
        with suppress(OSError):
            connection.server.sendall(data)
            connection.server.settimeout(1.0)  # It may wait for the rest of a request, which never comes.
            connection.server.recv(1 << 16)
        end(connection.server)

    threading.Timer(LATE_S * connection.proxy._rng.random(), deliver).start()
    return False


def delay(connection: Connection, data: bytes) -> bool:
    """The request takes long."""
    threading.Event().wait(LATE_S)
    return True


def repeat(connection: Connection, data: bytes) -> bool:
    """All that the client has sent is sent once more, through a second connection."""
    again, sent = connection.proxy.upstream(), connection.sent + data

    def send() -> None:
        with suppress(OSError):
            again.sendall(sent)
            again.settimeout(1.0)
            while again.recv(1 << 16):
                pass
        end(again)

    threading.Thread(target=send, daemon=True).start()
    return True


FAULTS: Final[dict[str, Callable[[Connection, bytes], bool]]] = {
    "drop": drop,
    "half": half,
    "lose the answer": lose_the_answer,
    "arrive late": arrive_late,
    "delay": delay,
    "repeat": repeat,
}
"""What can happen to a request. Each returns whether it goes on to the server."""
