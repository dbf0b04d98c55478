"""A test that reaches its time limit names the stacks of its child processes too.

pytest-timeout names those of the test's own threads. Before it does, children are aborted: each Python writes its stack
to its standard error (PYTHONFAULTHANDLER), which pytest shows, or the test that reads it. A test that waits for such a
child then ends by itself, with what the child said.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

SAY_S = 10.0
"""How long a test has, after its children were aborted, to fail with what they wrote."""
CI_S = 600.0
"""Limit of the fault tests at the scale of every change. The longest takes 100 s on two idle cores."""
SERVERS = (b"multiprocessing.forkserver", b"multiprocessing.resource_tracker")
_ABORTED = pytest.StashKey[list[int]]()


def cap(item: pytest.Item) -> None:
    """Limit a test that tries few times: its own limit is meant for what it tries over night."""
    own = item.get_closest_marker("timeout")
    if own is not None and own.args and own.args[0] > CI_S:
        item.add_marker(pytest.mark.timeout(CI_S), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item, settings):
    done = yield
    fail = signal.getsignal(signal.SIGALRM)

    def at_limit(*received):
        item.stash[_ABORTED] = aborted = list(children())
        for pid in aborted:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGABRT)
        if not aborted:
            fail(*received)
        print(f"the limit of {settings.timeout:g} s is reached: aborted {aborted}", file=sys.stderr)
        signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, SAY_S)

    if settings.method == "signal" and callable(fail):
        signal.signal(signal.SIGALRM, at_limit)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    done = yield
    if aborted := pyfuncitem.stash.get(_ABORTED, []):
        pytest.fail(f"it passed only because its children {aborted} were aborted at its time limit")
    return done


def children() -> Iterator[int]:
    """Yield the processes below this one, without multiprocessing's own servers: later tests use them too."""
    below: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            below.setdefault(parent, []).append(int(status.parent.name))
    waiting = [(pid, True) for pid in below.get(os.getpid(), [])]
    for pid, is_direct in waiting:
        waiting += [(grandchild, False) for grandchild in below.get(pid, [])]
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if not (is_direct and any(server in command for server in SERVERS)):
                yield pid
