"""Adapters are extras: the library does without them, and they say what they lack."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = {"langgraph": "langgraph.checkpoint.base"}


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_adapter_without_its_extra_says_which_to_install(extra):
    """Whatever is installed here: the other side's package is hidden."""
    script = (
        f"import sys; sys.modules[{extra!r}] = None\n"
        f"try: import mnemolog.adapters.{extra}\n"
        "except ImportError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert f"pip install 'mnemolog[{extra}]'" in ran.stdout


def test_the_library_imports_no_adapter():
    """Nor what it is made for."""
    script = "import sys, mnemolog, mnemolog.seam; print([name for name in sys.modules if 'langgraph' in name])"
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"
