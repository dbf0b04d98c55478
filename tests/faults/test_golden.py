"""Stores of every release open for ever, and a process that is killed while it converts one loses nothing."""

import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec
import pytest

from mnemolog import MemoryStore, NewTurn, import_log
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.projections.history import states
from mnemolog.projections.sql import checked_json
from mnemolog.projections.sql.database import break_seal
from mnemolog.projections.vectors.folders import read_manifest
from tests.children.workers import convert_until_killed
from tests.golden.make_store import answers, encoder, make
from tests.support import WAIT_S

GOLDEN = Path(os.environ.get("GOLDEN", Path(__file__).parents[1] / "golden"))
"""`make release-check` names the folder of those that it made."""
RELEASES = sorted(path for path in GOLDEN.iterdir() if (path / "expected.json").exists())


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request):
    """The folder of a golden store. Never opened: a copy is."""
    return request.param


def copied(release, folder):
    """A copy of the store, with its projections or without."""
    return Path(shutil.copytree(release / "store", folder))


def without_projections(release, folder):
    """The log alone, as after `rm -r projections`."""
    copy = copied(release, folder)
    shutil.rmtree(copy / "projections")
    return copy


def imported(release, folder):
    """A store made of the export."""
    import_log(release / "export.jsonl", folder)
    for keys in (release / "store").glob("keys.db"):
        shutil.copy(keys, folder)
    return folder


