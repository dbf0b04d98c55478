"""P21: stores, backups and exports of others: refused by name or rebuilt, and nothing outside of them is touched."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore, import_log, restore_backup
from mnemolog.cli.entry import run
from mnemolog.domain.errors import MnemologError
from mnemolog.domain.session import session_stream
from mnemolog.projections.history.states import evolve
from mnemolog.projections.vectors import ann_index, publish
from tests.faults.hostile import BACKUP_CHANGES, EXPORT_CHANGES, STORE_CHANGES, Scene
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


def use_store(scene: Scene, rng: Random, raw: list[str]) -> None:
    def attempt(what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except MnemologError as error:
            if not str(error):
                raw.append(f"{what}: no words in {error!r}")

    def everything() -> None:
        with opened(scene.store) as store:
            works = [
                ("status", store.status),
                ("recall", lambda: store.recall("tea", k=5)),
                ("recall by text", lambda: store.recall("tea", mode="text")),
                ("recall with a filter", lambda: store.recall("later", metadata={"where": "Porto"})),
                ("turns", lambda: store.turns("a", limit=20)),
                ("sessions", lambda: list(store.sessions())),
                ("current", lambda: store.session("a").record("user", "one more")),
                ("verify", store.verify),
                ("replay", store.replay),
                ("doctor", lambda: store.admin.doctor(deep=True)),
                ("quarantine", lambda: (store.admin.quarantine().items(), store.admin.quarantine().status())),
                ("models", lambda: store.models.list() if hasattr(store.models, "list") else None),
                ("backup", lambda: store.backup(scene.out / "backup", with_projections=True)),
                ("export", lambda: store.audit.export(scene.out / "export.jsonl")),
                ("forget", lambda: store.forget(session="a", reason="asked")),
                ("doctor --fix", lambda: store.admin.doctor(deep=True, fix=True)),
                ("rebuild", lambda: store.rebuild("views")),
                ("rebuild vectors", lambda: store.rebuild("vectors")),
                ("purge", lambda: store.admin.quarantine().purge(everything=True)),
            ]
            for what, work in [*works[:12], *rng.sample(works[12:], 4)]:
                attempt(what, work)

    attempt("open", everything)
    attempt("import", lambda: import_log(scene.export, scene.store))


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


COMMANDS = {
    use_store: (
        "status",
        "verify",
        "doctor --deep",
        "recall tea --model none",
        "sessions",
        "quarantine list",
        "replay",
    ),
    use_backup: (),
    use_export: (),
}
USES = {use_store: STORE_CHANGES, use_backup: BACKUP_CHANGES, use_export: EXPORT_CHANGES}


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
        if commands := COMMANDS[use]:
            raw += command(rng.choice(commands), scene)
    except Exception as error:
        raw.append(f"raw error {error!r:.300}")
        if os.environ.get("HOSTILE_RAISE"):
            raise
    after = scene.sentinels()
    if changed := sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key)):
        raw.append(f"touched {changed}")
    raw += leaked(scene, secrets)
    return [f"{use.__name__}/{name} seed {seed}: {said}: {what}" for what in raw]


def command(line: str, scene: Scene) -> list[str]:
    first, *rest = line.split()
    words = [first, rest.pop(0), str(scene.store)] if first == "quarantine" else [first, str(scene.store)]
    out = []
    try:
        with warnings.catch_warnings():
            status = run([*words, *rest])
        if status not in (0, 1, 3):
            out.append(f"`{line}`: exit {status}")
    except Exception as error:
        if os.environ.get("HOSTILE_RAISE"):
            raise
        out.append(f"`{line}`: raw error {error!r:.200}")
    return out


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
@pytest.mark.promise("P21", "hostile stores, backups and exports")
def test_what_others_made_is_refused_or_rebuilt_and_touches_nothing_outside(sound, tmp_path, tries, seed):
    """No raw error through library and command line, no file beside or above is touched, no secret gets out."""
    wrong = []
    for number, case in enumerate(cases(tries, seed)):
        root = tmp_path / str(number)
        wrong += outcome(sound, root, *case)
        shutil.rmtree(root)
    assert wrong == []
