"""The code base checks itself: imports go one way, modules stay small, heavy libraries come late."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.cli.app import MODULES, app

ROOT = Path(__file__).parents[2]
BANNED = {
    "domain": {
        *("mnemolog.projections", "mnemolog.infra", "mnemolog.store", "mnemolog.composition", "mnemolog.cli"),
        *("sqlalchemy", "faiss", "numpy", "sentence_transformers", "torch", "eventsourcing", "pysqlite3", "sqlite3"),
    },
    "projections": {"mnemolog.infra", "mnemolog.store", "mnemolog.composition", "mnemolog.cli", "torch", "pysqlite3"},
    "infra": {"mnemolog.projections", "mnemolog.store", "mnemolog.composition", "mnemolog.cli", "faiss"},
}
SOURCES = sorted(
    path for layer in ("api", "domain", "infra", "projections", "adapters") for path in (ROOT / layer).rglob("*.py")
)


def imports_of(path: Path) -> set[str]:
    """Every module a file imports, with its parents."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {".".join(name.split(".")[: n + 1]) for name in found for n in range(name.count(".") + 1)}


@pytest.mark.parametrize("layer", BANNED)
def test_a_layer_imports_nothing_above_or_beside_it(layer):
    """api → projections → domain, api → infra → domain, and never back or across."""
    for path in sorted((ROOT / layer).rglob("*.py")):
        assert not imports_of(path) & BANNED[layer], path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_small(path):
    """400 lines a module, 70 a function, and no module that is a drawer for everything."""
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert path.stem not in ("utils", "helpers", "manager", "common")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 70, node.name


SCRIPTS = {
    "status": ("store.status()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "text recall": ("store.recall('tea', mode='text')", {"torch", "sentence_transformers", "faiss"}),
    "replay": ("store.replay()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "verify": ("store.verify()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "doctor": ("store.doctor(fix=True)", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "sessions": ("store.sessions()", {"torch", "sentence_transformers", "faiss", "numpy"}),
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_what_needs_no_vectors_imports_no_heavy_library(tmp_path, what):
    """A status line must not wait for a neural network."""
    call, heavy = SCRIPTS[what]
    script = (
        "import sys; from mnemolog import MemoryStore\n"
        f"with MemoryStore.open({str(tmp_path / 'memory')!r}, background=False) as store:\n"
        "    store.start_session('s').record('user', 'tea')\n"
        f"    {call}\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["status", "head", "sessions"])
def test_a_command_that_reads_imports_only_what_it_needs(tmp_path, command):
    """What it starts with is most of what it takes."""
    heavy = {
        "torch",
        "sentence_transformers",
        "faiss",
        "numpy",
        "rich",
        "dateutil",
        "mnemolog.adapters.importers",
        "cryptography",
    }
    with MemoryStore.open(tmp_path / "memory", model=None):
        pass
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        f"finally: print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    arguments = [command, tmp_path / "memory", "--json"]
    ran = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
    assert ran.stderr.strip() == "[]"


def test_the_table_of_commands_is_that_of_the_application():
    """A command missing there could be reached by nobody: only the module it stands in is imported."""
    for path in (ROOT / "api" / "cli").glob("*.py"):
        import_module(f"mnemolog.cli.{path.stem}")
    made = {command.name: command.callback for command in app.registered_commands}
    made |= {group.name: group.typer_instance.registered_commands[0].callback for group in app.registered_groups}
    assert {name: callback.__module__ for name, callback in made.items()} == {
        name: f"mnemolog.cli.{module}" for name, module in MODULES.items()
    }


def test_a_command_imports_no_other_command(tmp_path):
    """Help without a command imports them all."""
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(name for name in sys.modules if name.startswith('mnemolog.cli.')))"
    )
    for arguments, loaded in (
        (["head", str(tmp_path)], {"sessions"}),
        (["notes", "--help"], {"memory"}),
        (["--help"], set(MODULES.values())),
        (["nonsense"], set(MODULES.values())),
    ):
        ran = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
        found = {name.rpartition(".")[2] for name in ast.literal_eval(ran.stdout.splitlines()[-1])}
        assert found & set(MODULES.values()) == loaded, arguments
