"""Processes to be killed, processes that race, and files that may not grow."""

import multiprocessing
import os
import resource
import signal
from pathlib import Path

import pytest

from tests.children.workers import PRELOADED
from tests.faults.promises import PROMISES, number
from tests.faults.report import Row, commit, write

HERE = Path(__file__).parent
COLLECTED: list[tuple[str | None, str, str]] = []
TRIED: list[tuple[pytest.TestReport, dict]] = []


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
        self._started.clear()


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
def file_limit():
    """Set how large a file of this process may become; lifted afterwards."""
    was = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, was[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, was)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def descriptor_limit():
    """Set how many more files this process may open; None lifts it."""
    was = resource.getrlimit(resource.RLIMIT_NOFILE)

    def limit(more):
        if more is None:
            resource.setrlimit(resource.RLIMIT_NOFILE, was)
            return
        free = os.open(os.devnull, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, was[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, was)


@pytest.fixture
def outage_s(scale):
    """How long an outage lasts after it was met."""
    return 0.0 if scale == "ci" else 30.0


def pytest_configure(config):
    config.addinivalue_line("markers", "promise(name, number): the promise that a fault test is about, and its number")


def pytest_collection_modifyitems(config, items):
    """Leave out what `--promise` does not ask for; keep what there is, for the report."""
    mine = [item for item in items if item.path.is_relative_to(HERE)]
    COLLECTED[:] = [(promise_of(item), item.path.name, item.originalname) for item in mine]
    wanted = set(config.option.promise)
    if unknown := wanted - PROMISES.keys():
        raise pytest.UsageError(f"--promise: {', '.join(sorted(unknown))} is none of {', '.join(PROMISES)}")
    if wanted:
        left_out = [item for item in mine if promise_of(item) not in wanted]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def promise_of(item):
    """The promise that a test is marked with, the nearest mark first."""
    marker = item.get_closest_marker("promise")
    return None if marker is None else marker.args[0]


@pytest.fixture
def scale(request):
    """`ci` or `nightly`."""
    return request.config.option.scale


@pytest.fixture
def tries(request, scale, record_property):
    """How often this test is to try, as `promises.NUMBERS` says for the number it is marked with."""
    promise, what = request.node.get_closest_marker("promise").args
    option = request.config.option
    found = option.tries or number(promise, what, scale, gate=option.report is None)
    record_property("tried", found)
    return found


@pytest.fixture(autouse=True)
def marked(request, record_property):
    """Every fault test is about a promise, and says what it claims: the report is made of that."""
    promise = promise_of(request.node)
    assert promise in PROMISES, 'say which promise this is about: @pytest.mark.promise("P1")'
    record_property("promise", promise)
    record_property("claim", (request.function.__doc__ or request.node.name).strip().splitlines()[0])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """Name the test without its parameters: its cases make one row."""
    report = (yield).get_result()
    if item.path.is_relative_to(HERE):
        report.fault_test = (item.path.name, item.originalname)


def pytest_runtest_logreport(report):
    """Keep what became of a test: of its call, or of what kept it from being called."""
    if not hasattr(report, "fault_test") or (report.when != "call" and report.passed):
        return
    TRIED.append((report, dict(report.user_properties)))


def pytest_sessionfinish(session):
    option = session.config.option
    if not option.report:
        return
    of_commit = commit()
    rows = [
        Row(
            promise=properties["promise"],
            file=report.fault_test[0],
            test=report.fault_test[1],
            claim=properties["claim"],
            cases=int(report.when != "teardown"),
            tried=properties.get("tried", 1) if report.when == "call" and not report.skipped else 0,
            failures=int(report.failed),
            skipped=int(report.skipped),
            seconds=report.duration,
            scale="by hand" if option.tries else option.scale,
            seed=option.seed,
            commit=of_commit,
        )
        for report, properties in TRIED
        if "promise" in properties
    ]
    write(Path(option.report), rows, collected=COLLECTED)
