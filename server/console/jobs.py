"""Work that takes longer than a request: it runs in the server, and a page shows its progress."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, cast

import msgspec
from starlette.responses import Response

from mnemolog.aio.wrappers import BACKGROUND_MAX
from mnemolog.domain import errors, structured_log
from mnemolog.server.console.page import ConsoleRequest, PageRequest, Refused, page, redirect
from mnemolog.server.console.rendering import url
from mnemolog.server.http.problems import FAILED, REPORT_IT, place_of

JOBS_MAX: Final = 100
"""Jobs that are kept. The oldest that has ended is dropped first."""
RUNNING_MAX: Final = BACKGROUND_MAX
"""Jobs that run at the same time: as many as the store has threads for long work. No page needs one of those."""
QUICK_S: Final = 1.0
"""How long an action waits for its job: a quick one shows its result at once."""


Work = Callable[..., Awaitable[msgspec.Struct]]
"""Does the work, reports its progress (`progress=`), and returns the result."""


class JobPage(msgspec.Struct, kw_only=True):
    """The progress of a job."""

    id: str
    title: str
    state: Literal["running", "done", "failed"] = "running"
    done: int = 0
    """Steps done, of `total`; what a step is depends on the job."""
    total: int = 0
    """0 until it is known."""
    seconds: float = 0.0
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


class _Job(NamedTuple):
    """One piece of work, and the caller who may see its page."""

    owner: tuple[object, ...]
    page: JobPage
    began: float
    task: asyncio.Task[None]
    """Kept, so that it runs to its end."""


async def start_job(
    asked: ConsoleRequest,
    title: str,
    work: Work,
    *,
    back: str,
    shown_at: Callable[[str, Any], str] = lambda _job, _result: "",
) -> Response:
    """Start a job, and redirect to the page of its progress, or of its result if it is quick.

    `shown_at` returns the path of the page for the result, given the id of the job and the result; without it the
    job's own page shows the result, with a link to the page `back`. Raises `Refused` while too many jobs run.
    """
    jobs = _jobs_of(asked)
    ended = [id for id, job in jobs.items() if job.page.state != "running"]
    if len(jobs) - len(ended) >= RUNNING_MAX:
        what = f"It works on {RUNNING_MAX} other jobs."
        raise Refused(503, "The server is busy", what, "Try again when one of them has ended.")
    for id in ended[: max(len(jobs) + 1 - JOBS_MAX, 0)]:
        del jobs[id]
    page, began = JobPage(id=secrets.token_urlsafe(12), title=title, back=back), time.monotonic()
    task = asyncio.create_task(_run(page, work, shown_at, began))
    jobs[page.id] = _Job(_owner(asked), page, began, task)
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(task), QUICK_S)
    return redirect(url(page.result_path or f"/jobs/{page.id}", {"scope": asked.scope}))


async def _run(page: JobPage, work: Work, shown_at: Callable[[str, Any], str], began: float) -> None:
    """Do the work, and keep its result or its error."""

    def report(done: int, total: int) -> None:  # In the thread that works.
        page.done, page.total = done, total

    try:
        page.result = await work(progress=report)
        page.kind, page.result_path = type(page.result).__name__, shown_at(page.id, page.result)
    except errors.MnemologError as error:
        page.error, page.hint = "; ".join((str(error), *getattr(error, "__notes__", ()))), error.hint
    except asyncio.CancelledError:
        page.error, page.hint = str(errors.StoreClosed()), errors.StoreClosed().hint
        raise
    except Exception as error:
        structured_log.error("console.job_failed", job=page.id, error=error, **place_of(error))
        page.error, page.hint = FAILED, REPORT_IT
    finally:
        page.seconds, page.state = time.monotonic() - began, "failed" if page.error else "done"


def job_page(asked: ConsoleRequest) -> JobPage:
    """Return the page of the job in the path. Raises `Refused` for an unknown one and for that of another."""
    job = _jobs_of(asked).get(asked.request.path_params["job"])
    if job is None or job.owner != _owner(asked):
        what = "It ended long ago, or the server was started again since."
        hint = "Its effects, if it had any, are in the log: see the timeline."
        raise Refused(404, "There is no such job", what, hint)
    if job.page.state == "running":
        job.page.seconds = time.monotonic() - job.began
    return job.page


def _owner(asked: ConsoleRequest) -> tuple[object, ...]:
    return asked.caller.token, asked.caller.actor, asked.caller.scopes


def _jobs_of(asked: ConsoleRequest) -> dict[str, _Job]:
    """Return the jobs of the server that a request came to."""
    state = asked.request.app.state
    if not hasattr(state, "jobs"):
        state.jobs = {}
    return cast(dict[str, _Job], state.jobs)


@page("/jobs/{job}", title="Work in progress", template="job.html")
async def job(asked: PageRequest) -> JobPage:
    """Show the progress of a job, and its result."""
    return job_page(asked)
