"""What starts and what is shipped: imports of a fresh interpreter, extras that are missing, the wheel."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from mnemolog import MemoryStore, MnemologError
from mnemolog.cli.app import MODULES
from mnemolog.domain.errors import WEIGHTS, ExtraMissing, install_command
from tests.pages import ROOT
from tests.support import HashEncoder

HEAVY = {"torch", "sentence_transformers", "faiss"}


def run(script, *arguments):
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])


def test_what_needs_no_vectors_imports_no_heavy_library(tmp_path):
    """A status line must not wait for a neural network."""
    script = (
        "import sys; from mnemolog import MemoryStore\n"
        f"with MemoryStore.open({str(tmp_path / 'memory')!r}, background=False) as store:\n"
        "    store.start_session('s').record('user', 'tea')\n"
        "    store.status(), store.replay(), store.verify(), store.admin.doctor(fix=True), store.sessions()\n"
        f"    print(sorted({HEAVY | {'numpy'}!r} & set(sys.modules)))\n"
        "    store.recall('tea', mode='text')\n"
        f"    print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    assert run(script).stdout.split() == ["[]", "[]"]


def test_a_command_that_reads_imports_only_what_it_needs(tmp_path):
    """What it starts with is most of what it takes. It ends without a search for garbage in all modules."""
    heavy = HEAVY | {"numpy", "rich", "dateutil", "mnemolog.adapters.importers", "cryptography"}
    with MemoryStore.open(tmp_path / "memory", model=None):
        pass
    script = (
        "import atexit, gc, sys; from mnemolog.cli import main\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, file=sys.stderr))\n"
        "for command in ('status', 'head', 'sessions'):\n"
        f"    sys.argv = ['mnemolog', command, {str(tmp_path / 'memory')!r}, '--json']\n"
        "    try: main()\n"
        "    except SystemExit as ended: assert not ended.code\n"
        f"print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    assert run(script).stderr.split() == ["[]", "True"]


def test_a_first_recall_imports_no_masked_arrays(tmp_path):
    """`numpy.ma` is large, and nothing here needs it."""
    with MemoryStore.open(tmp_path / "memory", model=HashEncoder()) as store:
        store.start_session("s").record("user", "green tea from Porto")
        store.admin.catch_up_vectors()
    script = (
        "import sys; from mnemolog import MemoryStore; from tests.support import HashEncoder\n"
        f"with MemoryStore.open({str(tmp_path / 'memory')!r}, model=HashEncoder(), background=False) as store:\n"
        "    assert len(store.recall('tea')) == 1\n"
        "print('faiss' in sys.modules, 'numpy.ma' in sys.modules)"
    )
    assert run(script).stdout.strip() == "True False"


def test_a_command_imports_only_commands_that_print_the_same(tmp_path):
    """Help without a command imports none."""
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(name for name in sys.modules if name.startswith('mnemolog.cli.')))"
    )
    for arguments, loaded in (
        (["head", str(tmp_path)], {"store"}),
        (["notes", "--help"], {"sessions"}),
        (["--help"], set()),
        (["nonsense"], set()),
    ):
        found = ast.literal_eval(run(script, *arguments).stdout.splitlines()[-1])
        found = {name.rpartition(".")[2] for name in found}
        assert found & set(MODULES.values()) == loaded, arguments


EXTRAS = {"hermes": "hermes_constants", "langgraph": "langgraph", "mcp": "mcp", "openai_agents": "agents"}
"""The adapter's module, and what of its extra is the first to be missed. `watch` misses its own when it follows."""


def started(script, *arguments):
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
    ran = started(script)
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
    ran = started(script, "mcp", str(tmp_path / "memory"))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"error: the module mcp is not installed: {install_command('mcp')}\nhint: ")
    assert not (tmp_path / "memory").exists()


def test_the_library_imports_no_adapter_and_nothing_of_the_other_sides():
    """Nor does what adapters build on."""
    others = {*(f"mnemolog.adapters.{adapter}" for adapter in EXTRAS), *EXTRAS.values(), "langchain_core", "watchfiles"}
    shared = "mnemolog.adapters.support.store_access, mnemolog.adapters.importers.transcripts"
    script = f"import sys, mnemolog, {shared}; print(sorted({others!r} & set(sys.modules)))"
    assert started(script).stdout.strip() == "[]"


def test_the_library_imports_no_adapter_server_or_command():
    """`python -m mnemolog` apart, which runs the command line."""
    importing = {
        str(path.relative_to(ROOT))
        for folder in ("api", "domain", "infra", "projections")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"^\s*(from|import) mnemolog\.(adapters|cli|server)", path.read_text(), re.MULTILINE)
    }
    assert importing == {"api/__main__.py"}


NO_BYTECODE = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.mark.local
def test_a_built_wheel_holds_every_file_of_the_package_and_has_help_for_every_command(tmp_path):
    """The commands run from the wheel, not from the checkout."""
    linked = [path.resolve().name for path in (ROOT / "api").iterdir() if path.is_symlink()]
    for folder in ("api", "src", *linked):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=NO_BYTECODE)
    for name in ("LICENSE", "README.md", "pyproject.toml", "server.json", "setup.py"):
        shutil.copy(ROOT / name, tmp_path)
    build = "import setuptools.build_meta as backend; backend.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path, capture_output=True, check=True)
    with zipfile.ZipFile(*tmp_path.glob("*.whl")) as wheel:
        wheel.extractall(tmp_path / "installed")
    for folder in ("api", *linked):
        inside = Path("mnemolog", folder if folder != "api" else "")
        files = {path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*") if path.is_file()}
        assert {path for path in files if not (tmp_path / "installed" / inside / path).is_file()} == set(), folder
    script = ROOT / "tests" / "release" / "first_use.py"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    subprocess.run([sys.executable, script, "-", "-", "--help-only"], cwd=tmp_path, env=environment, check=True)
