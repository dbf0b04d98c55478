"""The suite's own time limits: a test that hangs ends, and says where it and its children were."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import WAIT_S

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]

HANGS = """
import multiprocessing, os, signal, subprocess, sys, threading

def waits_for_ever():
    threading.Event().wait()

def test_that_hangs():
    {how}
"""
FORKS = """
    if os.fork() == 0:
        waits_for_ever()
    os.wait()
    waits_for_ever()
"""
RUNS = """
    script = "def waits_for_ever():\\n    import threading; threading.Event().wait()\\nwaits_for_ever()"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
"""
SPAWNS = """
    child = multiprocessing.get_context("spawn").Process(target=waits_for_ever)
    child.start()
    child.join()
    assert child.exitcode == 0
"""


@pytest.mark.parametrize("how", [FORKS, RUNS, SPAWNS], ids=["a fork", "a program", "multiprocessing"])
def test_a_test_that_waits_for_a_child_that_hangs_shows_the_stack_of_the_child(tmp_path, how):
    """At its limit of seconds, whichever way the child was started."""
    (tmp_path / "test_it.py").write_text(HANGS.format(how=how.strip()))
    (tmp_path / "conftest.py").write_text(
        "import os\nos.environ['PYTHONFAULTHANDLER'] = '1'\n"
        "from tests import limits\nlimits.SAY_S = 1.0\n"
        "from tests.limits import pytest_pyfunc_call, pytest_timeout_set_timer\n"
    )
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=4", "--rootdir", tmp_path, tmp_path]
    command = [sys.executable, "-m", "pytest", *map(str, options)]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # Options of this run.
    ran = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "1 failed" in ran.stdout
    assert "in waits_for_ever" in ran.stdout + ran.stderr
