"""Stores of every release open for ever: they verify against their heads and answer as they did."""

import json
import os
import shutil
from pathlib import Path

import pytest

from mnemolog import MemoryStore, import_log
from tests.golden.make_store import answers, encoder, make

GOLDEN = Path(os.environ.get("GOLDEN", Path(__file__).parents[1] / "golden"))
"""`make release-check` names the folder of those that it made."""
RELEASES = sorted(path for path in GOLDEN.iterdir() if (path / "expected.json").exists())

pytestmark = pytest.mark.promise("P19")


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


def test_there_is_a_golden_store():
    """The tests below are made of what is in this folder."""
    assert RELEASES


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


def test_a_golden_store_exports_the_same_lines(release, tmp_path):
    """The format of exports is a promise too: line by line, whatever a later version adds to the first."""
    with MemoryStore.open(copied(release, tmp_path / "copy"), model=None, create=False) as store:
        store.audit.export(tmp_path / "export.jsonl")
    found, expected = (path.read_text().splitlines() for path in (tmp_path / "export.jsonl", release / "export.jsonl"))
    assert found[1:] == expected[1:]


def test_the_builder_makes_the_same_log_again(tmp_path):
    """Clock and ids are its own, so a golden store is explainable, and can be made again before its release."""
    make(tmp_path / "one", encrypt=False)
    make(tmp_path / "two", encrypt=False)
    for name in ("export.jsonl", "head.txt", "expected.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_receipt_of_a_ranking_that_is_gone_is_named_and_not_repeated(release, tmp_path):
    """Its verdict is not a wrong one, and what it would be today is told all the same."""
    with MemoryStore.open(copied(release, tmp_path / "copy"), model=encoder(), create=False) as store:
        (receipt,) = store.audit.receipts().receipts
        assert (receipt.verdict, "'parts/1'" in receipt.why) == ("cannot-be-told", True)
        assert receipt.would_differ_today is False