def agree(found, expected, at="answer"):
    """Fail where an answer is another one. What a later release says beside it is welcome."""
    if isinstance(expected, dict):
        if "title" in found and "name" in expected:  # What is the title of a session now.
            expected = {"title" if name == "name" else name: value for name, value in expected.items()}
        assert expected.keys() <= found.keys(), at
        for name, value in expected.items():
            agree(found[name], value, f"{at}.{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), at
        for place, value in enumerate(expected):
            agree(found[place], value, f"{at}[{place}]")
    else:
        assert found == expected, at


@pytest.mark.promise("P19")
def test_there_is_a_golden_store():
    """The tests below are made of what is in this folder."""
    assert RELEASES


@pytest.mark.promise("P19")
def test_a_store_for_one_scope_keeps_the_names_of_existing_sessions_and_agents(release, tmp_path):
    """They have no scope in front, and are found as they are."""
    expected = json.loads((release / "expected.json").read_text())
    with MemoryStore.open(copied(release, tmp_path / "copy"), model=None, create=False, scope="acme") as store:
        names = [item.session for item in store.sessions()]
        assert "trip-1" in names
        assert {name: store.session(name).id for name in names} == {name: name for name in names}
        seen = {name: [turn.position for turn in store.session(name).turns()] for name in names}
        assert seen == {name: expected["seen"][name] for name in names}
        assert store.current("ada").id == expected["current"]["ada"]


@pytest.mark.promise("P19")
@pytest.mark.parametrize("way", [copied, without_projections, imported])
def test_a_golden_store_opens_verifies_and_answers_as_it_did(release, tmp_path, way):
    """With the projections of its time, with none, and from its export; by meaning too, and it takes new turns."""
    folder, expected = way(release, tmp_path / "copy"), json.loads((release / "expected.json").read_text())
    noted = (release / "head.txt").read_text().strip()
    with MemoryStore.open(folder, model=None, create=False) as store:
        found = store.verify(expect_head=noted, heads=release / "head.txt")
        assert found.findings == ()
        assert f"{found.head}:{found.digest}" == noted
        agree(answers(store), expected)
    with MemoryStore.open(folder, model=encoder(), create=False) as store:
        best = store.recall("Noted: Lisbon.", k=1, mode="vector").hits[0]
        assert (best.text, best.key) == ("Noted: Lisbon.", "t2")
        head = store.head().position
        assert store.record("trip-1", "user", "Lisbon it is after all.", key="t3").position <= head
        assert store.record("trip-1", "user", "And on it goes.").position == head + 1
        assert store.verify().sound


@pytest.mark.promise("P19")
def test_a_golden_store_exports_the_same_lines(release, tmp_path):
    """The format of exports is a promise too: line by line, whatever a later version adds to the first."""
    with MemoryStore.open(copied(release, tmp_path / "copy"), model=None, create=False) as store:
        store.audit.export(tmp_path / "export.jsonl")
    found, expected = (path.read_text().splitlines() for path in (tmp_path / "export.jsonl", release / "export.jsonl"))
    assert found[1:] == expected[1:]


@pytest.mark.promise("P19")
def test_the_builder_makes_the_same_log_again(tmp_path):
    """Clock and ids are its own, so a golden store is explainable, and can be made again before its release."""
    make(tmp_path / "one", encrypt=False)
    make(tmp_path / "two", encrypt=False)
    for name in ("export.jsonl", "head.txt", "expected.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.promise("P19")
def test_a_receipt_of_a_ranking_that_is_gone_is_named_and_not_repeated(release, tmp_path):
    """Its verdict is not a wrong one, and what it would be today is told all the same."""
    with MemoryStore.open(copied(release, tmp_path / "copy"), model=encoder(), create=False) as store:
        (receipt,) = store.audit.receipts().receipts
        assert (receipt.verdict, "'parts/1'" in receipt.why) == ("cannot-be-told", True)
        assert receipt.would_differ_today is False


TURNS = 300
OLDER_TABLES = """
    UPDATE tracking SET name = substr(name, 1, instr(name, '/'))
    || (CAST(substr(name, instr(name, '/') + 1) AS INTEGER) - 1)
"""
TAGS = ("views", "embeddings", "segments", "snapshots")


class Source(NamedTuple):
    """A store to be copied, and what it has to answer."""

    name: str
    store: Path
    head: str
    expected: dict


def make_ours(folder):
    """Make a store of this version, with everything that carries the number of a format."""
    with (
        mock.patch.object(states, "SNAPSHOT_EVERY", 5),
        MemoryStore.open(folder, model=encoder(), background=False) as store,
    ):
        session = store.start_session("trip-1")
        store.record_many([NewTurn(session=session.id, role="user", text=f"note number {n}") for n in range(TURNS)])
        for n in range(20):
            session.set(f"k{n % 7}", n)
        session.record("assistant", "Noted: Lisbon.", key="t2")
        store.admin.catch_up_views()
        store.admin.catch_up_vectors()
        return Source("ours", folder, str(store.head()), answers(store))


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The golden stores, and one of this version."""
    golden = [
        Source(
            release.name,
            release / "store",
            (release / "head.txt").read_text().strip(),
            json.loads((release / "expected.json").read_text()),
        )
        for release in RELEASES
    ]
    return [*golden, make_ours(tmp_path_factory.mktemp("ours") / "store")]


def make_older(folder, tags):
    """Give the projections the numbers of earlier formats. Return how many files were changed."""
    layout, changed = StoreLayout(folder), 0
    changes = {
        "views": (layout.views, OLDER_TABLES),
        "embeddings": (layout.embeddings, "PRAGMA user_version = 1"),
        "snapshots": (layout.snapshots, "UPDATE snapshots SET format = format - 1"),
    }
    for path, change in (changes[tag] for tag in tags if tag in changes):
        if path.exists():
            break_seal(path)
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(change)
            changed += 1
    for path in layout.vectors.rglob("manifest.json") if "segments" in tags else ():
        manifest = read_manifest(path.parent)
        path.write_bytes(checked_json.encode(msgspec.structs.replace(manifest, format=manifest.format - 1)))
        changed += 1
    return changed


def converted(processes, folder, *, kill_after_s):
    """Open the store in a child and kill it then, or when it is done. Return how long it took, None if it was not."""
    process, pipe = processes.start(convert_until_killed, str(folder))
    assert pipe.poll(WAIT_S)
    assert pipe.recv() == "opening"
    began = time.monotonic()
    done = pipe.poll(WAIT_S if kill_after_s is None else kill_after_s)
    took = time.monotonic() - began
    if done:
        assert pipe.recv() == "converted"
    process.kill()
    process.join()
    assert process.exitcode == -9, "it was killed, it did not fail by itself"
    return took if done else None


@pytest.mark.timeout(7200)
@pytest.mark.promise("P19", "kills while converting")
def test_a_kill_while_another_version_is_converted_loses_nothing_and_the_next_start_finishes(
    processes, sources, tmp_path, rng, seed, tries
):
    """Golden stores, and tables, vectors and snapshots with older numbers, killed once or twice on the way."""
    longest, unfinished = {}, 0
    for number in range(tries):
        source, folder = sources[number % len(sources)], tmp_path / f"store{number}"
        shutil.copytree(source.store, folder)
        whole = number < len(sources)  # The first of each is measured, with all that can be converted.
        tags = TAGS if whole else rng.sample(TAGS, rng.randint(0, len(TAGS)))
        why = f"{source.name} with older {', '.join(tags) or 'nothing'}, try {number}, seed {seed}"
        assert make_older(folder, tags) >= 3 or not whole, why
        if whole:
            longest[source.name] = converted(processes, folder, kill_after_s=None)
        else:
            for _ in range(rng.randint(1, 2)):
                after_s = rng.uniform(0, longest[source.name])
                unfinished += converted(processes, folder, kill_after_s=after_s) is None
        with MemoryStore.open(folder, model=encoder(), background=False, create=False) as store:
            found = store.verify(expect_head=source.head)
            assert found.findings == (), why
            assert f"{found.head}:{found.digest}" == source.head, why
            agree(answers(store), source.expected)
            store.admin.catch_up_vectors()  # One recall embeds a part of what is missing, and says up to where.
            best = store.recall("Noted: Lisbon.", k=1, mode="vector").hits[0]
            assert (best.text, best.key) == ("Noted: Lisbon.", "t2"), why
            assert store.session("trip-1").record("user", "And on it goes.").position == found.head + 1, why
            assert store.recall("on it goes", k=1).hits[0].text == "And on it goes.", why
            assert store.verify(contents=True).sound, why
        shutil.rmtree(folder)
    assert unfinished or tries <= len(sources), "no kill was early enough"
    print(f"{tries} stores, {unfinished} kills on the way, within {max(longest.values()):.2f} s; seed {seed}")
