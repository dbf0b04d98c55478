"""Adding the server to a program, by that program's own command, and removing it."""

import json
import shlex
import sys
from pathlib import Path
from typing import get_args

import pytest

from mnemolog.adapters.support.mcp_hosts import NAME, McpHost
from mnemolog.cli.entry import run
from tests.pages import ROOT

FOLDER = "a b/it's $HOME"
SERVER = [sys.executable, "-m", "mnemolog"]


@pytest.fixture
def mnemolog(tmp_path, monkeypatch, capfd):
    """Run `mnemolog mcp`; gives status, output and errors. Programs with a command print the words they are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "bin")
    Path("bin").mkdir()
    for name in ("claude", "codex", "code"):
        Path("bin", name).write_text(
            f"#!{sys.executable} -IS\nimport json, sys; print(json.dumps(sys.argv)); sys.exit(3)"
        )
        Path("bin", name).chmod(0o755)
    return lambda *words: (run(["--key-file", "k", "mcp", FOLDER, *words]), *capfd.readouterr())


@pytest.mark.parametrize("host", get_args(McpHost))
def test_what_is_printed_is_what_is_run_and_keeps_each_word(mnemolog, host, tmp_path):
    """A path with a space, a quote and a dollar is one word; options go along, paths become whole; nothing opens."""
    options = ["--read-only", "--scope", "x y", "--scope", "z"]
    _, printed, _ = mnemolog(*options, "--install", host)
    ran = mnemolog(*options, "--install", host, "--run")
    if host in ("claude", "codex", "code"):
        assert [host, *shlex.split(printed)[1:]] == shlex.split(printed) == [host, *json.loads(ran[1])[1:]]
        assert ran[0] == 3, "its exit status is ours"
    else:
        assert ran[0] == 2, "there is nothing to run"
    if host in ("claude", "codex"):
        server = printed.partition(" -- ")[2]
        assert shlex.split(mnemolog("--uninstall", host)[1]) == [host, "mcp", "remove", NAME]
    else:
        entry = json.loads(shlex.split(printed)[2] if host == "code" else printed[printed.index("{") :])
        entry = entry if host == "code" else next(iter(entry.values()))[NAME]
        server = shlex.join([entry["command"], *entry["args"]])
        assert f'Remove "{NAME}" below ' in mnemolog("--uninstall", host)[1]
    assert shlex.split(server) == [*SERVER, "--key-file", str(tmp_path / "k"), "mcp", str(tmp_path / FOLDER), *options]
    assert not (tmp_path / FOLDER).exists()
    assert f"| `{host}` |" in (ROOT / "docs" / "adapters" / "mcp.md").read_text()


def test_what_cannot_be_done_says_what_to_do(mnemolog):
    for words in (["--install", "claude", "--http"], ["--install", "claude", "--uninstall", "claude"], ["--run"]):
        assert mnemolog(*words)[0] == 2
    Path("bin", "codex").unlink()
    status, printed, errors = mnemolog("--install", "codex", "--run")
    assert (status, printed) == (1, "")
    assert "codex cannot be run" in errors
    assert "leave out --run" in errors
