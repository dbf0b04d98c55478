"""P21: backups and exports of others: refused by name or rebuilt, and nothing outside of them is touched."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, import_log, restore_backup
from mnemolog.adapters.hermes import config
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.domain.errors import BackupUnusable, MnemologError, NotAStore
from mnemolog.domain.session import session_stream
from mnemolog.forgetting.history import read_erasures
from mnemolog.infra.embedding import make_encoder
from mnemolog.projections.history.states import evolve
from mnemolog.projections.vectors import ann_index, segment
from tests.faults import hostile
from tests.faults.hostile import BACKUP_CHANGES, EXPORT_CHANGES, Scene
from tests.support import HashEncoder

pytestmark = pytest.mark.promise("P21")

DIMENSION = 64
INDEXED_ROWS = 64


@pytest.fixture(autouse=True)
def small_index(monkeypatch):
    """Segments of few rows have an index."""
    for module in (ann_index, segment):
        monkeypatch.setattr(module, "COARSE_ROWS_MIN", INDEXED_ROWS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Folders with a store of every kind of file, its backup, its keys and its export: one encrypted, one not."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (ann_index, segment):
            patch.setattr(module, "COARSE_ROWS_MIN", INDEXED_ROWS)
        for name in ("encrypted", "plain"):
            made[name] = tmp_path_factory.mktemp(name) / "sound"
            made[name].mkdir()
            _make(made[name], encrypt=name == "encrypted")
    return made


def _make(place: Path, *, encrypt: bool) -> None:
    with opened(place / "memory", encrypt=encrypt, create=True) as store:
        session = store.start_session("a", scope="acme")
        for n in range(INDEXED_ROWS + 8):
            session.record("user", f"note number{n} about tea")
        store.admin.catch_up_vectors()
        session.record("user", "later", metadata={"where": "Porto"})
        store.admin.catch_up_vectors()
        store.start_session("b").record("assistant", "hello")
        store.recall("tea")
        store.parts.snapshots.save(session_stream("a"), store.parts.log.fold(session_stream("a"), evolve))
        quarantine = store.admin.quarantine()
        unused = quarantine.folder.parent / "unused.db"
        unused.write_bytes(b"x")
        quarantine.add(unused, reason="a test")
        store.audit.export(place / "export.jsonl")
        keys = {"keys": place / "keys"} if encrypt else {}
        store.backup(place / "backup", **keys)
        (place / "keys").mkdir(exist_ok=True)


def opened(folder: Path, **how):
    return MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION), background=False, **{"create": False} | how)


# What is done with what is hostile


def use_backup(scene: Scene, raw: list[str]) -> None:
    restored = scene.out / "restored"
    keys = {"keys": scene.keys} if (scene.keys / "keys.json").is_symlink() or any(scene.keys.iterdir()) else {}
    try:
        restore_backup(scene.backup, restored, **keys)
        with opened(restored) as store:
            store.recall("tea")
            store.status()
            store.admin.doctor(deep=True)
            store.backup(scene.backup, replace=True, **keys)
    except MnemologError as error:
        if not str(error):
            raw.append(repr(error))


def use_export(scene: Scene, raw: list[str]) -> None:
    try:
        import_log(scene.export, scene.out / "imported")
    except MnemologError as error:
        if scene.export.name not in str(error):
            raw.append(f"the file is not named in {error}")


USES = {use_backup: BACKUP_CHANGES, use_export: EXPORT_CHANGES}


def cases(tries: int, seed: int) -> list[tuple[Callable, str, int]]:
    """Which kinds of change are tried, each about as often as the others."""
    kinds = [(use, name) for use, changes in USES.items() for name in changes]
    return [(*kinds[n % len(kinds)], seed * 1_000_003 + n) for n in range(tries)]


def outcome(sound: dict[str, Path], root: Path, use: Callable, name: str, seed: int) -> list[str]:
    """Make a hostile thing, use it, and return what went wrong."""
    rng, scene, raw = Random(seed), Scene(root), []
    scene.make(sound["encrypted" if name == "keys_note" else rng.choice(sorted(sound))])
    before, secrets = scene.sentinels(), secrets_of(scene.store)
    said = "nothing"
    try:
        said = USES[use][name](rng, scene)
        use(scene, raw)
    except Exception as error:
        raw.append(f"raw error {error!r:.300}")
        if os.environ.get("HOSTILE_RAISE"):
            raise
    after = scene.sentinels()
    if changed := sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        raw.append(f"touched {changed}")
    raw += leaked(scene, secrets)
    return [f"{use.__name__}/{name} seed {seed}: {said}: {what}" for what in raw]


def secrets_of(store: Path) -> list[bytes]:
    """What must be in no backup or export: the secret of the keys, their nodes, and what lies outside."""
    found = [b"the user's own"]
    with suppress(dbapi2.Error), closing(dbapi2.connect(f"file:{store / 'keys.db'}?mode=ro", uri=True)) as connection:
        found += [row[0] for row in connection.execute("SELECT secret FROM keys_meta UNION SELECT material FROM nodes")]
    return found


def leaked(scene: Scene, secrets: list[bytes]) -> list[str]:
    found = []
    for path in scene.out.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "keys.db" and path.stat().st_size < (64 << 20):
            data = path.read_bytes()
            found += [f"a secret is in {path.relative_to(scene.out)}" for secret in secrets if secret in data][:1]
    return found


@pytest.mark.timeout(1_800)
@pytest.mark.promise("P21", "hostile backups and exports")
def test_what_others_made_is_refused_or_rebuilt_and_touches_nothing_outside(sound, tmp_path, tries, seed):
    """No raw error, no file beside or above is touched, no secret gets out."""
    wrong = []
    for number, case in enumerate(cases(tries, seed)):
        root = tmp_path / str(number)
        wrong += outcome(sound, root, *case)
        shutil.rmtree(root)
    assert not wrong, "\n".join(wrong)


# One by one


@pytest.fixture
def scene(sound, tmp_path):
    """An encrypted store with its backup, keys and export, all sound, and what lies beside and above them."""
    made = Scene(tmp_path / "scene")
    made.make(sound["encrypted"])
    return made


def test_a_backup_that_names_a_file_outside_of_itself_restores_nothing(scene):
    """It is refused before any file is read or written."""
    named = scene.backup / "backup.json"
    whole, before = named.read_bytes(), scene.sentinels()
    for seed in range(6):
        named.write_bytes(whole)
        hostile.backup_name(Random(seed), scene)
        with pytest.raises(BackupUnusable, match=r"backup\.json names a file that no backup has"):
            restore_backup(scene.backup, scene.out / "restored", keys=scene.keys)
        assert list(scene.out.iterdir()) == []
        assert scene.sentinels() == before


def test_a_folder_of_projections_that_is_a_link_is_refused(scene):
    """A rebuild deletes old generations: the link leads to those of another store."""
    for folder in ("vectors", "quarantine", "projectors", ""):
        path = scene.store / "projections" / folder
        shutil.rmtree(path, ignore_errors=True)
        path.symlink_to(scene.beside / "twin" / "projections" / folder)
        before = scene.sentinels()
        with pytest.raises(NotAStore, match="it is a symbolic link, not a folder"):
            opened(scene.store)
        assert scene.sentinels() == before
        path.unlink()


DATABASES = {
    "log.db": "events",
    "keys.db": "nodes",
    "projections/views.db": "turns",
    "projections/embeddings.db": "embeddings",
    "projections/snapshots.db": "snapshots",
}


@pytest.mark.parametrize("name", DATABASES)
def test_no_foreign_sql_of_a_schema_runs(sound, tmp_path, name):
    """Log and keys, which are the truth, are refused by name; a projection is quarantined and rebuilt."""
    for number in count():
        scene = Scene(tmp_path / str(number))
        scene.make(sound["encrypted"])
        kind = hostile.foreign_schema(scene.store / name, DATABASES[name], number)
        if kind is None:
            break
        if name in ("log.db", "keys.db"):
            with pytest.raises(MnemologError, match=r"(log|keys)\.db|theirs"), opened(scene.store) as store:
                pytest.fail(f"{kind}: {store.session('new').record('user', 'more')}")
            continue
        with opened(scene.store) as store:
            assert len(store.recall("tea", k=3).hits) == 3, kind
            store.admin.doctor(deep=True, fix=True)
            store.rebuild("vectors")
            assert store.admin.doctor(deep=True).healthy, kind


READERS = {
    "import of a log": lambda store, path, out: import_log(path, out / "imported"),
    "import of files": lambda store, path, out: import_files(store, path),
    "import of messages": lambda store, path, out: import_files(store, path, format="openai"),
    "heads to check": lambda store, path, out: store.verify(heads=path),
    "heads to append to": lambda store, path, out: store.audit.append_head(path),
    "erasures": lambda store, path, out: read_erasures(path),
    "settings": lambda store, path, out: config.read(path),
    "a model": lambda store, path, out: make_encoder(_model(path, out), recipe="any").dimension,
    "a backup": lambda store, path, out: restore_backup(_alone(path, out, "backup.json"), out / "r"),
    "keys": lambda store, path, out: restore_backup(
        store.path.parent / "backup", out / "r", keys=_alone(path, out, "keys.json")
    ),
}


def _model(path: Path, out: Path) -> Path:
    (out / "model").mkdir()
    for name in ("modules.json", "config.json"):
        (out / "model" / name).symlink_to(path)
    (out / "model" / "model.safetensors").write_bytes(b"x" * 100)
    return out / "model"


def _alone(path: Path, out: Path, name: str) -> Path:
    (out / "alone").mkdir()
    path.rename(out / "alone" / name)
    return out / "alone"


KINDS = ("pipe", "socket", "folder", "deep", "noise", "huge", "zero", "number")
CONTENTS = {"deep": hostile.DEEP, "noise": Random(1).randbytes(500), "number": b'{"path": 1' + b"0" * 5_000 + b"}"}
READ_IN_PIECES = ("import of a log", "import of files", "import of messages", "messages")
"""A huge file is no mistake there: it is read as far as its lines go."""


@pytest.mark.parametrize("what", READERS)
def test_a_file_that_a_user_names_is_refused_by_name_unless_it_is_a_sound_file(scene, what):
    """A pipe never blocks, a huge file is not read, nesting and numbers of any size are an error in words."""
    with opened(scene.store) as store:
        for kind in KINDS:
            if kind == "huge" and what in READ_IN_PIECES:
                continue
            out = scene.out / kind
            out.mkdir()
            path = out / "given.json"
            if kind == "huge":
                path.touch()
                os.truncate(path, hostile.HUGE_BYTES)
            elif kind == "zero":
                path.symlink_to("/dev/zero")
            elif kind in CONTENTS:
                path.write_bytes(CONTENTS[kind])
            else:
                hostile.put(scene, path, kind)
            before = scene.sentinels()
            with pytest.raises(MnemologError) as refused:
                READERS[what](store, path, out)
            assert str(refused.value), kind
            assert scene.sentinels() == before, kind
