"""Files are opened in one place, which refuses what is no regular file; who opens them otherwise is listed here."""

import ast
from collections.abc import Iterable

import pytest

from tests.unit.test_layers import ROOT, SOURCES, nodes_of

OPENING = {
    "os": {"open", "fdopen"},
    "io": {"open", "FileIO"},
    "gzip": {"open"},
    "mmap": {"mmap"},
    "np": {"load", "fromfile", "memmap", "loadtxt"},
    "faiss": {"read_index"},
    "sqlite3": {"connect"},
    "dbapi2": {"connect"},
    "shutil": {"copy", "copy2", "copyfile", "copytree"},
}
METHODS = {"read_text", "read_bytes", "write_text", "write_bytes"}
MODES = {mode + more for mode in "rwxa" for more in ("", "b", "+b", "t")}

ALLOWED = {
    "infra/runtime/files.py": "this is the place",
    "infra/sqlite_driver.py": "every database, after a look at its files; SQLite's own library",
    "infra/sqlite.py": "a new file, which must not exist; the header of a copy made here",
    "infra/keys/keys_file.py": "a new file, which must not exist",
    "infra/embedding/onnx_bert.py": "a descriptor of `files`",
    "infra/log/seen_head.py": "a descriptor of `files`",
    "api/application/read_audit.py": "a descriptor of `files`",
    "infra/log/sqlite/wal_checkpointer.py": "/proc/locks",
    "infra/filesystems.py": "/proc/self/mounts",
    "projections/recall/scoring.py": "a file of the package",
    "projections/vectors/ann_index.py": "an index in memory, in pieces",
    "adapters/importers/chroma_folder.py": "a copy of a folder that the caller names; of a pipe it raises",
    "api/audit/subject.py": "a member of an archive in a file of `files`",
    "cli/entry.py": "/dev/null, after a broken pipe",
}


def openings(nodes: Iterable[ast.AST]) -> list[str]:
    """The calls that open a file."""
    return [name for node in nodes if isinstance(node, ast.Call) and (name := _opens(node)) is not None]


def _opens(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name("open"):
            return "open"
        case ast.Attribute(ast.Name(module), name) if name in OPENING.get(module, ()):
            return f"{module}.{name}"
        case ast.Attribute(ast.Attribute(_, module), name) if name in OPENING.get(module, ()):
            return f"{module}.{name}"
        case ast.Attribute(_, name) if name in METHODS:
            return f"path.{name}"
        case ast.Attribute(_, "open") if any(_is_mode(argument) for argument in call.args[:2]):
            return "path.open"
    return None


def _is_mode(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and argument.value in MODES


def test_modules_open_files_through_one_module_unless_listed():
    """A store, a backup or an export may come from somebody else: a pipe in it blocks, a link leads out of it.

    Use mnemolog.infra.runtime.files. A list that names more than it has to hides the next one.
    """
    assert {str(path.relative_to(ROOT)) for path in SOURCES if openings(nodes_of(path))} == ALLOWED.keys()


@pytest.mark.parametrize(
    "line", ["open(p)", "os.open(p, 0)", "p.open('rb')", "a.b.read_bytes()", "p.read_text()", "x.dbapi2.connect(p)"]
)
def test_each_way_to_open_a_file_is_seen(line):
    """The test above sees nothing if this one fails."""
    assert openings(ast.walk(ast.parse(line)))


@pytest.mark.parametrize("line", ["MemoryStore.open(folder)", "read_file(p)", "open_log(folder, create=True)"])
def test_what_opens_no_file_itself_is_not_seen(line):
    """Stores are opened by name."""
    assert not openings(ast.walk(ast.parse(line)))
