"""Processes to be killed and processes that race."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from tests.children.workers import PRELOADED
from tests.faults.report import Tried, write

TRIED: list[Tried] = []


class Processes:
    """Starts functions of `tests.children.workers` in processes of their own, and leaves none behind."""

    def __init__(self, context):
        self.context = context
        self._started = []

    def start(self, function, *arguments):
        """Return the process and the pipe it sends into. Its first argument is that pipe."""
        receiving, sending = self.context.Pipe(duplex=False)
        process = self.context.Process(target=function, args=(sending, *arguments), daemon=True)
        process.start()
        sending.close()  # Ours: the pipe ends when the child does.
        self._started.append((process, receiving))
        return process, receiving

    def end(self):
        for process, receiving in self._started:
            process.kill()
            process.join()
            process.close()
            receiving.close()


@pytest.fixture(scope="session")
def fork_server():
    """A context whose processes are forked from a server that knows mnemolog and has no store open."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    return context


@pytest.fixture
def processes(fork_server):
    processes = Processes(fork_server)
    yield processes
    processes.end()


@pytest.fixture
def scale(request):
    """How much is tried: `ci` or `nightly`."""
    return request.config.getoption("--scale", default="ci")


def pytest_runtest_logreport(report):
    if report.when == "call" and report.nodeid.startswith("tests/faults/"):
        properties = dict(report.user_properties)
        tried = Tried(
            file=report.nodeid.split("::")[0].rpartition("/")[2],
            claim=properties.get("claim", report.nodeid.rpartition("::")[2]),
            cases=1,
            tried=properties.get("tried", 1),
            failed=int(report.failed),
            seconds=report.duration,
        )
        TRIED.append(tried)


@pytest.fixture(autouse=True)
def claim(request, record_property):
    """Keep what a test claims for the report."""
    if "kills" in request.fixturenames:
        record_property("tried", request.config.option.kills)
    record_property("claim", (request.function.__doc__ or request.node.name).strip().splitlines()[0])


def pytest_sessionfinish(session):
    if path := session.config.option.report:
        write(Path(path), TRIED, seed=session.config.option.seed, kills=session.config.option.kills)
