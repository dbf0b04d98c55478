"""What `systemctl` does for the walk, with the units of a folder: `python systemctl.py FOLDER COMMAND UNIT …`."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path


def values(unit: str, name: str) -> list[str]:
    """The values of a setting of a unit."""
    return re.findall(rf"^{name}=(.*)$", unit, re.MULTILINE)


def environment(unit: str) -> dict[str, str]:
    """The variables that a unit sets, and those that only the walk needs."""
    lines = [pair for line in values(unit, "Environment") for pair in shlex.split(line)]
    for file in values(unit, "EnvironmentFile"):
        lines += [line for line in Path(file).read_text().splitlines() if line and not line.startswith("#")]
    kept = {name: os.environ[name] for name in ("PATH", "MNEMOLOG_MODEL") if name in os.environ}
    return kept | dict(line.split("=", 1) for line in lines)


def stop(running: Path, number: int) -> None:
    """Send a signal to the process of a unit and wait until it has ended."""
    if running.exists():
        pid = int(running.read_text())
        os.kill(pid, number)
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            time.sleep(0.05)
        running.unlink()


def control(folder: Path, command: str, name: str) -> None:
    """Start, restart, stop or reload a unit."""
    unit, running = (folder / "units" / f"{name}.service").read_text(), folder / f"{name}.pid"
    for path, here in (("/opt/mnemolog/venv/bin", "bin"), ("/var/lib/mnemolog", "var"), ("/etc/mnemolog", "etc")):
        unit = unit.replace(path, str(folder / here))
    (start,) = values(unit, "ExecStart")
    if values(unit, "Type") == ["oneshot"]:
        for line in (*values(unit, "ExecStartPre"), start):
            subprocess.run(shlex.split(line), env=environment(unit), check=True)
    elif command == "reload":
        os.kill(int(running.read_text()), signal.SIGHUP)
    else:
        if command in ("restart", "stop"):
            stop(running, signal.SIGTERM)
        if command != "stop":
            port = (folder / "port").read_text()
            with (folder / "journal").open("a") as journal:
                process = subprocess.Popen(
                    [*shlex.split(start), "--port", port],
                    env=environment(unit),
                    stdin=subprocess.DEVNULL,
                    stdout=journal,
                    stderr=journal,
                    start_new_session=True,
                )
            running.write_text(str(process.pid))


if __name__ == "__main__":
    where, asked, *names = sys.argv[1:]
    for unit_name in (item for item in names if not item.startswith("--") and not item.endswith(".timer")):
        control(Path(where), "start" if asked == "enable" else asked, unit_name)
