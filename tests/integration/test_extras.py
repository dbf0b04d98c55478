"""Adapters are extras: the core does without them, and who imports one without its extra is told which to install."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from mnemolog import MnemologError
from mnemolog.domain.errors import WEIGHTS, ExtraMissing, install_command

ROOT = Path(__file__).parents[2]
EXTRAS = {"hermes": "hermes_constants", "langgraph": "langgraph", "mcp": "mcp", "openai_agents": "agents"}
"""The adapter's module, and what of its extra is the first to be missed. `watch` misses its own when it follows."""


def run(script, *arguments):
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)


def test_an_adapter_without_its_extra_says_which_one_to_install():
    """As an ImportError, for who tries it, and as an error of ours with a hint. Whether it is installed or not."""
    script = (
        "import sys\n"
        f"for adapter, missed in {EXTRAS!r}.items():\n"
        "    sys.modules[missed] = None\n"
        "    try: exec(f'from mnemolog.adapters.{adapter} import *')\n"
        "    except ImportError as error: print(error)"
    )
    told = {adapter: install_command(adapter.replace("_", "-")) for adapter in EXTRAS}
    expected = [f"the module {EXTRAS[adapter]} is not installed: {command}" for adapter, command in told.items()]
    ran = run(script)
    assert ran.stdout.splitlines() == expected, ran.stderr
    assert issubclass(ExtraMissing, ImportError)
    assert issubclass(ExtraMissing, MnemologError)


def test_install_commands_name_extras_that_there_are():
    """All that the code asks for, by a name that pip takes from what is installed already."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.compile(r"(?<![.\w])(?:require|ExtraMissing|install_command)\(['\"]([\w-]+)")
    rooms = ("adapters", "api", "cli", "domain", "infra", "server")
    named = {
        extra for room in rooms for path in (ROOT / room).rglob("*.py") for extra in asked.findall(path.read_text())
    }
    assert {"client", "mcp", "minilm", "server"} <= named <= declared.keys()
    assert install_command("server") == "pip install 'mnemolog[server]'"
    assert WEIGHTS in declared["dev"]


def test_the_command_without_its_extra_says_so_and_creates_nothing(tmp_path):
    """One line, a hint, exit status 1."""
    script = "import sys; sys.modules['mcp'] = None; from mnemolog.cli import main; main()"
    ran = run(script, "mcp", str(tmp_path / "memory"))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"error: the module mcp is not installed: {install_command('mcp')}\nhint: ")
    assert not (tmp_path / "memory").exists()


def test_the_library_imports_no_adapter_and_nothing_of_the_other_sides():
    """Nor does what adapters build on."""
    others = {*(f"mnemolog.adapters.{adapter}" for adapter in EXTRAS), *EXTRAS.values(), "langchain_core", "watchfiles"}
    shared = "mnemolog.adapters.support.store_access, mnemolog.adapters.importers.transcripts"
    script = f"import sys, mnemolog, {shared}; print(sorted({others!r} & set(sys.modules)))"
    assert run(script).stdout.strip() == "[]"


def test_the_library_imports_no_adapter_server_or_command():
    """`python -m mnemolog` apart, which runs the command line."""
    importing = {
        str(path.relative_to(ROOT))
        for folder in ("api", "domain", "infra", "projections")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*(from|import) mnemolog\.(adapters|cli|server)", path.read_text(), re.MULTILINE)
    }
    assert importing == {"api/__main__.py"}
