"""A process of `mnemolog serve`."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from tests.support import WAIT_S, wait_until


def command(folder, *options):
    return [sys.executable, "-m", "mnemolog", "serve", str(folder), "--model", "none", "--port", "0", *options]


@contextmanager
def server(folder, *options, run=command):
    """A server process: gives its URL, without the slash at its end, and the process, whose `errors` returns stderr."""
    with tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(run(folder, *options), stdout=stdout, stderr=stderr)
        process.errors = err.read_text
        try:
            wait_until(lambda: "\n" in out.read_text() or process.poll() is not None, what="the server to serve")
            found = re.match(r"console (https?://\S+)/  API (\S+)\n", out.read_text())
            assert found, err.read_text()
            yield found[1], process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL), err.read_text()
