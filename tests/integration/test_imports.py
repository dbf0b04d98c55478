"""What a fresh interpreter imports: heavy libraries, and other commands, only when they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import MemoryStore
from mnemolog.cli.app import MODULES
from tests.support import HashEncoder

SCRIPTS = {
    "status": ("store.status()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "text recall": ("store.recall('tea', mode='text')", {"torch", "sentence_transformers", "faiss"}),
    "replay": ("store.replay()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "verify": ("store.verify()", {"torch", "sentence_transformers", "faiss", "numpy"}),
    "doctor": ("store.admin.doctor(fix=True)", {"torch", "sentence_transformers", "faiss", "numpy"}),
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


def test_a_command_ends_without_a_search_for_garbage():
    """Python would go through all objects of all modules once more: a fifth of what `status` takes."""
    script = (
        "import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 0))\n"
        "from mnemolog.cli import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", script, "--version"], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines()[-1] == "True"


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
    ran = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert ran.stdout.strip() == "True False"


def test_a_command_imports_only_commands_that_print_the_same(tmp_path):
    """Help without a command imports none."""
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(name for name in sys.modules if name.startswith('mnemolog.cli.')))"
    )
    for arguments, loaded in (
        (["head", str(tmp_path)], {"status", "nodes"}),
        (["notes", "--help"], {"memory"}),
        (["--help"], set()),
        (["nonsense"], set()),
    ):
        ran = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
        found = {name.rpartition(".")[2] for name in ast.literal_eval(ran.stdout.splitlines()[-1])}
        assert found & set(MODULES.values()) == loaded, arguments
