"""A server over a store, without a network in between."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from mnemolog.adapters.http.app import make_app
from mnemolog.adapters.http.calls import Folders
from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.aio.worker_pools import WorkerPools
from tests.adapters.http.examples import filled
from tests.support import HashEncoder


class Server:
    """Answers requests as a server would; everybody is the local user."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self._runner = asyncio.Runner()

    def __call__(self, method: str, path: str, **how: Any) -> httpx2.Response:
        """Make a request below `/v1`; `json` is its body, `params` its query."""
        return self.run(self._request(method, path, **how))

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the server's event loop."""
        return self._runner.run(coroutine)

    def client(self) -> httpx2.AsyncClient:
        """Return a client of the server, for its event loop."""
        transport = httpx2.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx2.AsyncClient(transport=transport, base_url="http://memory.test/v1")

    async def _request(self, method: str, path: str, **how: Any) -> httpx2.Response:
        async with self.client() as client:
            return await client.request(method, path, **how)

    def close(self) -> None:
        """End the event loop."""
        self._runner.close()


@pytest.fixture
def folders(tmp_path):
    """Where the server puts backups."""
    return Folders(backups=tmp_path / "backups", backup_keys=tmp_path / "keys")


@pytest.fixture
def server(store, folders):
    """A server over the store of this test."""
    (folders.backups).mkdir()
    found = Server(make_app(AsyncMemoryStore(store, WorkerPools()), folders=folders))
    yield found
    found.close()


@pytest.fixture
def known(store):
    """The store has memories of all kinds, and two models."""
    found = filled(store)
    store.rebuild("vectors")
    (model,) = store.models.list()
    other = HashEncoder(fingerprint="other/1")
    other.name = "models/other"
    store.models.add(other)
    return found | {"model": model.fingerprint}
