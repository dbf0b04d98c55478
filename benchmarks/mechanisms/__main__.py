"""What memories do when it matters, beside one another: `make mechanisms`, which writes docs/reports/mechanisms.md.

python -m benchmarks.mechanisms --json mechanisms.json --page mechanisms.md
python -m benchmarks.mechanisms chroma --scenario erasure

Each memory runs in an environment of its own, made of benchmarks/mechanisms/requirements; each scenario in a process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.mechanisms.page import page, with_table
from benchmarks.mechanisms.scenarios import SCENARIOS, Result
from benchmarks.outside.machine import machine

HERE: Final = Path(__file__).parent
ADAPTERS: Final = ("mnemolog", *sorted(path.stem for path in (HERE / "requirements").glob("*.txt")))
LIMIT_S: Final = 900


def environment(name: str, folder: Path) -> Path | None:
    """Return the interpreter of a memory's own environment, made if it is not there; None if it cannot be made."""
    if name == "mnemolog":
        return Path(sys.executable)
    python = folder / name / "bin" / "python"
    if not python.exists():
        uv = Path(sys.executable).with_name("uv")
        asked = ["pip", "install", "-q", "--python", python, "-r", HERE / "requirements" / f"{name}.txt"]
        for command in (["venv", "-q", "--python", sys.executable, python.parent.parent], asked):
            if subprocess.run([uv, *map(str, command)], check=False).returncode != 0:
                return None
    return python


def tried(python: Path, name: str, scenario: str) -> dict[str, Any]:
    """Return how a scenario ended."""
    root = HERE.parents[1]
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]) if name == "mnemolog" else str(root)}
    with tempfile.TemporaryDirectory(prefix="mechanisms-") as folder:
        command = [str(python), "-m", "benchmarks.mechanisms.one", name, scenario, str(Path(folder, "result.json"))]
        nowhere, env = subprocess.DEVNULL, os.environ | paths | {"TMPDIR": folder}
        try:
            subprocess.run(command, env=env, timeout=LIMIT_S, check=True, stdout=nowhere, stderr=nowhere)
            found: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
        except subprocess.TimeoutExpired:
            said = [f"did not end within {LIMIT_S} seconds"]
            found = vars(Result("not tried", {}, said=said)) | {"version": "", "how": ""}
        return found


def main() -> None:
    """Run, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memories", nargs="*", default=ADAPTERS, metavar="MEMORY", help=", ".join(ADAPTERS))
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="only this one; may be repeated")
    parser.add_argument("--environments", type=Path, default=HERE.parents[1] / "build" / "mechanisms", metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="what is there already of others stays")
    parser.add_argument("--page", type=Path, metavar="FILE", help="the table of comparison.md above it is written, too")
    arguments = parser.parse_args()
    all_found: dict[str, Any] = {"memories": {}}
    if arguments.json and arguments.json.exists():
        all_found = json.loads(arguments.json.read_text())
    all_found |= {"date": time.strftime("%Y-%m-%d"), "python": platform.python_version(), "machine": machine()}
    for name in arguments.memories:
        python = environment(name, arguments.environments)
        results = all_found["memories"].setdefault(name, {})
        for scenario in arguments.scenario or SCENARIOS:
            if python is None:
                results[scenario] = vars(Result("not installed here", {})) | {"version": "", "how": ""}
                continue
            results[scenario] = found = tried(python, name, scenario)
            print(name, scenario, found["verdict"], found["counts"], *found["said"][:2], sep=" | ", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps(all_found, indent=1) + "\n")
    if arguments.page:
        arguments.page.write_text(page(all_found))
        comparison = arguments.page.parents[1] / "comparison.md"
        comparison.write_text(with_table(comparison.read_text(), all_found))


if __name__ == "__main__":
    main()
