"""A process of `mnemolog serve`."""

import asyncio
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from starlette.responses import PlainTextResponse

from mnemolog.server.application import _Server
from mnemolog.server.http.connections import Connections
from mnemolog.server.http.guard import Guard
from mnemolog.server.http.monitoring import Metrics
from tests.support import WAIT_S, wait_until


def command(folder, *options):
    return [sys.executable, "-m", "mnemolog", "serve", str(folder), "--model", "none", "--port", "0", *options]


@contextmanager
def server(folder, *options, run=command, says=r"console (https?://\S+)/  API (\S+)\n"):
    """A server process: gives its URL, without the slash at its end, and the process, whose `errors` returns stderr.

    `says` is the line that it prints when it serves, with the URL as its first group.
    """
    with tempfile.TemporaryDirectory() as kept:
        out, err = Path(kept, "out"), Path(kept, "err")
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen(run(folder, *options), stdout=stdout, stderr=stderr)
        process.errors = err.read_text
        try:
            wait_until(lambda: "\n" in out.read_text() or process.poll() is not None, what="the server to serve")
            found = re.match(says, out.read_text())
            assert found, err.read_text()
            yield found[1], process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) in (0, -signal.SIGKILL), err.read_text()


@asynccontextmanager
async def in_process(app, config, *, stop=lambda: None):
    """A server in this event loop that answers with an ASGI application: gives its port, and its guard."""
    guard, started = Guard(app, config, Metrics(), probes={"/healthz": PlainTextResponse("ok\n")}), asyncio.Event()
    with config.listen() as listening:
        connections = Connections(config.limits, descriptors=1_000_000, token=config.needs_token)
        guard.metrics.gauge("mnemolog_http_connections", "Connections that are open.", lambda: connections.count)
        running = _Server(guard, config, connections, listening, stop)
        task = asyncio.create_task(connections.serve(running, listening, started=started.set))
        try:
            await started.wait()
            yield listening.getsockname()[1], guard
        finally:
            running.should_exit = True
            await task


async def until(condition):
    """Wait until a condition holds, while the event loop runs."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)
