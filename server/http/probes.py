"""Health probes and the metrics route."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mnemolog.aio.store import AsyncMemoryStore
from mnemolog.domain.errors import MnemologError, OutsideScope
from mnemolog.server.http.access import Caller
from mnemolog.server.http.guard import App
from mnemolog.server.http.metrics import CONTENT_TYPE, Metrics
from mnemolog.server.http.problems import problem, problem_response

READY_TIMEOUT_S: Final = 5.0
KEPT_S: Final = 1.0
"""How long an answer of `/readyz` is kept: it needs no token, and asks the log."""


def probes(store: AsyncMemoryStore) -> dict[str, App]:
    """Return what answers without a token: `/healthz` (the process is alive) and `/readyz` (its store answers)."""
    ready = _Ready(store)
    return {"/healthz": PlainTextResponse("ok\n"), "/readyz": ready}


def metrics_route(metrics: Metrics) -> Route:
    """Return the route of the metrics, for callers who may read those of the whole server."""

    async def answer(request: Request) -> Response:
        caller: Caller = request.state.caller
        caller.require("metrics", "/metrics")
        if caller.scopes:
            raise OutsideScope("the metrics are those of the whole server", scope=", ".join(caller.scopes))
        return Response(await asyncio.to_thread(metrics.text), media_type=CONTENT_TYPE)

    return Route("/metrics", answer)


class _Ready:
    """Whether the log answers and its projections can be used; if not, the class of the error."""

    def __init__(self, store: AsyncMemoryStore) -> None:
        self._store = store
        self._answer, self._until = PlainTextResponse("ready\n"), 0.0
        self._asking: asyncio.Task[Response] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._asking is None or (self._asking.done() and monotonic() > self._until):
            self._asking = asyncio.create_task(self._asked())
        await (await asyncio.shield(self._asking))(scope, receive, send)

    async def _asked(self) -> Response:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                await self._store.head()
                # A start in the future: forces the views up to date, returns no rows.
                await self._store.sessions(since=datetime.now(UTC) + timedelta(days=1))
        except TimeoutError:
            return self._not_ready(f"the store did not answer within {READY_TIMEOUT_S:g} s")
        except (MnemologError, OSError) as error:
            return self._not_ready(type(error).__name__)
        finally:
            self._until = monotonic() + KEPT_S
        return PlainTextResponse("ready\n")

    def _not_ready(self, why: str) -> Response:
        return problem_response(
            problem("NotReady", 503, why, "the status of the store and the log of the server tell more")
        )
