"""A memory of 20,000 turns, a server of it on a socket, a browser, and a person with a page for each test."""

import shutil

import pytest
from filelock import FileLock

from tests.browser import chromium, long_memory
from tests.browser.chromium import Visit
from tests.browser.serving import serving


@pytest.fixture(scope="session")
def made_memory(tmp_path_factory):
    """The folder of the memory of 20,000 turns, made once for all processes of this run. Nobody writes to it."""
    shared = tmp_path_factory.getbasetemp()
    if shared.name.startswith("popen-"):  # A process of pytest-xdist has a folder of its own in that of the run.
        shared = shared.parent
    folder = shared / "long-memory"
    with FileLock(shared / "long-memory.lock"):
        if not folder.exists():
            long_memory.make(shared / "long-memory-unfinished")
            (shared / "long-memory-unfinished").rename(folder)
    return folder


@pytest.fixture
def memory(made_memory, tmp_path):
    """The folder of a copy of that memory, for a test that changes it."""
    return shutil.copytree(made_memory, tmp_path / "memory")


@pytest.fixture(scope="package")
def browser():
    """A Chromium. It lives no longer than these tests: no event loop can run beside it."""
    if chromium.find() is None:
        pytest.skip("no Chromium on this machine; install it with: apt-get install chromium")
    with chromium.running() as browser:
        yield browser


@pytest.fixture(scope="package")
def reading(made_memory, tmp_path_factory):
    """The URL of a console over the memory of 20,000 turns, read-only."""
    with serving(shutil.copytree(made_memory, tmp_path_factory.mktemp("read") / "memory")) as url:
        yield url


@pytest.fixture
def visit(browser):
    """Somebody who opens a console. Whatever went wrong in a page fails the test at its end."""
    visits = []

    def visit(url, **options):
        visits.append(Visit(browser, url, **options))
        return visits[-1]

    yield visit
    for made in visits:
        made.context.close()
    assert not [trouble for made in visits for trouble in made.troubles]
