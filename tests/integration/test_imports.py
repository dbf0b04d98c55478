"""What a fresh interpreter imports: heavy libraries, and other commands, only when they are needed."""

import ast
import subprocess
import sys
from pathlib import Path

from mnemolog import MemoryStore
from mnemolog.cli.app import MODULES
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
