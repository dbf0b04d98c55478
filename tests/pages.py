"""The documentation's pages as programs: their examples, and where their links lead."""

import ast
import asyncio
import inspect
import os
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = "docs/notebooks.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FRAMEWORK = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^```python\n.*?^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"`(\w+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^( *)(\S.*?)  # -> (.+)$")


def blocks(page: str) -> list[int]:
    """Return the lines of a page at which its Python blocks begin."""
    text = (ROOT / page).read_text()
    return [text.count("\n", 0, block.start()) + 1 for block in _BLOCK.finditer(text)]


def run_block(page: str, line: int, *, compare: bool = True) -> None:
    """Run the Python block that begins at that line of a page, by itself, in the current folder, without a model.

    With `compare`, raises `AssertionError` if an expression has another value than the block shows.
    """
    code = takewhile(lambda text: text != "```", (ROOT / page).read_text().splitlines()[line:])
    # As in a notebook, where `await` may stand outside of a function.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if page == NOTEBOOKS else 0
    _run("\n" * line + "\n".join(code), ROOT / page, flags=flags, compare=compare)


def run_docstring(of: Callable[..., object]) -> None:
    """Run the example in the docstring of a method: its indented lines. Compares values as `run_block` does."""
    lines = (inspect.getdoc(of) or "").splitlines()
    example = "\n".join(text[4:] for text in lines if text.startswith("    "))
    found = _run(f"from mnemolog import MemoryStore\n{example}", Path(of.__qualname__), flags=0, compare=True)
    found["store"].close()  # type: ignore[attr-defined]


def _run(source: str, name: Path, *, flags: int, compare: bool) -> dict[str, object]:
    """Run an example, in which lines keep their numbers and `x  # -> y` is an assertion. Returns its variables."""
    assert source.strip(), "no example"
    lines = (
        _SHOWN.sub(lambda found: f"{found[1]}_shown({found[2]}, {found[3]!r})", text) for text in source.splitlines()
    )
    module = types.ModuleType("docs")
    module.__dict__["_shown"] = _shown if compare else lambda value, as_text: None
    sys.modules["docs"] = module  # Classes that a block defines can be found by their name.
    try:
        waits = eval(compile(_without_model("\n".join(lines)), name, "exec", flags=flags), module.__dict__)
        if waits is not None:
            asyncio.run(waits)
    finally:
        del sys.modules["docs"]
    return module.__dict__


def run_framework_block(page: str, name: str) -> dict[str, Any]:
    """Run the block of a page that has this name in it, fenced as `py`: it needs a framework. Return its names."""
    (code,) = [block for block in _FRAMEWORK.findall((ROOT / page).read_text()) if name in block]
    defined: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code, f"{page}, {name}", "exec"), defined)
    return defined


def files(page: str) -> dict[str, str]:
    """Return the files that a page asks to save: the Python block after a line that ends with "`NAME.py`:"."""
    return {name: _without_model(source) for name, source in _SAVED.findall((ROOT / page).read_text())}


def commands(page: str) -> list[tuple[str, str]]:
    """Return the commands of a page's console blocks, each with the output that the page shows below it."""
    found = []
    for block in _CONSOLE.findall((ROOT / page).read_text()):
        first, *others = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert not first, "a console block begins with a command"
        found += [(command.strip(), shown) for command, _, shown in (other.partition("\n") for other in others)]
    return found


def run_command(command: str, folder: Path) -> str:
    """Run a command of a page in a shell, in that folder, without a model. Returns its output."""
    paths = [str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)]
    environment = os.environ | {
        "PATH": os.pathsep.join(paths),
        "MNEMOLOG_MODEL": "none",
        "COLUMNS": "120",
        "HOME": str(folder),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout


def shown_output(page: str) -> str:
    """Return what the page says its Python blocks print: the `text` blocks that follow them."""
    return "".join(_PRINTED.findall((ROOT / page).read_text()))


def links(page: str) -> list[tuple[str, str]]:
    """Return path and anchor of a page's links into the repository. The path of a link within the page is empty."""
    text = _CODE.sub("", (ROOT / page).read_text())
    found = [
        target.partition("#") for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", target)
    ]
    return [(path, anchor) for path, _, anchor in found]


def broken_links(page: str) -> list[str]:
    """Return the links into the repository that lead to no file, no heading, or a page outside of the site."""
    broken = []
    for path, anchor in links(page):
        target = (ROOT / page).parent / path if path else ROOT / page
        is_elsewhere = target.suffix == ".md" and str(target.resolve().relative_to(ROOT)) not in pages()
        if not target.exists() or is_elsewhere or (anchor and anchor not in _anchors(target)):
            broken.append(f"{path}#{anchor}" if anchor else path)
    return broken


def pages() -> list[str]:
    """Return all pages of the documentation, relative to the repository."""
    generated = ROOT / "docs" / "reference"
    found = [path for path in (ROOT / "docs").rglob("*.md") if generated not in path.parents]
    return sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *found])


def run_example(name: str) -> None:
    """Run a program from the folder of examples."""
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def assert_example_prints(capture: pytest.CaptureFixture[str], name: str, *lines: str) -> None:
    """Run a program from the folder of examples, which prints these lines among others."""
    run_example(name)
    printed = capture.readouterr().out
    for line in lines:
        assert line in printed


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    anchors: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", _CODE.sub("", page.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for other in anchors)
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def _without_model(source: str) -> str:
    return source.replace('model="all-MiniLM-L6-v2"', "model=None").replace(
        '.open("memory/")', '.open("memory/", model=None)'
    )


def _shown(value: object, as_text: str) -> None:
    assert repr(value) == as_text
