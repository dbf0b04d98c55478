"""The command line in this process: starting Python a hundred times would take minutes."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import NamedTuple

import pytest

from mnemolog.cli import main


class Ran(NamedTuple):
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def json(self):
        assert self.returncode == 0, self.stderr
        return json.loads(self.stdout)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line in this process."""
    for name in [name for name in os.environ if name.startswith("MNEMOLOG")]:
        monkeypatch.delenv(name)

    def run(*arguments, store=None, stdin=""):
        monkeypatch.setattr(sys, "argv", ["mnemolog", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        with monkeypatch.context() as only_here:
            if store is not None:
                only_here.setenv("MNEMOLOG_STORE", str(store))
            with pytest.raises(SystemExit) as exited:
                main()
        return Ran(exited.value.code or 0, *capsys.readouterr())

    return run
