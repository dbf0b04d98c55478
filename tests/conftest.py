"""Options and fixtures of every test."""

import os
import random
import signal
import tempfile
from multiprocessing.util import get_temp_dir

import pytest
from hypothesis import settings

from mnemolog import MemoryStore
from mnemolog.infra.log.open import open_log, prepare_database
from tests import limits, postgres
from tests.faults.promises import SCALES
from tests.faults.report import commit
from tests.limits import pytest_pyfunc_call, pytest_timeout_set_timer  # noqa: F401
from tests.support import FakeClock, HashEncoder

# No test is timed: on a busy machine an example may take as long as it likes.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


MEMORY = "/dev/shm"
"""Where files of tests are: on a disk the tests mostly wait for syncs, and no test takes the power away.

Child processes use it too. With `--scale nightly`, and where `TMPDIR` is set, files are on the disk.
"""
MEMORY_BYTES_MIN = 4 << 30


def has_room_in_memory():
    """Return whether the files of tests can be in memory: there is room, and programs may be started there."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize >= MEMORY_BYTES_MIN and not found.f_flag & os.ST_NOEXEC


def pytest_addoption(parser):
    group = parser.getgroup("mnemolog")
    group.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a new one)")
    group.addoption(
        "--scale", choices=SCALES, default="ci", help="how often the fault suites try (tests/faults/promises.py)"
    )
    group.addoption("--tries", type=int, default=None, help="how often they try, in place of what the scale says")
    group.addoption("--promise", action="append", default=[], metavar="P1", help="only the tests of this promise")
    group.addoption("--report", default=None, metavar="PATH", help="where they write what they tried")
    group.addoption(
        "--log-in", choices=("folder", "postgres"), default="folder", help="where the store of a test has its log"
    )
    group.addoption(
        "--through", choices=("nothing", "http"), default="nothing", help="how a test reaches the store that it opens"
    )
    group.addoption("--workers", type=int, default=2, help="how many processes the simulation runs in")


def pytest_configure(config):
    os.environ["PYTHONFAULTHANDLER"] = "1"  # For `tests.limits`.
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # As `nohup make test &` starts it: children would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.option.scale == "ci" and has_room_in_memory():
        os.environ["TMPDIR"], tempfile.tempdir = MEMORY, MEMORY
    get_temp_dir()  # For sockets of processes, and kept: a temporary folder that a test sets has too long a path.
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)


def pytest_collection_modifyitems(config, items):
    if config.option.scale == "ci" and config.option.tries is None:
        for item in items:
            limits.cap(item)
    if config.option.log_in == "postgres":
        about_files = [item for item in items if item.get_closest_marker("log_file")]
        config.hook.pytest_deselected(items=about_files)
        items[:] = [item for item in items if item not in about_files]
    if config.option.through == "http":
        about_parts = [item for item in items if is_local(item)]
        config.hook.pytest_deselected(items=about_parts)
        items[:] = [item for item in items if item not in about_parts]


def is_local(item):
    """Whether a test is about a store in this process; the command line opens one."""
    return item.get_closest_marker("local") or {"run", "terminal", "screen"} & set(getattr(item, "fixturenames", ()))


def pytest_report_header(config):
    files = f"files of tests in {tempfile.gettempdir()}"
    return f"mnemolog: --seed {config.option.seed} --scale {config.option.scale}, commit {commit()}, {files}"


def pytest_terminal_summary(terminalreporter):
    left_out = [report for report in terminalreporter.stats.get("skipped", ()) if "tests/browser/" in report.nodeid]
    if left_out:
        why = left_out[0].longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"LEFT OUT: {len(left_out)} tests of the console in a browser: {why}", yellow=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    report = (yield).get_result()
    if report.failed and {"seed", "rng"} & set(getattr(item, "fixturenames", ())):
        report.sections.append(("seed", f"run again with --seed {item.config.option.seed}"))


@pytest.fixture
def seed(request):
    """The seed of this run: printed in the header, set with `--seed`."""
    return request.config.option.seed


@pytest.fixture
def rng(seed, request):
    """A random generator of this test's own: other tests do not move it."""
    return random.Random(f"{seed}/{request.node.nodeid}")


@pytest.fixture(autouse=True)
def through(request):
    """With `--through http`, every store that a test opens is behind a server."""
    if request.config.option.through == "nothing":
        yield
        return
    from tests.through_http import every_store

    with every_store():
        yield


@pytest.fixture
def anyio_backend():
    """The event loop of the tests that are coroutines."""
    return "asyncio"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def encoder():
    return HashEncoder()


@pytest.fixture
def folder(tmp_path, request):
    """Where the store of this test is, or will be. With `--log-in postgres`, or that parameter, in a database."""
    folder = tmp_path / "memory"
    if "postgres" in (request.config.option.log_in, getattr(request, "param", "")):
        postgres.put_log_in_postgres(folder, request.getfixturevalue("postgres_url"))
    return folder


@pytest.fixture(scope="session")
def postgres_url():
    """The URL of a PostgreSQL database for logs."""
    with postgres.server() as url:
        yield url


@pytest.fixture(scope="module")
def stoppable():
    """A PostgreSQL server of a module's own, prepared for logs: its tests stop it, or set it back."""
    with postgres.stoppable_server() as server:
        prepare_database(server.url)
        yield server


@pytest.fixture
def log(folder, clock):
    """An empty event log."""
    log = open_log(folder, clock=clock, create=True)
    yield log
    log.close()


@pytest.fixture
def store(folder, clock, encoder):
    """An empty store with a fake model. `log` opens the same folder."""
    with MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        yield store


@pytest.fixture
def bare(folder, clock):
    """An empty store without a model: turns are found by their words alone."""
    with MemoryStore.open(folder, model=None, clock=clock) as store:
        yield store


@pytest.fixture
def session(store):
    """A session of that store."""
    return store.start_session("s")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory of this test: an empty folder."""
    monkeypatch.chdir(tmp_path)
