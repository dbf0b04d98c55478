"""A server process of a store for somebody with a browser."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.serving import server


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.browser.server_process", str(folder), *options]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """Serve the store in `folder`; yield the URL. Fails if the server wrote anything to stderr."""
    with server(folder, *options, run=command) as (url, process):
        yield url
        assert process.errors() == ""
