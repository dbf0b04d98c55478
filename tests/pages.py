"""The documentation's pages as programs: their examples, and where their links lead."""

from __future__ import annotations

import re
import runpy
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PRINTED = re.compile(r"^```python\n.*?^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^(\S.*?)  # -> (.+)$")


def run_page(page: str) -> None:
    """Run a page's Python blocks as one program, in the folder one is in, without a model.

    Raises `AssertionError` where one gives something else than it shows.
    """
    source = _program(page)
    assert source.strip(), "no example"
    module = types.ModuleType("docs")
    module.__dict__["_shown"] = _shown
    sys.modules["docs"] = module  # Classes that a page defines can be found by their name.
    try:
        exec(compile(source, ROOT / page, "exec"), module.__dict__)
    finally:
        del sys.modules["docs"]


def shown_output(page: str) -> str:
    """Return what the page says its Python blocks print: the `text` blocks that follow them."""
    return "".join(_PRINTED.findall((ROOT / page).read_text()))


def broken_links(page: str) -> list[str]:
    """Return the links into the repository that lead nowhere."""
    targets = re.findall(r"\]\(([^)#:]+)[)#]", (ROOT / page).read_text())
    return [target for target in targets if not ((ROOT / page).parent / target).exists()]


def run_example(name: str) -> None:
    """Run a program from the folder of examples."""
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def _program(page: str) -> str:
    """Return the blocks as one program, its other lines blank, `x  # -> y` as an assertion."""
    text = (ROOT / page).read_text()
    lines = [""] * text.count("\n")
    for block in _BLOCK.finditer(text):
        first = text.count("\n", 0, block.start(1))
        for number, line in enumerate(block[1].splitlines(), first):
            shown = _SHOWN.match(line)
            lines[number] = f"_shown({shown[1]}, {shown[2]!r})" if shown else line
    return "\n".join(lines).replace('model="all-MiniLM-L6-v2"', "model=None")


def _shown(value: object, as_text: str) -> None:
    assert repr(value) == as_text
