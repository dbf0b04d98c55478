"""Stores reached over HTTP: `pytest --through http` serves each store that a test opens, and connects to it.

The server is the real application on a socket of this process, and the client is the real one.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from mnemolog import AsyncMemoryStore, MemoryStore, connect
from mnemolog.aio.store import Opening
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.server.http.api import make_app

OPEN = MemoryStore.open


class Served:
    """A store behind a server in a thread of this process."""

    def __init__(self, local: MemoryStore) -> None:
        self.local = local
        app = make_app(AsyncMemoryStore(local, WorkerPools()))
        config = uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        # With its protocol named, asyncio turns Nagle's algorithm off for the connections of it.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server, then close the store."""
        self._server.should_exit = True
        self._thread.join()
        self.local.close()


def open_through_http(*args, **kwargs) -> MemoryStore:
    """Open a store, serve it, and return the store of a client. Its `close` ends all three."""
    served = Served(OPEN(*args, **kwargs))
    store = connect(served.url)
    store.path, store.parts = served.local.path, served.local.parts  # For tests that look at the server's side.
    # A model that is no name is added and activated where it is.
    store.models.add, store.models.activate = served.local.models.add, served.local.models.activate
    close = store.close

    def close_all() -> None:
        close()
        served.close()

    store.close = close_all
    return store


@contextmanager
def every_store() -> Iterator[None]:
    """Have each store that is opened be one behind a server."""
    opened_before = MemoryStore.__dict__["open"], AsyncMemoryStore.__dict__["open"]
    MemoryStore.open = staticmethod(open_through_http)
    AsyncMemoryStore.open = staticmethod(lambda *args, **kwargs: Opening(lambda: open_through_http(*args, **kwargs)))
    try:
        yield
    finally:
        MemoryStore.open, AsyncMemoryStore.open = opened_before
