"""The suite's own time limits: a test that hangs ends, and says where it and its children were."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import WAIT_S

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]

HANGS = """
import multiprocessing, os, subprocess, sys, threading

def waits_for_ever():
    threading.Event().wait()

def test_that_hangs():
    child = multiprocessing.get_context("spawn").Process(target=waits_for_ever)
    child.start()
    script = "def waits_for_ever():\\n    import threading; threading.Event().wait()\\nwaits_for_ever()"
    program = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    if os.fork() == 0:
        waits_for_ever()
    errors = program.communicate()[1]
    child.join()
    os.wait()
    assert program.returncode == 0, errors
"""


def test_a_test_that_waits_for_children_that_hang_shows_the_stack_of_each(tmp_path):
    """At its limit of seconds, whichever way a child was started: a fork, a program, by multiprocessing."""
    (tmp_path / "test_it.py").write_text(HANGS)
    (tmp_path / "conftest.py").write_text(
        "import os\nos.environ['PYTHONFAULTHANDLER'] = '1'\n"
        "from tests import limits\nlimits.SAY_S = 1.0\n"
        "from tests.limits import pytest_pyfunc_call, pytest_timeout_set_timer\n"
    )
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=6", "--rootdir", tmp_path, tmp_path]
    command = [sys.executable, "-m", "pytest", *map(str, options)]
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # Options of this run.
    ran = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "1 failed" in ran.stdout
    assert (ran.stdout + ran.stderr).count("in waits_for_ever") >= 3
