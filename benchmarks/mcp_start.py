"""How long an MCP server takes from its start to its first answers, over standard input and output.

python benchmarks/mcp_start.py [--model NAME] [--rounds N]      in an environment with the extra `mcp`

The store has a session with a turn. Each round is a process of its own. `greeted` is the reply to initialize, `listed`
that to tools/list, `recalled` that to a recall, which is made at once; `with vectors` is the first recall that the
model had part in, asked for again and again. The seconds of CPU that the server had used by then depend less on what
else the machine does (Linux only).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from mnemolog import MemoryStore

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}
RECALL = {"name": "recall", "arguments": {"query": "where does she live?"}}


class Taken(NamedTuple):
    """Seconds on the wall, and of CPU."""

    wall_s: float
    cpu_s: float


class Server:
    """A server process and the time since it was started."""

    def __init__(self, folder: str, model: str) -> None:
        self.started_at = time.perf_counter()
        command = [sys.executable, "-m", "mnemolog", "mcp", folder, "--model", model]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.calls = 0

    def call(self, method: str, params: dict[str, Any]) -> tuple[Any, Taken]:
        """Return the result of a request, and what was taken from the start of the process to it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.calls += 1
        request = {"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        return reply["result"], Taken(time.perf_counter() - self.started_at, self.cpu_s())

    def cpu_s(self) -> float:
        """Return the seconds of CPU that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tell(self, method: str) -> None:
        """Send a notification."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method}) + "\n")
        self.process.stdin.flush()


def run(folder: str, model: str) -> dict[str, Taken]:
    """Return what one start takes."""
    server = Server(folder, model)
    _, greeted = server.call("initialize", INITIALIZE)
    server.tell("notifications/initialized")
    _, listed = server.call("tools/list", {})
    found, recalled = server.call("tools/call", RECALL)
    times = {"greeted": greeted, "listed": listed, "recalled": recalled}
    while model != "none":
        if "vector" in found["structuredContent"]["result"]["legs"]:
            times["with vectors"] = recalled
            break
        found, recalled = server.call("tools/call", RECALL)
    server.process.communicate()
    return times


def main() -> None:
    """Print the medians and the extremes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="none")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with MemoryStore.open(folder, model=None) as store:
            store.start_session("trip").record("user", "I moved to Lisbon in March.")
        run(folder, options.model)  # Compiles what is not compiled yet.
        rounds = [run(folder, options.model) for _ in range(options.rounds)]
    for what in rounds[0]:
        walls, cpus = zip(*(times[what] for times in rounds), strict=True)
        print(f"{what:<13} {median(walls):.2f} s ({min(walls):.2f} to {max(walls):.2f}), CPU {median(cpus):.2f} s")


if __name__ == "__main__":
    main()
