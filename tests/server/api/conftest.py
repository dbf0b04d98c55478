"""A server over a store, without a network in between."""

import asyncio
import shutil
from typing import Any

import httpx2
import pytest
from starlette.middleware import Middleware

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.server.http.api import make_app
from mnemolog.server.http.authentication import VERBS, Caller
from mnemolog.server.http.config import Folders
from mnemolog.server.http.live_events import Followers
from tests.server.api.examples import filled
from tests.support import FakeClock, HashEncoder

HOST = "http://memory.test"


class Time:
    """Stands still, but for what is slept."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Requests:
    """Makes requests to an application in this process, in an event loop of its own."""

    def __init__(self, app: Any) -> None:
        self.app, self._runner = app, asyncio.Runner()

    def __call__(self, method: str, path: str, **how: Any) -> httpx2.Response:
        """Make a request below `/v1`, or to a whole URL; `json` is its body, `params` its query."""
        return self.run(self._request(self.app, method, path, **how))

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the event loop."""
        return self._runner.run(coroutine)

    async def _request(self, app: Any, method: str, path: str, **how: Any) -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url=f"{HOST}/v1") as client:
            return await client.request(method, path, **how)

    def close(self) -> None:
        """End the event loop."""
        self._runner.close()


class Server(Requests):
    """Answers requests as a server would; everybody is the local user."""

    def __init__(self, store: MemoryStore, folders: Folders | None = None) -> None:
        self._whole, self._folders = AsyncMemoryStore(store, WorkerPools()), folders
        self.followers = Followers(self._whole)
        self._apps: dict[str, Any] = {}
        super().__init__(make_app(self._whole, folders=folders, followers=self.followers))

    def as_caller(self, **about: Any) -> Any:
        """Return the application as another caller has it."""
        caller = Caller(**{"actor": "alice", "verbs": VERBS, "store": self._whole} | about)
        middleware = [Middleware(_As, caller=caller)]
        return make_app(self._whole, folders=self._folders, followers=self.followers, middleware=middleware)

    def with_verb(self, verb: str, method: str, path: str, **how: Any) -> httpx2.Response:
        """Make a request of a caller that has one verb."""
        app = self._apps.get(verb) or self._apps.setdefault(verb, self.as_caller(verbs=frozenset({verb})))
        return self.run(self._request(app, method, path, **how))


class _As:
    """Has one caller make all requests."""

    def __init__(self, app: Any, caller: Caller) -> None:
        self._app, self._caller = app, caller

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["state"] = {"caller": self._caller}
        await self._app(scope, receive, send)


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A store with memories of all kinds and the vectors of two models, and what is known of it. Made once."""
    folder = tmp_path_factory.mktemp("template") / "memory"
    with MemoryStore.open(folder, model=HashEncoder(), clock=FakeClock(), background=False) as store:
        found = filled(store)
        store.rebuild("vectors")
        (model,) = store.models.list()
        other = HashEncoder(fingerprint="other/1")
        other.name = "models/other"
        store.models.add(other)
    return folder, found | {"model": model.fingerprint}


@pytest.fixture
def known(template):
    """What is known of the store: places for the paths of some examples."""
    return template[1]


@pytest.fixture
def store(template, folder, clock, encoder):
    """A store with memories of all kinds."""
    shutil.copytree(template[0], folder)
    clock.advance(seconds=3_600)
    with MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        yield store


@pytest.fixture
def folders(tmp_path):
    """Where the server puts backups."""
    return Folders(backups=tmp_path / "backups", backup_keys=tmp_path / "keys")


@pytest.fixture
def server(store, folders):
    """A server over the store of this test."""
    (folders.backups).mkdir()
    found = Server(store, folders)
    yield found
    found.close()
