"""Processes to be killed and processes that race."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.children.workers import PRELOADED


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
