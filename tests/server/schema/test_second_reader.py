"""A TypeScript reader, written from docs/format*.md alone: it reads what we read, and says where a log is damaged."""

import json
import shutil
import subprocess

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.operations.copies import wrap_keys
from tests.pages import ROOT

GOLDEN = ROOT / "tests" / "golden"
LAST, TURN = 36, 4
"""Of the golden store in the clear: its last event, and a turn in its middle."""
CHANGES = {
    "UPDATE events SET state = CAST(replace(state, 'Nero', 'Rex!') AS BLOB) WHERE position = 4": TURN,
    "UPDATE events SET recorded_at = recorded_at + 1 WHERE position = 4": TURN,
    "DELETE FROM events WHERE position = 4": TURN,
    "DELETE FROM events WHERE position = 36": LAST,
    "UPDATE log SET created_at = created_at + 1": 1,
}
LINES = {"cut off": (range(LAST + 1), LAST + 1), "line removed": ([*range(TURN), *range(TURN + 1, LAST + 2)], TURN)}


pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """What reads a log or an export: returns the exit status and what is printed."""
    folder = tmp_path_factory.mktemp("reader") / "second_reader"
    shutil.copytree(ROOT / "benchmarks" / "second_reader", folder, ignore=shutil.ignore_patterns("node_modules"))
    for command in (["ci", "--prefer-offline", "--no-audit", "--no-fund"], ["run", "types"]):
        subprocess.run(["npm", *command], cwd=folder, check=True)

    def run(path, *options):
        command = ["npm", "run", "--silent", "read", "--", path, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "null") or done.stderr

    return run


def held(session):
    """What a session holds: values, task, notes, checkpoints."""
    task = session["task"] or {}
    return (
        session["values"],
        task.get("step"),
        *([each["name" if "id" in each else "text"] for each in session[kind]] for kind in ("notes", "checkpoints")),
    )


@pytest.mark.parametrize("file", ["store/log.db", "export.jsonl"])
@pytest.mark.parametrize("release", ["0.1", "0.1-plain"])
def test_a_golden_store_is_read_as_we_read_it(read, tmp_path, release, file):
    """Sessions, turns, values, tasks, notes and checkpoints, of what is encrypted too, without what was forgotten."""
    place = shutil.copytree(GOLDEN / release, tmp_path / "golden")
    expected = json.loads((place / "expected.json").read_text())
    status, found = read(place / file, *(f"--keys={path}" for path in place.glob("store/keys.db")))
    assert (status, found["damaged"], found["agents"]) == (0, None, expected["current"])
    assert found["head"] == (place / "head.txt").read_text().strip()
    said = {turn["position"]: turn["text"] for turns in expected["turns"].values() for turn in turns}
    seen = {name: [{"position": at, "text": said[at]} for at in turns] for name, turns in expected["seen"].items()}
    assert {name: session["turns"] for name, session in found["sessions"].items()} == seen
    assert {name: held(session) for name, session in found["sessions"].items()} == {
        name: held(session) for name, session in expected["held"].items()
    }


@pytest.mark.parametrize("change", [*CHANGES, *LINES])
def test_it_says_where_a_log_is_damaged(read, tmp_path, change):
    """Both kinds of files; what comes before is still printed."""
    place = shutil.copytree(GOLDEN / "0.1-plain", tmp_path / "golden")
    path, position = place / "store" / "log.db", CHANGES.get(change)
    if position is None:
        (kept, position), path = LINES[change], place / "export.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[number] for number in kept))
    else:
        triggers = "".join(
            f"DROP TRIGGER {name};" for name in ("events_refuse_update", "events_refuse_delete", "log_refuse_update")
        )
        dbapi2.connect(path).executescript(triggers + change)
    status, found = read(path)
    assert (status, found["damaged"]["position"], sum(found["topics"].values())) == (1, position, position - 1)


def test_facts_and_wrapped_keys_are_read_and_a_missing_key_is_named(read, tmp_path, monkeypatch):
    """Of a store of today. Without the key for the keys the chain is checked all the same."""
    (tmp_path / "key").write_text("5a" * 32)
    monkeypatch.setenv("MNEMOLOG_KEY_FILE", str(tmp_path / "key"))
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.assert_fact("user/city", "Porto", valid_from="2026-03")
        store.assert_fact("user/dog", "Nero", corrects=store.assert_fact("user/dog", "Nemo"))
        store.session("trip").record("user", "Olá, Inês! ☕")
    wrap_keys(tmp_path / "memory")
    log, keys = tmp_path / "memory" / "log.db", f"--keys={tmp_path / 'memory' / 'keys.db'}"
    found = read(log, keys, f"--wrapped-with={'5a' * 32}")[1]
    assert found["facts"][""] == {"user/city": "Porto", "user/dog": "Nero"}
    assert [turn["text"] for turn in found["sessions"]["trip"]["turns"]] == ["Olá, Inês! ☕"]
    assert read(log)[1]["contents"]["sealed"] >= 4
    assert read(log, keys) == (2, "these keys are wrapped: give --wrapped-with\n")
