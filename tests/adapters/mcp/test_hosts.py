"""Adding the server to a program, by that program's own command, and removing it."""

import json
import shlex
import sys
from pathlib import Path
from typing import NamedTuple, get_args

import pytest

from mnemolog.adapters.support.mcp_hosts import NAME, McpHost
from mnemolog.cli.entry import run
from tests.pages import ROOT

SERVER = [sys.executable, "-m", "mnemolog"]


class Ran(NamedTuple):
    status: int
    printed: str
    errors: str


@pytest.fixture
def mnemolog(tmp_path, monkeypatch, capfd):
    """Run a command line where `claude`, `codex` and `code` are programs that print the words they are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for name in ("claude", "codex", "code"):
        program = tmp_path / "bin" / name
        noting = "print(json.dumps(sys.argv[1:])); sys.exit(3 * ('remove' in sys.argv))"
        program.write_text(f"#!{sys.executable} -IS\nimport json, sys; {noting}\n")
        program.chmod(0o755)

    def run_words(*words):
        return Ran(run(list(words)), *capfd.readouterr())

    return run_words


@pytest.mark.parametrize("host", ["claude", "codex", "code"])
def test_the_command_that_is_printed_is_the_one_that_is_run_and_keeps_each_word(mnemolog, host, tmp_path):
    """A path with a space, a quote and a dollar is one word; options go along, paths become whole."""
    folder = "a b/it's $HOME"
    options = ["--key-file", "k", "mcp", folder, "--read-only", "--scope", "x y", "--scope", "z", "--install", host]
    printed, ran = mnemolog(*options), mnemolog(*options, "--run")
    assert (printed.status, ran.status) == (0, 0), ran.errors
    program, *words = shlex.split(printed.printed)
    assert (program, words) == (host, json.loads(ran.printed))
    if host == "code":
        entry = json.loads(words[1])
        assert (words[0], entry["name"]) == ("--add-mcp", NAME)
        server = [entry["command"], *entry["args"]]
    else:
        assert words[:2] == ["mcp", "add"]
        server = words[words.index("--") + 1 :]
    keys, scopes = ["--key-file", str(tmp_path / "k")], ["--scope", "x y", "--scope", "z"]
    assert server == [*SERVER, *keys, "mcp", str(tmp_path / folder), "--read-only", *scopes]
    assert not (tmp_path / folder).exists(), "nothing was opened"


def test_the_opposite_is_its_own_command_too_and_its_exit_status_is_ours(mnemolog):
    for host in ("claude", "codex"):
        printed, ran = mnemolog("mcp", "m", "--uninstall", host), mnemolog("mcp", "m", "--uninstall", host, "--run")
        assert shlex.split(printed.printed) == [host, "mcp", "remove", NAME] == [host, *json.loads(ran.printed)]
        assert ran.status == 3


@pytest.mark.parametrize(
    ("host", "key"), [("cursor", "mcpServers"), ("claude-desktop", "mcpServers"), ("zed", "context_servers")]
)
def test_for_a_program_without_a_command_the_lines_and_their_file_are_printed(mnemolog, host, key, tmp_path):
    """Nothing is written, and `--run` is refused."""
    printed = mnemolog("mcp", "m", "--install", host).printed
    entry = json.loads(printed[printed.index("{") :])[key][NAME]
    assert [entry["command"], *entry["args"]] == [*SERVER, "mcp", str(tmp_path / "m")]
    assert f'"{key}"' in mnemolog("mcp", "m", "--uninstall", host).printed
    assert mnemolog("mcp", "m", "--install", host, "--run").status == 2


def test_what_cannot_be_done_says_what_to_do(mnemolog):
    for words in (["--install", "claude", "--http"], ["--install", "claude", "--uninstall", "claude"], ["--run"]):
        assert mnemolog("mcp", "m", *words).status == 2
    Path("bin", "codex").unlink()
    missing = mnemolog("mcp", "m", "--install", "codex", "--run")
    assert (missing.status, missing.printed) == (1, "")
    assert "codex cannot be run" in missing.errors
    assert "leave out --run" in missing.errors


def test_every_program_is_on_the_page():
    page = (ROOT / "docs" / "adapters" / "mcp.md").read_text()
    assert all(f"| `{host}` |" in page for host in get_args(McpHost))
