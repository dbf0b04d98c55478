"""The quarantine: nothing is lost by it, it is bounded, and two who do the same do not disturb each other."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from mnemolog.domain.store_layout import DATABASE_PARTS
from mnemolog.infra.runtime import files
from mnemolog.projections import quarantine
from mnemolog.projections.quarantine import Quarantine, identity
from mnemolog.projections.vectors.folders import FORMAT, Manifest, log_range_of, segment_name, write_manifest


@pytest.fixture
def aside(tmp_path):
    return Quarantine(tmp_path / "projections" / "quarantine")


def thing(aside, name="thing", text="content"):
    """A file below the projections, to be set aside."""
    path = aside.folder.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_quarantined_file_is_renamed_with_its_reason_beside_it(aside):
    """The bytes are the same, the old name is free, and the reason says what, why and when."""
    path = thing(aside, "vectors/generation/segment")
    moved = aside.add(path, reason="one bit too many", state="damaged")
    assert moved.read_text() == "content"
    assert not path.exists()
    note = json.loads((moved.parent / f"{moved.name}.reason.json").read_text())
    assert (note["was"], note["reason"]) == ("vectors/generation/segment", "one bit too many")
    (item,) = aside.items()
    assert (item.name, item.was, item.state) == (moved.name, note["was"], "damaged")
    assert timedelta(0) <= datetime.now(UTC) - item.when < timedelta(minutes=1)
    assert item.bytes == len("content")


def test_a_flipped_bit_in_a_reason_accuses_no_log(aside, tmp_path):
    """A reason tells what a segment remembers of the history: as it was written, or not at all."""
    segment = tmp_path / "projections" / segment_name(0, 7)
    segment.mkdir(parents=True)
    texts = dict.fromkeys(("fingerprint", "model", "recipe", "metric", "index", "faiss_version"), "")
    numbers = ("dimension", "turns", "vectors", "probes", "candidates", "block_rows")
    told = {"format": FORMAT, "log_id": "f" * 32, "after": 0, "upto": 7, "digest_at_upto": "ab" * 32}
    write_manifest(segment, Manifest(skipped=(), files={}, **texts, **dict.fromkeys(numbers, 0), **told))
    moved = aside.add(segment, reason="one bit too many", built_from=log_range_of(segment))
    path = moved.parent / f"{moved.name}.reason.json"
    (written,) = aside.items()
    assert (written.upto, written.digest) == (7, "ab" * 32)
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        (item,) = aside.items()
        told = (item.log_id, item.after, item.upto, item.digest)
        assert told in (("", None, None, ""), (written.log_id, 0, 7, written.digest))


def test_a_database_moves_with_its_parts_and_a_folder_with_its_files_as_one_item(aside):
    """What SQLite keeps beside the file stays beside it, so that the item can be opened. Segments are folders."""
    path = thing(aside, "views.db")
    for part in DATABASE_PARTS:
        thing(aside, f"views.db{part}", text="part")
    moved = aside.add(path, reason="damaged", parts=DATABASE_PARTS)
    (item,) = aside.items()
    assert item.bytes == len("content") + len(DATABASE_PARTS) * len("part")
    assert all((moved.parent / (moved.name + part)).read_text() == "part" for part in DATABASE_PARTS)
    assert list(aside.folder.parent.glob("views.db*")) == []
    thing(aside, "segment/index")
    assert (aside.add(aside.folder.parent / "segment", reason="damaged") / "index").exists()
    aside.purge()
    assert [path.name for path in aside.folder.iterdir()] == [".lock"]


def test_a_crash_at_any_moment_leaves_the_original_or_item_and_reason(tmp_path, aside, monkeypatch):
    """Cut off at each file operation in turn, and once more after that: nothing lost, no item without reason."""
    operations = ("write_synced", "sync")
    for after in range(1, 10):
        path = thing(aside, text=f"content {after}")
        before = {item.name for item in aside.items()}
        with monkeypatch.context() as patched:
            seen = _cut_off_after(patched, after, operations)
            with suppress(KeyboardInterrupt):
                aside.add(path, reason="cut off")
        added = [item for item in aside.items() if item.name not in before]
        assert path.exists() == (not added)
        assert all(item.reason == "cut off" for item in added)
        if seen[0] < after:
            break
        path.unlink(missing_ok=True)
    else:
        pytest.fail("it never came to its end")
    assert after > 3
    # Reasons without their item are no items, and go with the next thing that is set aside.
    assert len(list(aside.folder.glob("*.reason.json"))) == len(aside.items())


def _cut_off_after(patched, after, names):
    """Have the `after`-th call of these functions of `files` die like a process does. Counts in the list."""
    seen = [0]
    for name in names:
        original = getattr(files, name)

        def counted(*arguments, original=original):
            seen[0] += 1
            if seen[0] == after:
                raise KeyboardInterrupt
            return original(*arguments)

        patched.setattr(files, name, counted)
    return seen


def test_a_reason_without_its_item_is_no_item_and_an_item_without_its_reason_is_one(aside):
    """The first is left by a crash and cleaned up. The second was put there by hand."""
    aside.folder.mkdir(parents=True)
    leftover = aside.folder / "thing.20260101T000000Z.00000000.reason.json"
    leftover.write_text("{}")
    assert aside.items() == []
    assert aside.status().items == 0
    aside.add(thing(aside), reason="another")
    assert not leftover.exists()
    assert len(aside.items()) == 1
    aside.purge()
    (aside.folder / "by-hand").write_text("x")
    (item,) = aside.items()
    assert (item.name, item.when) == ("by-hand", None)
    assert aside.purge() == [item]


def test_a_full_quarantine_takes_nothing_more_and_deletes_nothing(aside, monkeypatch):
    """The damaged thing stays where it is, whichever limit is reached; a purge makes room."""
    monkeypatch.setattr(quarantine, "ITEMS_MAX", 2)
    for _ in range(2):
        assert aside.add(thing(aside), reason="damaged")
    path = thing(aside)
    assert aside.add(path, reason="damaged") is None
    assert path.exists()
    assert aside.status().full
    assert "purge" in aside.status().action
    assert len(aside.items()) == 2
    aside.delete(aside.items()[:1])
    assert not aside.status().full
    assert aside.add(path, reason="damaged")
    monkeypatch.setattr(quarantine, "ITEMS_MAX", 64)
    monkeypatch.setattr(quarantine, "BYTES_MAX", 2 * len("content"))
    assert aside.status().full
    assert aside.add(thing(aside), reason="damaged") is None
    aside.purge()
    monkeypatch.setattr(quarantine, "BYTES_MAX", 3)
    assert aside.add(thing(aside), reason="large"), "renaming costs no space: else nothing could be done about it"
    assert aside.status().full


def test_a_new_thing_under_the_old_name_is_left_alone(aside):
    """Who judged the old one comes too late: somebody has set it aside and made it anew."""
    path = thing(aside, text="damaged")
    judged = identity(path)
    aside.add(path, reason="by the first")
    thing(aside, text="made anew")
    assert aside.add(path, reason="by the second", judged=judged) is None
    assert path.read_text() == "made anew"


def test_a_file_system_that_refuses_leaves_everything_as_it_was(aside, monkeypatch):
    """No error for the reader who wanted an answer: what is damaged is not used, that is all."""
    path = thing(aside)
    monkeypatch.setattr(files, "write_synced", lambda *_: (_ for _ in ()).throw(OSError(28, "no space")))
    assert aside.add(path, reason="damaged") is None
    assert path.exists()
    assert aside.items() == []


def test_purge_deletes_all_items_and_a_dry_run_none(aside):
    """Both return the same items."""
    for name in ("one", "two"):
        aside.add(thing(aside, name), reason="x")
    assert len(aside.items()) == 2
    assert aside.purge(dry_run=True) == aside.items()
    assert len(aside.purge()) == 2
    assert [path.name for path in aside.folder.iterdir()] == [".lock"]
