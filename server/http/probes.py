"""Health probes and the metrics route."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from mnemolog.adapters.support.agent_tools.memory import NO_MODEL, Memory
from mnemolog.domain.errors import MnemologError, OutsideScope
from mnemolog.server.http.access import Caller
from mnemolog.server.http.authentication import Callers
from mnemolog.server.http.guard import App
from mnemolog.server.http.metrics import CONTENT_TYPE, Metrics
from mnemolog.server.http.problems import problem, problem_response

READY_TIMEOUT_S: Final = 8.0
"""Longer than a call waits for PostgreSQL to come back: afterwards it is known whether recalls are answered without."""
KEPT_S: Final = 1.0
"""How long an answer of `/readyz` is kept: it needs no token, and asks the log."""
LOG_AWAY: Final = "degraded: the log cannot be reached; recalls are answered from this node, nothing is recorded"
LOADING: Final = "degraded: the model is being loaded; recalls search by words only"
NOT_LOADED: Final = "degraded: the model cannot be loaded; recalls search by words only"


def probes(memory: Memory, callers: Callers | None) -> dict[str, App]:
    """Return what answers without a token: `/healthz` (the process is alive) and `/readyz` (it answers recalls).

    `callers` are asked whether they know the tokens; None where no request needs one.
    """
    return {"/healthz": PlainTextResponse("ok\n"), "/readyz": _Ready(memory, callers)}


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
    """Whether recalls are answered, and what is degraded; if they are not, the class of the error."""

    def __init__(self, memory: Memory, callers: Callers | None) -> None:
        self._memory, self._callers = memory, callers
        self._until = 0.0
        self._asking: asyncio.Task[Response] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._asking is None or (self._asking.done() and monotonic() > self._until):
            self._asking = asyncio.create_task(self._asked())
        await (await asyncio.shield(self._asking))(scope, receive, send)

    async def _asked(self) -> Response:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                if self._callers is not None:
                    await self._callers.require_known()
                # A start in the future: forces the views up to date, returns no rows.
                found = await self._memory.store.sessions(since=datetime.now(UTC) + timedelta(days=1))
                if found.stale is None:
                    await self._memory.store.head()
        except TimeoutError:
            return self._not_ready(f"the store did not answer within {READY_TIMEOUT_S:g} s")
        except (MnemologError, OSError) as error:
            return self._not_ready(type(error).__name__)
        finally:
            self._until = monotonic() + KEPT_S
        degraded = [] if found.stale is None else [LOG_AWAY]
        if self._memory.model not in ("ready", NO_MODEL):
            degraded.append(LOADING if self._memory.model == "loading" else NOT_LOADED)
        return PlainTextResponse("".join(f"{line}\n" for line in ("ready", *degraded)))

    def _not_ready(self, why: str) -> Response:
        return problem_response(
            problem("NotReady", 503, why, "the status of the store and the log of the server tell more")
        )
