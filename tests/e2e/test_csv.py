"""The lists of the command line as CSV, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime

import pytest

from mnemolog import MemoryStore
from mnemolog.projections.read_models import Turn

pytestmark = pytest.mark.local

TEXT = 'She said "yes, \x1b[31mred\x1b[0m";\nthen\tnothing, 里斯本 🎂'


@pytest.fixture
def memory(folder):
    """A store with something for each command to list."""
    with MemoryStore.open(folder, model=None) as store:
        trip = store.session("trip", title="Trip", scope="acme/alice")
        trip.record("user", TEXT, metadata={"channel": "mail"}, speaker="Alice", key="t1")
        trip.record("assistant", "nothing of note")
        trip.note("call the vet")
        trip.checkpoint("before")
        turn = trip.record("user", "my PIN is 1234")
        store.forget(positions=[turn.position])
        store.recall("nothing", receipt=True)
    return folder


def rows_of(ran):
    assert ran.returncode == 0, ran.stderr
    return list(csv.DictReader(io.StringIO(ran.stdout, newline="")))


LISTS = {
    "recall": ["recall", "nothing", "--mode", "text"],
    "find": ["find", "nothing"],
    "sessions": ["sessions"],
    "show": ["show", "trip"],
    "replay": ["replay"],
    "audit recalls": ["audit", "recalls", "--model", "none"],
    "forgotten": ["forgotten"],
    "notes": ["notes", "trip"],
    "checkpoint list": ["checkpoint", "list", "trip"],
    "model list": ["model", "list"],
    "quarantine list": ["quarantine", "list"],
}


def command(name, folder):
    words = LISTS[name]
    group = len(name.split())
    return [*words[:group], str(folder), *words[group:]]


def test_every_command_that_lists_prints_csv_with_a_header(memory, run):
    """The fields of its JSON; where there is nothing to list, the header alone."""
    for name in LISTS:
        ran = run(*command(name, memory), "--csv")
        rows, header = rows_of(ran), next(csv.reader(io.StringIO(ran.stdout)))
        found = run(*command(name, memory), *(["--jsonl"] if name == "replay" else ["--json"]))
        if name == "replay":
            listed = [json.loads(line) for line in found.stdout.splitlines()]
        else:
            listed = {"recall": "hits", "audit recalls": "recalls"}.get(name)
            listed = found.json[listed] if listed else found.json
        assert len(rows) == len(listed), name
        assert len(header) == len(set(header)) >= 2
        for row, item in zip(rows, listed, strict=True):
            assert set(item) <= set(header), name
            for field, value in item.items():
                if value is None:
                    assert row[field] == ""
                elif not isinstance(value, str):
                    assert json.loads(row[field]) == value


def test_a_text_with_commas_quotes_and_line_breaks_is_one_cell(memory, run):
    """What would steer a terminal is an escape; nothing else changes."""
    first, _ = rows_of(run("show", memory, "trip", "--csv"))
    assert first["text"] == TEXT.replace("\x1b", r"\x1b")
    assert json.loads(first["metadata"]) == {"channel": "mail"}
    assert datetime.fromisoformat(first["said_at"]).tzinfo is not None
    assert list(first) == list(Turn.__struct_fields__)
    assert "\x1b" not in run("replay", memory, "--csv").stdout


def test_csv_and_json_are_not_printed_at_once(memory, run):
    """Nor the CSV of something that is no list."""
    for arguments in (["sessions", memory, "--csv", "--json"], ["sessions", memory, "--json", "--csv"]):
        assert run(*arguments).returncode == 2
    for arguments in (["replay", memory, "--csv", "--jsonl"], ["show", memory, "2", "--csv"]):
        assert run(*arguments).returncode == 2
    assert run("show", memory, "trip", "--at", "3", "--csv").returncode == 2
