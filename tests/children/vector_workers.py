"""What child processes do to a store's vectors: write them, be hindered at it, be killed at it."""

import errno
import os
import shutil
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import faiss

from mnemolog import Hit, MemoryStore, MnemologError
from mnemolog.projections.vectors import generation, projection, segment
from tests.children.file_operations import FileOperations
from tests.support import HashEncoder

QUERIES = ("number7 topic2", "number31", "note on topic3")
DIMENSION = 16


def small_parts() -> None:
    """Let few rows be as many as thousands are: more files, merges and an index."""
    generation.ROWS_FREE = 8  # type: ignore[misc]
    projection.BUILD_ROWS = 60  # type: ignore[misc]
    segment.COARSE_ROWS_MIN = 64  # type: ignore[misc]


def answers(store: MemoryStore) -> list[list[tuple[int, float]]]:
    """What the vectors say to a few queries."""
    return [[(hit.position, round(hit.similarity or 0.0, 5)) for hit in _recalled(store, query)] for query in QUERIES]


def _recalled(store: MemoryStore, query: str) -> tuple[Hit, ...]:
    found = store.recall(query, k=10, mode="vector")
    if (found.vectors_cover or 0) < found.head:  # On a busy machine the projector may be at it, and a recall not wait.
        found = store.recall(query, k=10, mode="vector", min_position=found.head)
    return found.hits


def open_store(folder: str | Path) -> tuple[MemoryStore, HashEncoder]:
    """Open a store with a model that counts its calls."""
    encoder = HashEncoder(dimension=DIMENSION)
    return MemoryStore.open(folder, model=encoder), encoder


def write(store: MemoryStore, what: str) -> None:
    """Write vectors as `what` says."""
    if what == "rebuild":
        store.rebuild("vectors")
    else:
        store.admin.catch_up_vectors()


def hindered(pipe: Connection, folder: str, what: str, at: int, for_ever: bool) -> None:
    """Write vectors while the file operation `at` fails; tell how it ended and what is answered then."""
    small_parts()
    operations = FileOperations(Path(folder) / "projections" / "vectors")

    def fail() -> None:
        raise OSError(errno.EIO, "planted")

    store, _ = open_store(folder)
    with store:
        operations.arm(fail, at=at, for_ever=for_ever)
        outcome = "done"
        try:
            write(store, what)
        except MnemologError as error:
            outcome = type(error).__name__
        except OSError as error:
            outcome = f"raw {error!r}"
        operations.disarm()
        pipe.send((outcome, operations.count, answers(store)))


def killed(pipe: Connection, folder: str, what: str, at: int) -> None:
    """Write vectors and be killed at the file operation `at`; tell how many there were when it was not."""
    small_parts()
    operations = FileOperations(Path(folder) / "projections" / "vectors")
    store, _ = open_store(folder)
    with store:
        operations.arm(lambda: os.kill(os.getpid(), signal.SIGKILL), at=at)
        write(store, what)
        pipe.send(operations.count)


def answering(folder: str | Path) -> tuple[list[list[tuple[int, float]]], list[str]]:
    """Open the store anew; return its answers, and the texts that it asked the model for beside the queries."""
    store, encoder = open_store(folder)
    with store:
        return answers(store), [text for batch in encoder.calls for text in batch if text not in QUERIES]


def judging(pipe: Connection, stage: str, folder: str, damages: list[tuple[str, str, Any]]) -> None:
    """Open a copy of the store after each damage, and tell whether all was right, or else what was not."""
    small_parts()
    parsed: list[bytes] = []
    real = faiss.deserialize_index

    def noted(data: Any) -> Any:
        parsed.append(data.tobytes())
        return real(data)

    faiss.deserialize_index = noted
    sound = {path.read_bytes() for path in Path(stage).glob("projections/vectors/*/*/index.faiss")}
    expected, _ = answering(stage)
    Path(folder).mkdir(exist_ok=True)
    for damage in damages:
        shutil.rmtree(folder)
        shutil.copytree(stage, folder)
        _damage(Path(folder), *damage)
        parsed.clear()
        try:
            pipe.send(_verdict(Path(folder), expected, sound, parsed))
        except Exception as error:
            pipe.send(f"{error!r}")


def _damage(folder: Path, how: str, inner: str, detail: Any) -> None:
    path = folder / inner
    if how == "flip":
        data = bytearray(path.read_bytes())
        if data:
            data[detail // 8] ^= 1 << detail % 8
        path.write_bytes(data)
    elif how == "cut":
        os.truncate(path, detail)
    elif how == "remove":
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif how == "replace":
        shutil.copy(detail, path)
    else:
        os.utime(path)


def _verdict(folder: Path, expected: Any, sound: set[bytes], parsed: list[bytes]) -> str:
    store, _ = open_store(folder)
    with store:
        found = answers(store)
        if found != expected:
            return "other answers"
        if not set(parsed) <= sound:
            return "FAISS was given what was not written"
        store.admin.catch_up_vectors()
        again, last = answers(store), store.recall(QUERIES[0], mode="vector")
    if last.vectors_cover != last.head:
        return f"the vectors go to {last.vectors_cover} of {last.head}"
    return "right" if again == expected else "other answers afterwards"
