"""A disk without room: a clear error, nothing half written, and everything works once there is room."""

from __future__ import annotations

import gc
import json
import random
import resource

import pytest

import mnemolog
from mnemolog import MemoryStore, StorageFull
from mnemolog.adapters.importers import import_files
from mnemolog.projections.sql.opening import Schema, open_or_rebuild
from tests.support import open_files

pytestmark = pytest.mark.promise("P13")


@pytest.mark.parametrize("room", range(0, 64 * 1024, 4096))
def test_an_append_without_room_writes_nothing_and_works_again_later(folder, file_limit, room):
    """The limit moves in steps of a page over the whole append."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.start_session("trip")
        first = session.record("user", "before")
        size = max(path.stat().st_size for path in folder.iterdir())
        file_limit(size + room)
        failed: mnemolog.MnemologError | None = None
        try:
            session.record("user", "x" * 60_000, key="k")
        except mnemolog.errors.AppendError as error:
            failed = error
        file_limit(resource.RLIM_INFINITY)
    with MemoryStore.open(folder, model=None) as store:
        again = store.record(session.id, "user", "x" * 60_000, key="k")
        assert [turn.position for turn in store.turns(session.id)] == [first.position, again.position]
        assert store.verify().sound
    assert failed is None or failed.hint
    assert failed is not None or room >= 60_000  # It cannot have fitted into less.


def test_an_import_that_fills_the_disk_reports_the_recorded_turns_and_can_resume(folder, tmp_path, file_limit):
    """Whole transactions stay; importing again records the rest, and nothing twice."""
    path = tmp_path / "talk.jsonl"
    lines = [json.dumps({"text": random.Random(number).randbytes(30_000).hex()}) for number in range(200)]
    path.write_text("\n".join(lines))
    with MemoryStore.open(folder, model=None) as store:
        file_limit(5 << 20)
        with pytest.raises(mnemolog.errors.AppendError) as caught:
            import_files(store, path)
        file_limit(resource.RLIM_INFINITY)
    (note,) = caught.value.__notes__
    recorded = int(note.removesuffix(" turns recorded"))
    with MemoryStore.open(folder, model=None) as store:
        report = import_files(store, path)
        assert 0 < recorded < len(lines)
        assert (report.already_there, report.recorded) == (recorded, len(lines) - recorded)
        assert store.verify().sound


def test_a_database_that_cannot_be_begun_is_not_left_open(folder, request):
    """Who tries again and again on a full disk does not run out of descriptors, nor maps what others cut."""

    def begin(database):
        with database.writing() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 4")
            connection.exec_driver_sql("CREATE TABLE large AS SELECT zeroblob(100000)")

    folder.mkdir()
    path = folder / "projections" / "views.db"
    request.addfinalizer(gc.enable)
    gc.disable()
    schema = Schema(lambda connection: None)
    with pytest.raises(StorageFull):
        open_or_rebuild(path, begin, folder / "projections" / "quarantine", schema=schema, busy_timeout_s=1)
    assert path.exists()
    assert open_files(folder) == []
