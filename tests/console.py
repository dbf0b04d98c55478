"""A browser without scripts for tests of the console: it keeps cookies, one event loop, and the forms of pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

from httpx2 import ASGITransport, AsyncClient, Cookies
from httpx2 import Response as Answer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response

from mnemolog import AsyncMemoryStore, acting_as
from mnemolog.adapters.support.agent_tools import Memory
from mnemolog.server.application import application
from mnemolog.server.console.routes import Console
from mnemolog.server.http.authentication import Caller, Callers, local_caller
from mnemolog.server.http.config import ServerConfig
from mnemolog.server.http.monitoring import Metrics


class Browser:
    """Sends requests to an application in this process. What the application starts runs between them."""

    def __init__(self, app: Any, store: AsyncMemoryStore, runner: asyncio.Runner, *, token: str = "") -> None:
        self.app, self.store, self._runner = app, store, runner
        headers = {"Accept": "text/html"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._client = AsyncClient(transport=ASGITransport(app=app), base_url="http://127.0.0.1", headers=headers)

    @property
    def cookies(self) -> Cookies:
        return self._client.cookies

    def get(self, url: str, **headers: str) -> Answer:
        """Return the answer to a request for a page."""
        return self.send("GET", url, headers=headers)

    def json(self, url: str) -> Any:
        """Return the data of a page."""
        return self.get(url, Accept="application/json").json()

    def submit(self, url: str, fields: dict[str, Any], **headers: str) -> Answer:
        """Send a form."""
        return self.send("POST", url, data=fields, headers=headers)

    def log_in(self, token: str) -> None:
        """Log in with a token, as a person does."""
        sent = self.submit("/login", {"token": token, "next": "/sessions"})
        assert (sent.status_code, sent.headers["location"]) == (303, "/sessions"), sent.text

    def follow(self, response: Answer) -> Any:
        """Return the data of the page that an answer redirects to. A job is waited for."""
        assert response.status_code == 303, response.text
        where = response.headers["location"]
        data = self.json(where)
        while where.startswith("/jobs/") and data["state"] == "running":
            data = self.json(where)
        return self.json(data["result_path"]) if data.get("result_path") else data

    def send(self, method: str, url: str, **how: Any) -> Answer:
        return self.run(self._client.request(method, url, **how))

    def run(self, work: Any) -> Any:
        """Return what a coroutine returns."""
        return self._runner.run(work)

    def of(self, app: Starlette, *, token: str = "") -> Browser:
        """Return another browser in the same event loop."""
        return Browser(app, self.store, self._runner, token=token)

    def at_console(self, *, write: bool = False, caller: Caller | None = None) -> Browser:
        """Return another browser at a console of the same store."""
        return self.of(console_app(self.store, write=write, caller=caller))

    def as_caller(self, *verbs: Any, scope: str = "") -> Browser:
        """Return a browser of somebody with these rights, in one scope if it is given, at a console that may write."""
        store, scopes = (self.store.within(scope), (scope,)) if scope else (self.store, ())
        caller = Caller(actor="ada", verbs=frozenset(verbs), scopes=scopes, store=store)
        return self.at_console(write=True, caller=caller)


@contextmanager
def opened_console(folder: Path, *, write: bool = False, **options: Any) -> Iterator[Browser]:
    """Open a store, and yield a browser at its console. `options` as in `MemoryStore.open`."""
    with asyncio.Runner() as runner:
        store = runner.run(_opened(folder, {"model": None, "background": False} | options))
        try:
            yield Browser(console_app(store, write=write), store, runner)
        finally:
            runner.run(store.close())


@contextmanager
def opened_server(folder: Path) -> Iterator[Browser]:
    """Yield a browser at a whole server that needs tokens, with a console that may write."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        store = runner.run(stack.enter_async_context(AsyncMemoryStore.open(folder, model=None)))
        config = ServerConfig(require_token=True, write=True)
        app = runner.run(stack.enter_async_context(application(Memory(store), Callers(store), config, Metrics())))
        try:
            yield Browser(app, store, runner)
        finally:
            runner.run(stack.aclose())


async def _opened(folder: Path, options: dict[str, Any]) -> AsyncMemoryStore:
    return await AsyncMemoryStore.open(folder, **options)


def console_app(store: AsyncMemoryStore, *, write: bool = False, caller: Caller | None = None) -> Starlette:
    """Return the console for one caller; without one, for the local user, who may do everything."""

    async def let_in(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        request.state.caller = caller or local_caller(store)
        with acting_as(request.state.caller.actor):
            return await call(request)

    return Starlette(
        routes=Console(name=store.path.name, write=write).routes(),
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=let_in)],
    )
