"""P21: backups and exports of others: refused by name or rebuilt, and nothing outside of them is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, import_log, restore_backup
from mnemolog.adapters.hermes import config
from mnemolog.adapters.importers.import_files import import_files
from mnemolog.cli.messages import messages_in
from mnemolog.domain.errors import BackupUnusable, LogWriteFailed, MnemologError, NotAStore
from mnemolog.domain.session import session_stream
from mnemolog.forgetting.results import read_erasures
from mnemolog.infra.embedding import make_encoder
from mnemolog.projections.history.states import evolve
from mnemolog.projections.vectors import ann_index, publish
from tests.faults import hostile
from tests.faults.hostile import BACKUP_CHANGES, EXPORT_CHANGES, Scene
from tests.support import HashEncoder

pytestmark = pytest.mark.promise("P21")

DIMENSION = 64
INDEXED_ROWS = 64


@pytest.fixture(autouse=True)
def small_index(monkeypatch):
    """Segments of few rows have an index."""
    for module in (ann_index, publish):
        monkeypatch.setattr(module, "COARSE_ROWS_MIN", INDEXED_ROWS)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Folders with a store of every kind of file, its backup, its keys and its export: one encrypted, one not."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        for module in (ann_index, publish):
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
        store.backup(place / "backup", with_projections=True, **keys)
        (place / "keys").mkdir(exist_ok=True)


def opened(folder: Path, **how):
    return MemoryStore.open(folder, model=HashEncoder(dimension=DIMENSION), background=False, **{"create": False} | how)


# What is done with what is hostile


def use_backup(scene: Scene, rng: Random, raw: list[str]) -> None:
    restored = scene.out / "restored"
    keys = {"keys": scene.keys} if (scene.keys / "keys.json").is_symlink() or any(scene.keys.iterdir()) else {}
    try:
        restore_backup(scene.backup, restored, check=rng.choice(["full", "quick"]), **keys)
        with opened(restored) as store:
            store.recall("tea")
            store.status()
            store.admin.doctor(deep=True)
            store.backup(scene.backup, replace=True, **keys)
    except MnemologError as error:
        if not str(error):
            raw.append(repr(error))


def use_export(scene: Scene, rng: Random, raw: list[str]) -> None:
    for target in (scene.out / "imported", scene.store):
        try:
            import_log(scene.export, target)
        except MnemologError as error:
            if scene.export.name not in str(error) and target.name not in str(error):
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
        use(scene, rng, raw)
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


def test_a_manifest_that_names_the_keys_copies_nothing_into_a_backup(scene):
    """Names in a manifest come from the fixed set that is written: nothing outside is read or written."""
    secrets, before = secrets_of(scene.store), scene.sentinels()
    for seed in range(12):
        hostile.manifest_name(Random(seed), scene, scene.store)
    with opened(scene.store) as store:
        made = store.backup(scene.out / "backup", keys=scene.keys, with_projections=True)
        assert len(made.left_out) == 2
        assert all("manifest.json" in line and "names a file that no segment has" in line for line in made.left_out)
        assert store.recall("tea").hits
        assert store.status().quarantined == 1 + 2
    assert sorted(path.name for path in (scene.out / "backup").iterdir()) == ["backup.json", "log.db", "projections"]
    assert leaked(scene, secrets) == []
    assert scene.sentinels() == before


@pytest.mark.parametrize("seed", range(6))
def test_a_backup_that_names_a_file_outside_of_itself_restores_nothing(scene, seed):
    """It is refused before any file is read or written."""
    hostile.backup_name(Random(seed), scene)
    before = scene.sentinels()
    with pytest.raises(BackupUnusable, match=r"backup\.json names a file that no backup has"):
        restore_backup(scene.backup, scene.out / "restored", keys=scene.keys)
    assert list(scene.out.iterdir()) == []
    assert scene.sentinels() == before


@pytest.mark.parametrize("folder", ["", "vectors", "quarantine", "projectors"])
def test_a_folder_of_projections_that_is_a_link_is_refused(scene, folder):
    """A rebuild deletes old generations: the link leads to those of another store."""
    path = scene.store / "projections" / folder
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(scene.beside / "twin" / "projections" / folder)
    before = scene.sentinels()
    with pytest.raises(NotAStore, match="it is a symbolic link, not a folder"):
        opened(scene.store)
    assert scene.sentinels() == before


def test_a_generation_or_segment_that_is_a_link_is_not_read_and_nothing_there_is_deleted(scene):
    """It counts as missing: its vectors are made again."""
    (generation,) = (scene.store / "projections" / "vectors").glob("*-0001")
    twin = scene.beside / "twin" / generation.relative_to(scene.store)
    first, second = sorted(generation.glob("[0-9]*"))
    for path in (first, second):
        shutil.rmtree(path)
    first.symlink_to(twin / first.name)
    before = scene.sentinels()
    with opened(scene.store) as store:
        store.rebuild("vectors")
        assert len(store.recall("tea", mode="vector", k=3).hits) == 3
    shutil.rmtree(scene.store / "projections" / "vectors")
    (scene.store / "projections" / "vectors").mkdir()
    generation.symlink_to(twin)
    (generation.parent / f".building-{generation.name[:16]}").symlink_to(scene.beside)
    with opened(scene.store) as store:
        store.rebuild("vectors")
        store.forget(session="b", reason="asked")
    assert scene.sentinels() == before


TABLES = {"views.db": "turns", "embeddings.db": "embeddings", "snapshots.db": "snapshots"}


@pytest.mark.parametrize(
    ("name", "number"),
    [*(("views.db", n) for n in range(9)), *((name, n) for name in ("embeddings.db", "snapshots.db") for n in (0, 4))],
)
def test_a_schema_that_runs_foreign_sql_is_set_apart_and_rebuilt(scene, name, number):
    """Views that never end, triggers, generated columns, other kinds of tables: none of their SQL runs."""
    path, table = scene.store / "projections" / name, TABLES[name]
    with closing(dbapi2.connect(path, isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        kind, statements = list(hostile.schemas(table, columns))[number]
        for statement in statements:
            connection.execute(statement)
    path.with_name(f"{name}-seal").unlink(missing_ok=True)
    with opened(scene.store) as store:
        assert len(store.recall("tea", k=3).hits) == 3, kind
        store.admin.doctor(deep=True, fix=True)
        store.rebuild("vectors")
        assert store.admin.doctor(deep=True).healthy, kind


@pytest.mark.parametrize(("name", "table"), [("log.db", "events"), ("log.db", "log"), ("keys.db", "nodes")])
@pytest.mark.parametrize("number", [0, 1, 3, 4, 5, 6, 7, 8])
def test_a_log_or_keys_with_another_schema_are_refused_by_name(scene, name, table, number):
    """They are the truth: nothing of them is replaced, and none of their SQL runs."""
    path = scene.store / name
    with closing(dbapi2.connect(path, isolation_level=None)) as connection:
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        for trigger in [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]:
            connection.execute(f"DROP TRIGGER {trigger}")
        kind, statements = list(hostile.schemas(table, columns))[number]
        for statement in statements:
            connection.execute(statement)
    with pytest.raises(MnemologError, match=name), opened(scene.store) as store:
        pytest.fail(f"{kind}: {store.session('a').record('user', 'more')}")


def test_a_trigger_added_to_the_log_never_runs(scene):
    """The append is refused, and `verify` names the trigger."""
    with closing(dbapi2.connect(scene.store / "log.db", isolation_level=None)) as connection:
        connection.execute(f"CREATE TRIGGER theirs AFTER INSERT ON events BEGIN {hostile.FOREVER}; END")
    with opened(scene.store) as store:
        with pytest.raises(LogWriteFailed, match="theirs"):
            store.session("a").record("user", "more")
        assert "theirs" in str(store.verify().findings)


@pytest.mark.parametrize("name", ["log.db", "keys.db", "projections/views.db"])
def test_a_rollback_journal_that_names_another_file_is_never_played_back(scene, name):
    """After a rollback SQLite deletes the file that a journal of several databases names. Ours are of one."""
    hostile.leave_super_journal(scene, scene.store / name)
    before = scene.sentinels()
    if name.startswith("projections"):
        with opened(scene.store) as store:
            assert len(store.recall("tea", k=3).hits) == 3
            assert any("names another file" in item.reason for item in store.admin.quarantine().items())
    else:
        with pytest.raises(MnemologError, match="names another file"), opened(scene.store) as store:
            store.session("a").record("user", "more")
    assert scene.sentinels() == before


READERS = {
    "import of a log": lambda store, path, out: import_log(path, out / "imported"),
    "import of files": lambda store, path, out: import_files(store, path),
    "import of messages": lambda store, path, out: import_files(store, path, format="openai"),
    "heads to check": lambda store, path, out: store.verify(heads=path),
    "heads to append to": lambda store, path, out: store.audit.append_head(path),
    "erasures": lambda store, path, out: read_erasures(path),
    "messages": lambda store, path, out: messages_in(path),
    "settings": lambda store, path, out: config.read(path),
    "a model": lambda store, path, out: make_encoder(_model(path, out), recipe="any").dimension,
    "a backup": lambda store, path, out: restore_backup(_backup(path, out), out / "restored"),
    "keys": lambda store, path, out: restore_backup(store.path.parent / "backup", out / "r", keys=_keys(path, out)),
}


def _model(path: Path, out: Path) -> Path:
    (out / "model").mkdir()
    for name in ("modules.json", "config.json"):
        (out / "model" / name).symlink_to(path)
    (out / "model" / "model.safetensors").write_bytes(b"x" * 100)
    return out / "model"


def _backup(path: Path, out: Path) -> Path:
    (out / "copy").mkdir()
    path.rename(out / "copy" / "backup.json")
    return out / "copy"


def _keys(path: Path, out: Path) -> Path:
    (out / "copied").mkdir()
    path.rename(out / "copied" / "keys.json")
    return out / "copied"


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
