"""What a fresh interpreter imports: heavy libraries, and other commands, only when they are needed."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from mnemolog import MemoryStore
from mnemolog.cli.app import MODULES

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


def test_a_command_imports_no_other_command(tmp_path):
    """Help without a command imports none."""
    script = (
        "import sys; from mnemolog.cli import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted(name for name in sys.modules if name.startswith('mnemolog.cli.')))"
    )
    for arguments, loaded in (
        (["head", str(tmp_path)], {"sessions"}),
        (["notes", "--help"], {"memory"}),
        (["--help"], set()),
        (["nonsense"], set()),
    ):
        ran = subprocess.run([sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True)
        found = {name.rpartition(".")[2] for name in ast.literal_eval(ran.stdout.splitlines()[-1])}
        assert found & set(MODULES.values()) == loaded, arguments
