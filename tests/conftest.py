"""Options and fixtures of every test."""

from __future__ import annotations

import random

import pytest

from mnemolog import MemoryStore
from mnemolog.infra.log import EventLog
from tests.support import FakeClock, HashEncoder


def pytest_addoption(parser):
    group = parser.getgroup("mnemolog")
    group.addoption("--seed", type=int, default=None, help="seed of the random tests (default: a new one)")
    group.addoption("--report", default=None, metavar="PATH", help="where the fault suites write what they tried")
    group.addoption("--scale", choices=["ci", "nightly"], default="ci", help="how much the fault suites try")
    group.addoption("--kills", type=int, default=50, help="how often the crash tests kill a process")


def pytest_configure(config):
    if config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(2**32)


def pytest_report_header(config):
    return f"mnemolog: --seed {config.option.seed} --kills {config.option.kills}"


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


@pytest.fixture
def kills(request):
    """How many kills a crash test makes."""
    return request.config.option.kills


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def encoder():
    return HashEncoder()


@pytest.fixture
def folder(tmp_path):
    """Where the store of this test is, or will be."""
    return tmp_path / "memory"


@pytest.fixture
def log(folder, clock):
    """An empty event log."""
    log = EventLog.open(folder, clock=clock, create=True)
    yield log
    log.close()


@pytest.fixture
def store(folder, clock, encoder):
    """An empty store with a fake model. `log` opens the same folder."""
    with MemoryStore.open(folder, model=encoder, clock=clock, background=False) as store:
        yield store
