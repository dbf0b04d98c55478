"""The examples of examples/deploy fit the server that they run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog.cli.app import loaded
from tests.support import WAIT_S

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
UNIT, CONTAINER = (DEPLOY / "mnemolog.service").read_text(), (DEPLOY / "Containerfile").read_text()


def options(command):
    """Parse a command line of `serve`; a wrong one raises."""
    program, serve, *arguments = command
    assert (Path(program).name, serve) == ("mnemolog", "serve")
    return loaded("serve").make_context("serve", arguments).params


def listed(instruction):
    """The list of an instruction of the container file."""
    return json.loads(re.search(rf"^{instruction} (\[.*\])$", CONTAINER, re.MULTILINE)[1])


def test_the_unit_starts_the_server_with_options_that_it_has():
    """Behind a proxy on the same machine."""
    found = options(shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1]))
    assert found["behind_proxy"]
    assert found["host"] == "127.0.0.1"
    assert found["store"] == "/var/lib/mnemolog/memory"


def test_the_container_starts_the_server_with_options_that_it_has():
    """As a user without rights, with a check of its health at the port that it listens at."""
    found = options([*listed("ENTRYPOINT"), *listed("CMD")])
    assert found["behind_proxy"]
    assert found["host"] == "0.0.0.0"
    assert f"EXPOSE {found['port']}" in CONTAINER
    assert f":{found['port']}/healthz" in CONTAINER
    assert re.search("^USER mnemolog$", CONTAINER, re.MULTILINE)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_unit(tmp_path):
    """With a program that is there in place of the one of the example."""
    unit = tmp_path / "mnemolog.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", UNIT).replace("User=mnemolog", "User=root"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert "mnemolog.service:" not in checked.stderr, checked.stderr
