"""A reader in TypeScript, written from docs/format.md alone: it reads what we read, and says where a log is damaged."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.operations.copies import wrap_keys
from tests.pages import ROOT

GOLDEN = ROOT / "tests" / "golden"
LAST, TURN = 36, 4
"""Of the golden store in the clear: its last event, and a turn in its middle."""
CHANGES = {
    "text": ("UPDATE events SET state = CAST(replace(state, 'Nero', 'Rex!') AS BLOB) WHERE position = 4", TURN),
    "moment": ("UPDATE events SET recorded_at = recorded_at + 1 WHERE position = 4", TURN),
    "removed": ("DELETE FROM events WHERE position = 4", TURN),
    "tail": ("DELETE FROM events WHERE position = 36", LAST),
    "origin": ("UPDATE log SET created_at = created_at + 1", 1),
}
LINES = {"cut off": (slice(0, -1), LAST + 1), "line removed": ([*range(TURN), *range(TURN + 1, LAST + 2)], TURN)}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """What reads a log or an export: returns the exit status and what is printed."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("reader") / "second_reader"
    shutil.copytree(ROOT / "benchmarks" / "second_reader", folder, ignore=shutil.ignore_patterns("node_modules"))
    subprocess.run(["npm", "ci", "--prefer-offline", "--no-audit", "--no-fund"], cwd=folder, check=True)
    subprocess.run(["npm", "run", "types"], cwd=folder, check=True)
    assert len((folder / "reader.ts").read_text().splitlines()) <= 400

    def run(path, *options):
        command = ["npm", "run", "--silent", "read", "--", path, *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "null") or done.stderr

    return run


@pytest.mark.parametrize("file", ["store/log.db", "export.jsonl"])
@pytest.mark.parametrize("release", ["0.1", "0.1-plain"])
def test_a_golden_store_is_read_as_we_read_it(read, tmp_path, release, file):
    """Sessions, turns, values, tasks, notes and checkpoints, of what is encrypted too, without what was forgotten."""
    place = Path(shutil.copytree(GOLDEN / release, tmp_path / "golden"))
    expected = json.loads((place / "expected.json").read_text())
    keys = [f"--keys={path}" for path in place.glob("store/keys.db")]
    status, found = read(place / file, *keys)
    assert (status, found["damaged"], found["head"]) == (0, None, (place / "head.txt").read_text().strip())
    assert found["contents"]["forgotten"] == len(expected["forgotten"])
    assert found["agents"] == expected["current"]
    sessions = found["sessions"]
    assert {name: [turn["position"] for turn in said["turns"]] for name, said in sessions.items()} == expected["seen"]
    said = {turn["position"]: turn["text"] for turns in expected["turns"].values() for turn in turns}
    assert all(turn["text"] == said[turn["position"]] for one in sessions.values() for turn in one["turns"])
    for name, held in expected["held"].items():
        assert sessions[name]["values"] == held["values"]
        assert (sessions[name]["task"] or {}).items() <= (held["task"] or {}).items()
        for kind, of in (("notes", "text"), ("checkpoints", "id")):
            assert [each[of] for each in sessions[name][kind]] == [each[of] for each in held[kind]]


@pytest.mark.parametrize("change", [*CHANGES, *LINES])
def test_it_says_where_a_log_is_damaged(read, tmp_path, change):
    """Both kinds of files; what comes before is still printed."""
    place = Path(shutil.copytree(GOLDEN / "0.1-plain", tmp_path / "golden"))
    if change in CHANGES:
        statement, position = CHANGES[change]
        path = place / "store" / "log.db"
        with dbapi2.connect(path) as connection:
            for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {trigger}")
            connection.execute(statement)
    else:
        which, position = LINES[change]
        path = place / "export.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[which] if isinstance(which, slice) else [lines[number] for number in which]))
    status, found = read(path)
    assert (status, found["damaged"]["position"]) == (1, position)
    assert sum(found["topics"].values()) == position - 1


def test_facts_and_wrapped_keys_are_read_and_a_missing_key_is_named(read, tmp_path, monkeypatch):
    """Of a store of today. Without the key for the keys the chain is checked all the same."""
    key = "5a" * 32
    (tmp_path / "key").write_text(key)
    monkeypatch.setenv("MNEMOLOG_KEY_FILE", str(tmp_path / "key"))
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        store.assert_fact("user/city", "Porto", valid_from="2026-03")
        heard = store.assert_fact("user/city", "Lisbon", valid_from="2025-01")
        store.assert_fact("user/dog", "Nero", corrects=store.assert_fact("user/dog", "Nemo"))
        store.session("trip").record("user", "Olá, Inês! ☕")
        expected = {fact.key: fact.value for fact in store.facts()}
    wrap_keys(tmp_path / "memory")
    log, keys = tmp_path / "memory" / "log.db", f"--keys={tmp_path / 'memory' / 'keys.db'}"
    status, found = read(log, keys, f"--wrapped-with={key}")
    assert (status, found["facts"][""]) == (0, expected)
    assert found["sessions"]["trip"]["turns"][0]["text"] == "Olá, Inês! ☕"
    assert read(log)[1]["contents"]["sealed"] >= heard.position
    assert read(log, keys) == (2, "these keys are wrapped: give --wrapped-with\n")
