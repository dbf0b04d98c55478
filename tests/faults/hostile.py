"""Backups and exports as an attacker would make them: what is sound, and the ways in which it is changed.

Everything is made by code from a seed. A change is a function of a random generator and the folder of what was sound;
it returns what it did, in words. What it writes has right checksums, so that nothing but its content gives it away.
"""

import base64
import contextlib
import gzip
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from pysqlite3 import dbapi2

Change = Callable[[Random, "Scene"], str]

DEEP = b"[" * 100_000 + b"]" * 100_000
HUGE_BYTES = 1 << 40
FOREVER = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
NUMBERS = (
    -1,
    0,
    1,
    7,
    2**31,
    2**53,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64 - 1,
    2**80,
    1e308,
    None,
    "7",
    True,
    [],
    {},
)
TEXTS = (
    *("", "x", "\x00", "\ud7ff", "..", "../../..", "/etc/passwd", "../../../keys.db", "a/b", "no/../../../x", "-rf"),
    *("ab" * 32, "zz" * 32, "x" * 300_000, "9" * 5_000, "2026-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "{}"),
)


class Scene:
    """A folder with what is hostile, and beside and above it what must stay as it is."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.outer = root / "outer"
        self.place = self.outer / "place"
        self.store = self.place / "memory"
        self.backup = self.place / "backup"
        self.keys = self.place / "keys"
        self.export = self.place / "export.jsonl"
        self.beside = self.place / "beside"
        self.above = self.outer / "above"
        self.out = root / "out"

    def make(self, sound: Path) -> None:
        """Copy what is sound, and put the sentinels beside and above it."""
        shutil.copytree(sound, self.place)
        self.out.mkdir()
        for folder in (self.beside, self.above):
            folder.mkdir()
            for name in ("keys.db", "notes.txt", "manifest.json", "empty"):
                (folder / name).write_bytes(b"" if name == "empty" else f"the user's own {name}".encode())
                (folder / name).chmod(0o644)
        shutil.copytree(sound / "memory", self.beside / "twin")
        for part in ("projections", "keys.db", "log.db"):
            source, target = sound / "memory" / part, self.above / "twin" / part
            target.parent.mkdir(exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            elif source.exists():
                shutil.copy2(source, target)

    def sentinels(self) -> dict[str, tuple[Any, ...]]:
        """Content, mode and times of everything beside and above, and which names there are."""
        found: dict[str, tuple[Any, ...]] = {}
        for folder in (self.beside, self.above):
            for path in (folder, *sorted(folder.rglob("*"))):
                about = path.lstat()
                data = sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(about.st_mode) else ""
                found[str(path)] = (about.st_mode, about.st_mtime_ns, about.st_ino, about.st_size, data)
        found["names"] = tuple(sorted(path.name for path in folder.iterdir()) for folder in (self.outer, self.root))
        return found


# The changes


def special_file(rng: Random, scene: Scene, root: Path) -> str:
    """Put something that is no regular file in the place of a file, or where one may be looked for."""
    path = rng.choice([path for path in sorted(root.rglob("*")) if not path.is_dir()])
    if rng.random() < 0.3:
        path = path.with_name(path.name + rng.choice(["-wal", "-shm", "-journal", "-seal", ".reason.json"]))
    elif rng.random() < 0.2:
        places = [path for path in (root, *sorted(root.rglob("*"))) if path.is_dir()]
        names = (
            ".lock",
            ".projector.lock",
            "backups.json",
            "manifest.json",
            "keys.db",
            "views.db",
            "snapshots.db-seal",
        )
        path = rng.choice(places) / rng.choice(names)
    return f"{path.relative_to(scene.place)}: {put_special(rng, scene, path)}"


def put_special(rng: Random, scene: Scene, path: Path) -> str:
    """Replace a path by something that is no regular file."""
    kind = rng.choice(["link", "link", "twin", "dangling", "zero", "folder", "pipe", "socket", "loop", "folder link"])
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    put(scene, path, kind, leads_to=rng.choice(["keys.db", "notes.txt", "empty"]))
    return kind


def put(scene: Scene, path: Path, kind: str, *, leads_to: str = "notes.txt") -> None:
    """Put something that is no regular file at a free path."""
    twins = [path for path in scene.beside.rglob(path.name) if path.is_file()]
    if kind == "link" or (kind == "twin" and not twins):
        path.symlink_to(scene.above / leads_to)
    elif kind == "twin":
        path.symlink_to(twins[0])
    elif kind == "dangling":
        path.symlink_to(scene.above / "new")
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
        (path / "inside").write_bytes(b"x")
    elif kind == "folder link":
        path.symlink_to(scene.beside)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    else:
        with contextlib.chdir(path.parent), closing(socket.socket(socket.AF_UNIX)) as made:
            made.bind(path.name)  # The whole path may be too long for a socket.


def bytes_of_file(rng: Random, scene: Scene, root: Path) -> str:
    """Give a file another size or other bytes."""
    path = rng.choice([path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "log.db"])
    kind = rng.choice(["empty", "noise", "huge", "deep", "not UTF-8", "cut"])
    data = path.read_bytes()
    if kind == "huge":
        os.truncate(path, HUGE_BYTES)
    else:
        made = {"empty": b"", "noise": rng.randbytes(5_000), "deep": DEEP, "not UTF-8": b'{"sha256": "\xff"}'}
        path.write_bytes(made.get(kind, data[: len(data) // 2]))
    return f"{path.relative_to(scene.place)}: {kind}"


def json_file(rng: Random, path: Path) -> str:
    """Change a field of a JSON file."""
    value = json.loads(path.read_bytes())
    inner = value["manifest"] if isinstance(value, dict) and "manifest" in value else value
    where, what = mutate(rng, inner)
    if inner is not value:
        write_checked(path, inner)
    else:
        path.write_bytes(encode(value))
    return f"{path.name}: {where} is {what!r:.60}"


def encode(value: Any) -> bytes:
    """JSON, with what `DEEP` stands for."""
    return json.dumps(value, separators=(",", ":")).encode().replace(b'"\\u0001deep"', DEEP)


def write_checked(path: Path, value: Any) -> None:
    """Write a document with its right checksum."""
    text = encode(value)
    path.write_bytes(b'{"sha256":"%s","manifest":%s}' % (sha256(text).hexdigest().encode(), text))


def mutate(rng: Random, value: Any) -> tuple[str, Any]:
    """Change a value somewhere in a document, in place."""
    path, holder, key = rng.choice(list(_places(value)))
    new = rng.choice([*NUMBERS, *TEXTS, "\x01deep"])
    if isinstance(holder, dict) and rng.random() < 0.3:
        held = holder.pop(key)
        if rng.random() < 0.7:
            holder[rng.choice(TEXTS)] = held
        return f"{path} renamed or removed", key
    holder[key] = new
    return path, new


def _places(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in list(items):
        yield f"{path}.{key}", value, key
        yield from _places(child, f"{path}.{key}")


def foreign_schema(path: Path, table: str, number: int) -> str | None:
    """Give a table of a database a schema whose SQL would never end, or end the reader. None if there is none more."""
    drop = f'DROP TABLE "{table}"'
    with closing(dbapi2.connect(path, isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        forever = ", ".join(f"x AS {column}" for column in columns)
        nonsense = f"UPDATE sqlite_master SET sql = 'CREATE TABLE nonsense(' WHERE name = '{table}'"
        kinds = {
            "a view that never ends": f'{drop}; CREATE VIEW "{table}" AS SELECT {forever} FROM ({FOREVER})',
            "a text index": f'{drop}; CREATE VIRTUAL TABLE "{table}" USING fts5({", ".join(columns)})',
            "a trigger": f'CREATE TRIGGER theirs AFTER INSERT ON "{table}" BEGIN {FOREVER}; END',
            "a generated column": f'ALTER TABLE "{table}" ADD COLUMN g TEXT AS (hex(zeroblob(1000)))',
            "nonsense": f"PRAGMA writable_schema=ON; {nonsense}",
        }
        if number == len(kinds):
            return None
        kind, script = list(kinds.items())[number]
        for trigger in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            if kind != "a trigger":
                connection.execute(f"DROP TRIGGER {trigger[0]}")
        connection.executescript(script)
    path.with_name(f"{path.name}-seal").unlink(missing_ok=True)
    return kind


def export_line(rng: Random, scene: Scene) -> str:
    """Change a line of an export."""
    lines = scene.export.read_bytes().splitlines(keepends=True)
    number = rng.choice([0, 1, len(lines) - 1, rng.randrange(len(lines))])
    value = json.loads(lines[number])
    where, what = mutate(rng, value)
    lines[number] = encode(value) + b"\n"
    scene.export.write_bytes(b"".join(lines))
    return f"line {number + 1}: {where} is {what!r:.60}"


def export_bytes(rng: Random, scene: Scene) -> str:
    """Give an export other bytes: none, too many, nested too deeply, packed over and over."""
    data = scene.export.read_bytes()
    kind = rng.choice(["empty", "noise", "deep", "zeros", "gzip", "gzip of zeros", "cut", "twice", "special", "base64"])
    if kind == "special":
        return f"export: {put_special(rng, scene, scene.export)}"
    made = {
        "empty": b"",
        "noise": rng.randbytes(100_000),
        "deep": DEEP,
        "zeros": b"\x00" * (1 << 20),
        "gzip": gzip.compress(data)[: rng.randrange(40, 400)],
        "gzip of zeros": gzip.compress(b"0" * (80 << 20)),
        "cut": data[: rng.randrange(len(data))],
        "twice": data + data,
        "base64": base64.b64encode(data),
    }
    scene.export.write_bytes(made[kind])
    return f"export: {kind}"


def keys_note(rng: Random, scene: Scene) -> str:
    """Change a field of the note beside a copy of the keys, or what lies beside it."""
    if rng.random() < 0.5:
        return json_file(rng, scene.keys / "keys.json")
    return special_file(rng, scene, scene.keys)


def backup_name(rng: Random, scene: Scene) -> str:
    """Have `backup.json` name a file outside of the backup."""
    path = scene.backup / "backup.json"
    value = json.loads(path.read_bytes())["manifest"]
    outside = rng.choice([scene.above / "notes.txt", scene.store / "keys.db"])
    data = outside.read_bytes() if outside.exists() else b""
    relative = os.path.relpath(outside, scene.backup)
    name = rng.choice([str(outside), relative, "projections/../../above/x", "keys.db", "projections/x/y.db", "new\x00"])
    value["files"].append({"path": name, "size_bytes": len(data), "sha256": sha256(data).hexdigest()})
    write_checked(path, value)
    return f"backup.json names {name!r}"


def of_backup(change: Callable[[Random, Scene, Path], str]) -> Change:
    return lambda rng, scene: change(rng, scene, scene.backup)


BACKUP_CHANGES: dict[str, Change] = {
    **{change.__name__: of_backup(change) for change in (special_file, bytes_of_file)},
    "keys_note": keys_note,
    "backup_name": backup_name,
    "backup_json": lambda rng, scene: json_file(rng, scene.backup / "backup.json"),
}
EXPORT_CHANGES: dict[str, Change] = {"export_line": export_line, "export_bytes": export_bytes}
