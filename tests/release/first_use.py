"""What a new user does first, with an installed mnemolog: python -I first_use.py README CONVERSATION [--help-only]

Runs in the environment of a built wheel, in an empty folder, and imports nothing of the repository.
"""

import contextlib
import io
import json
import re
import subprocess
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

from mnemolog.cli import every_command, run

PROGRAM = str(Path(sysconfig.get_path("scripts"), "mnemolog"))


def main(readme: Path, conversation: Path) -> None:
    """Run everything. Raises if something fails or has no answer."""
    every_help()
    piped()
    for adapter in ("langgraph", "mcp", "openai_agents", "watch"):
        import_module(f"mnemolog.adapters.{adapter}")
    found = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", readme.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    Path("first.py").write_text(found[1])
    assert output(sys.executable, "first.py") == found[2]
    commands(conversation)
    serve()


def every_help() -> None:
    """Print `--help` of the program and of each command."""
    for name in ("", *every_command()):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            status = run([*name.split(), "--help"])
        assert status == 0, name
        assert shown.getvalue().startswith("Usage: mnemolog"), name
        print(shown.getvalue())


def piped() -> None:
    """Import from standard input."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "mnemolog", "import", folder, "-", "--model", "none"]
        line = b'{"role": "user", "text": "hello"}\n'
        assert b"1 recorded" in subprocess.run(command, input=line, check=True, capture_output=True).stdout


def commands(conversation: Path) -> None:
    """Import, recall, rebuild, replay, verify on the command line."""
    assert output(PROGRAM, "--version").startswith("mnemolog ")
    output(PROGRAM, "import", "imported", str(conversation))
    for model in ([], ["--model", "none"]):
        assert json.loads(output(PROGRAM, "recall", "memory", "Lisbon", "--json", *model))["hits"]
    by_meaning = json.loads(output(PROGRAM, "recall", "memory", "Which town do they live in?", "--json"))["hits"]
    assert "vector" in by_meaning[0]["ranks"]
    output(PROGRAM, "rebuild", "memory", "all")
    assert "Lisbon" in output(PROGRAM, "replay", "memory", "--to", "2")
    output(PROGRAM, "verify", "memory")
    output(PROGRAM, "verify", "imported")


def serve() -> None:
    """A page and a call of the server."""
    command = [PROGRAM, "serve", "memory", "--port", "0", "--model", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[1]
        try:
            assert "<html" in urlopen(url, timeout=60).read().decode()
            asked = Request(f"{url}v1/recall", json.dumps({"query": "Lisbon"}).encode())
            asked.add_header("content-type", "application/json")
            assert json.load(urlopen(asked, timeout=60))["hits"]
        finally:
            server.terminate()
    assert server.returncode == 0


def output(*command: str) -> str:
    """Run a command and return what it prints. Raises `CalledProcessError` if it fails."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    if sys.argv[3:] == ["--help-only"]:
        every_help()
        piped()
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
