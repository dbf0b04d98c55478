"""Functions that run in a forked child, with a limit of seconds. A child that hangs fails the test with its stack."""

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

CHILD_S = 30.0
"""How long a child may take. On a busy machine it takes less than a tenth of that."""
STACK_S = 5.0


def in_child(function: Callable[[], Any], *, timeout_s: float = CHILD_S) -> Any:
    """Return what `function` returns in a forked child, which then ends without any clean-up.

    Fails the test if it raises, ends early, or takes longer than `timeout_s` seconds, with the child's stack.
    """
    with tempfile.NamedTemporaryFile() as stack:
        # Before the fork: a child that hangs in a handler of the fork itself is named too.
        faulthandler.register(signal.SIGUSR2, file=stack, all_threads=True)
        try:
            pid, answers = _forked(function)
        finally:
            faulthandler.unregister(signal.SIGUSR2)
        try:
            if not answers.poll(timeout_s):
                pytest.fail(f"the child still runs after {timeout_s:g} s:\n{_stack_of(pid, Path(stack.name))}")
            raised, answer = answers.recv()
        except EOFError:
            pytest.fail("the child ended before its function did")
        finally:
            answers.close()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if raised:
        pytest.fail(f"in the child:\n{answer}")
    return answer


def _forked(function: Callable[[], Any]) -> tuple[int, Connection]:
    receiving, sending = multiprocessing.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and newer: there are threads. That is meant.
        pid = os.fork()
    if pid:
        sending.close()
        return pid, receiving
    status = 1
    try:
        try:
            sending.send((False, function()))
        except BaseException:
            sending.send((True, traceback.format_exc()))
        status = 0
    finally:
        os._exit(status)


def _stack_of(pid: int, file: Path) -> str:
    os.kill(pid, signal.SIGUSR2)
    end = time.monotonic() + STACK_S
    while not file.read_text().endswith("\n") and time.monotonic() < end:
        time.sleep(0.01)
    return file.read_text() or "(its stack is not known)"
