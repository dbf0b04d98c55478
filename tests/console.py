"""A browser without scripts for tests of the console: it keeps cookies, one event loop, and the forms of pages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from httpx2 import ASGITransport, AsyncClient
from httpx2 import Response as Answer
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response

from mnemolog import AsyncMemoryStore
from mnemolog.server.console.all_pages import console_routes
from mnemolog.server.http.access import Caller, local_caller

OPEN: list[Browser] = []
"""Those that the test of this moment has opened."""


class Browser:
    """Sends requests to an application in this process. What the application starts goes on between them."""

    def __init__(self, app: Starlette, *, token: str = "") -> None:
        self.app, self._runner = app, asyncio.Runner()
        OPEN.append(self)
        self._client = AsyncClient(transport=ASGITransport(app=app), base_url="http://127.0.0.1")
        if token:
            self._client.headers["Authorization"] = f"Bearer {token}"

    def get(self, url: str, **headers: str) -> Answer:
        """Return the answer to a request for a page."""
        return self._send("GET", url, headers=headers)

    def json(self, url: str) -> Any:
        """Return the data of a page."""
        return self._send("GET", url, headers={"Accept": "application/json"}).json()

    def submit(self, url: str, fields: dict[str, Any], *, seen_at: str = "/diff") -> Answer:
        """Send a form with the token that the page at `seen_at` shows."""
        token = re.search(r'name="csrf" value="([^"]+)"', self.get(seen_at).text)
        return self._send("POST", url, data={"csrf": token[1] if token else "", **fields})

    def follow(self, response: Answer) -> Any:
        """Return the data of the page that an answer redirects to. A job is waited for."""
        assert response.status_code == 303, response.text
        where = response.headers["location"]
        data = self.json(where)
        while where.startswith("/jobs/") and data["state"] == "running":
            data = self.json(where)
        return self.json(data["result_path"]) if data.get("result_path") else data

    def run(self, work: Any) -> Any:
        """Return what a coroutine returns."""
        return self._runner.run(work)

    def close(self) -> None:
        """End the loop."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def _send(self, method: str, url: str, **how: Any) -> Answer:
        return self._runner.run(self._client.request(method, url, **how))


def console_app(store: AsyncMemoryStore, *, write: bool = False, caller: Caller | None = None) -> Starlette:
    """Return the console for one caller; without one, for the local user, who may do everything."""

    async def let_in(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        request.state.caller = caller or local_caller(store)
        return await call(request)

    return Starlette(
        routes=console_routes(name=store.path.name, write=write),
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=let_in)],
    )


def close_all() -> None:
    """Close every browser that is open. A fixture does so after each test, also one that failed."""
    while OPEN:
        OPEN.pop().close()
