"""Work that takes longer than a request: it runs in the server, and a page shows its progress."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mnemolog.aio.worker_pools import BACKGROUND_MAX
from mnemolog.domain import errors, structured_log
from mnemolog.domain.result import Result
from mnemolog.server.console.moment import AsOf
from mnemolog.server.console.page import ErrorPage, Refused, page, redirect
from mnemolog.server.console.parameters import text
from mnemolog.server.console.rendering import url
from mnemolog.server.http.access import Caller
from mnemolog.server.http.problems import FAILED, REPORT_IT, place_of

JOBS_MAX: Final = 100
"""Jobs that are kept. The oldest that has ended is dropped first."""
RUNNING_MAX: Final = BACKGROUND_MAX
"""Jobs that run at the same time: as many as the store has threads for long work. No page needs one of those."""
QUICK_S: Final = 1.0
"""How long an action waits for its job: a quick one shows its result at once."""


Work = Callable[..., Awaitable[msgspec.Struct]]
"""Does the work, reports its progress (`progress=`), and returns the result."""


class JobPage(Result, frozen=True, kw_only=True):
    """The progress of a job."""

    id: str
    title: str
    state: Literal["running", "done", "failed"]
    done: int
    """Steps done, of `total`; what a step is depends on the job."""
    total: int
    """0 until it is known."""
    seconds: float
    kind: str = ""
    """The type of the result; empty until there is one."""
    result: msgspec.Struct | None = None
    result_path: str = ""
    """The page that shows more of the result; empty if there is none."""
    back: str
    """The page that it was started from."""
    error: str = ""
    hint: str = ""

    @property
    def percent(self) -> int:
        """The progress, 0 to 100."""
        return 0 if not self.total else min(100 * self.done // self.total, 100)


class Job:
    """One piece of work."""

    def __init__(self, title: str, caller: Caller, back: str, shown_at: Callable[[Any], str] | None) -> None:
        self.id, self.owner = secrets.token_urlsafe(12), _owner(caller)
        self._title, self._back, self._shown_at = title, back, shown_at
        self._began, self._ended = time.monotonic(), 0.0
        self._done, self._total = 0, 0
        self._result: msgspec.Struct | None = None
        self._error: errors.MnemologError | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return not self._ended

    async def run(self, work: Work) -> None:
        """Do the work, and keep its result or its error."""
        try:
            self._result = await work(progress=self._report)
        except errors.MnemologError as error:
            self._error = error
        except asyncio.CancelledError:
            self._error = errors.StoreClosed()
            raise
        except Exception as error:
            structured_log.error("console.job_failed", job=self.id, error=error, **place_of(error))
            self._error = errors.StoreError(FAILED)
            self._error.hint = REPORT_IT
        finally:
            self._ended = time.monotonic()

    def _report(self, done: int, total: int) -> None:  # In the thread that works.
        self._done, self._total = done, total

    def page(self) -> JobPage:
        """Return the progress, and once it has ended the result."""
        result, error = self._result, self._error
        return JobPage(
            id=self.id,
            title=self._title,
            state="running" if self.running else "done" if error is None else "failed",
            done=self._done,
            total=self._total,
            seconds=(self._ended or time.monotonic()) - self._began,
            kind="" if result is None else type(result).__name__,
            result=result,
            result_path="" if result is None or self._shown_at is None else self._shown_at(result),
            back=self._back,
            error="" if error is None else "; ".join((str(error), *getattr(error, "__notes__", ()))),
            hint="" if error is None else error.hint,
        )


class Jobs:
    """The jobs of one server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}

    async def start(
        self,
        request: Request,
        caller: Caller,
        title: str,
        work: Work,
        *,
        back: str,
        shown_at: Callable[[Any], str] | None = None,
    ) -> Response:
        """Start a job, and redirect to the page of its progress, or of its result if it is quick.

        `shown_at` returns the path of the page for a result; without it the job's own page shows the result, with a
        link to the page `back`. Raises `Refused` while too many jobs run.
        """
        if sum(job.running for job in self._jobs.values()) >= RUNNING_MAX:
            raise Refused(_TOO_MANY)
        job = Job(title, caller, back, shown_at)
        self._make_room()
        self._jobs[job.id] = job
        job.task = asyncio.create_task(job.run(work))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(job.task), QUICK_S)
        scope = text(request.query_params, "scope")
        return redirect(url(job.page().result_path or f"/jobs/{job.id}", {"scope": scope}))

    def find(self, caller: Caller, job_id: str) -> Job:
        """Return a job of this caller. Raises `Refused` for an unknown one and for that of another caller."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != _owner(caller):
            raise Refused(_UNKNOWN)
        return job

    def _make_room(self) -> None:
        ended = [job.id for job in self._jobs.values() if not job.running]
        for job_id in ended[: max(len(self._jobs) + 1 - JOBS_MAX, 0)]:
            del self._jobs[job_id]


def _owner(caller: Caller) -> tuple[object, ...]:
    return caller.token, caller.actor, caller.scopes


def jobs_of(request: Request) -> Jobs:
    """Return the jobs of the server that a request came to."""
    state = request.app.state
    if not hasattr(state, "jobs"):
        state.jobs = Jobs()
    jobs: Jobs = state.jobs
    return jobs


@page("/jobs/{job}", title="Work in progress", template="job.html")
async def job(request: Request, caller: Caller, _at: AsOf) -> JobPage:
    """Show the progress of a job, and its result."""
    return jobs_of(request).find(caller, request.path_params["job"]).page()


_TOO_MANY: Final = ErrorPage(
    status=503,
    title="The server is busy",
    detail=f"It works on {RUNNING_MAX} other jobs.",
    hint="Try again when one of them has ended.",
)
_UNKNOWN: Final = ErrorPage(
    status=404,
    title="There is no such job",
    detail="It ended long ago, or the server was started again since.",
    hint="Its effects, if it had any, are in the log: see the timeline.",
)
