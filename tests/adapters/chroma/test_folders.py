"""A folder of Chroma, made and read by its own library."""

import chromadb

from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files


def test_a_folder_is_imported_collection_by_collection_and_stays_as_it_is(tmp_path):
    """More documents than a page has, each once, with its metadata; a second import adds nothing."""
    client = chromadb.PersistentClient(str(tmp_path / "chroma"), settings=chromadb.Settings(anonymized_telemetry=False))
    notes, empty = (client.create_collection(name, embedding_function=None) for name in ("notes", "empty"))
    ids = [f"n{number}" for number in range(1_001)]
    notes.add(ids=ids, documents=[f"note {name}" for name in ids], embeddings=[[0.0, 1.0]] * len(ids))
    notes.update(ids=["n7"], metadatas=[{"session_id": "trip", "role": "assistant"}])
    before = {path: path.read_bytes() for path in (tmp_path / "chroma").rglob("*") if path.is_file()}
    with MemoryStore.open(tmp_path / "memory", model=None) as store:
        reports = [import_files(store, tmp_path / "chroma") for _ in range(2)]
        (turn,) = store.turns("trip")
        assert [(report.recorded, report.already_there) for report in reports] == [(1_001, 0), (0, 1_001)]
        assert (turn.text, turn.role, turn.key, len(list(store.turns("notes", limit=2_000)))) == (
            *("note n7", "assistant", "n7"),
            1_000,
        )
    assert empty.count() == 0
    assert {path: path.read_bytes() for path in before} == before
