"""The newest versions that pyproject.toml allows, tried in the gate: `make test-newest`.

The environment `build/newest` holds what constraints-newest.txt lists, and is made again when that file changes: from
uv's cache, else from the package index. Where neither has it, nothing is tried, and a line says so. `make newest`
resolves the file anew; a release of somebody else turns nothing red before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
HOME = ROOT / "build" / "newest"
LISTED = ROOT / "constraints-newest.txt"
EXTRAS = ("client", "postgres", "server", "watch")
"""Those without a model and without another side's program."""


def main() -> None:
    """Raise `CalledProcessError` or `AssertionError` where something differs from the pinned versions."""
    if sys.argv[1:] == ["--resolve"]:
        LISTED.write_text(resolved())
    elif (python := environment()) is None:
        print("not tried: the newest versions are neither in uv's cache nor can they be fetched")
    else:
        assert first_use(python) == first_use(Path(sys.executable)), "`first_use.py - - --help-only` differs"


def resolved() -> str:
    """Return the newest versions that the ranges allow, for every Python that is supported, as constraints."""
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    command = ["uv", "pip", "compile", "-q", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
    listed = subprocess.run(
        [*command, *extras, "pyproject.toml"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return f"# The newest versions that pyproject.toml allows: `make newest`. The gate tries them.\n{listed.stdout}"


def environment() -> Path | None:
    """Return the interpreter of the environment, None if it cannot be made."""
    python, stamp = HOME / "bin" / "python", HOME / "made-of.txt"
    made_of = f"{sys.version}\n{LISTED.read_text()}"
    if stamp.exists() and stamp.read_text() == made_of:
        return python
    shutil.rmtree(HOME, ignore_errors=True)
    subprocess.run(["uv", "venv", "-q", "--python", sys.executable, HOME], check=True)
    install = ["uv", "pip", "install", "-q", "--only-binary", ":all:", "--python", python, "-r", LISTED]
    offline = subprocess.run([*install, "--offline"], stderr=subprocess.DEVNULL, check=False).returncode
    if offline and subprocess.run(install, check=False).returncode:
        return None
    stamp.write_text(made_of)
    return python


def first_use(python: Path, *options: str) -> str:
    """Return the help of every command as an interpreter shows it, after it has imported a line of standard input."""
    script = ROOT / "tests" / "release" / "first_use.py"
    known = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "90"}
    with TemporaryDirectory() as folder:
        command = [python, *options, script, "-", "-", "--help-only"]
        return subprocess.run(command, cwd=folder, env=known, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    os.environ |= {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), "UV_PYTHON_DOWNLOADS": "never"}
    main()
