"""What `scale.py` measures in processes of their own, so that memory and caches are those of one task.

python -m benchmarks.scale_children TASK FOLDER [ARGUMENT]     prints JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.hashed_words import HashedWords
from benchmarks.quality.encoder import Remembering
from benchmarks.quality.shapes import FIELDS
from mnemolog import MemoryStore
from mnemolog.adapters.importers import import_files
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder

K: Final = 10
QUESTIONS_LEAST: Final = 40
"""Questions that are asked each way, however long they take."""
BUDGET_S: Final = 60.0
"""After so many seconds no further question is asked, if each way had the least number."""
RECALLS_RESIDENT: Final = 200
MODEL_QUESTIONS: Final = 200
WHOLE: Final = "no filter"


class Asked(msgspec.Struct):
    """The times of recalls that were asked one way, in milliseconds."""

    p50_ms: float
    p95_ms: float
    cpu_p50_ms: float
    """CPU time of all threads: where other processes are busy, it says more than the clock."""
    questions: int
    hits: float
    """Hits per question."""


class Plan(msgspec.Struct):
    """What a store is asked: the questions, and the filters of each way of asking."""

    questions: list[str]
    ways: dict[str, dict[str, Any]]


def plan_of(folder: Path) -> Plan:
    """Read the plan beside a store."""
    return msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)


def opened(folder: Path, model: Any) -> MemoryStore:
    """Open the store in a folder."""
    return MemoryStore.open(folder / "store", model=model, synchronous="NORMAL", background=False)


def recall(folder: Path) -> dict[str, Any]:
    """Ask every question every way, one way after the other for each question."""
    plan, encoder = plan_of(folder), Remembering(HashedWords())
    encoder.ask()
    with opened(folder, encoder) as store:

        def asking(filters: dict[str, Any]) -> Callable[[str], Any]:
            return lambda question: store.recall(question, k=K, **filters)

        return timed({name: asking(filters) for name, filters in plan.ways.items()}, plan.questions)


def timed(ways: dict[str, Callable[[str], Any]], questions: Sequence[str]) -> dict[str, Any]:
    """Return how long questions take each way, after a first time that reads the pages in and is not counted."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    hits = dict.fromkeys(ways, 0)
    started = time.perf_counter()
    for number, question in enumerate(questions, 1):
        for name, ask in ways.items():
            ask(question)
            began, worked = time.perf_counter(), time.process_time()
            hits[name] += len(ask(question))
            times[name].append((1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - worked)))
        if number >= QUESTIONS_LEAST and time.perf_counter() - started > BUDGET_S:
            break
    return {name: asked_of(took, hits[name]) for name, took in times.items()}


def asked_of(took: Sequence[tuple[float, float]], hits: int) -> Asked:
    """Sum up the wall and CPU times of questions."""
    wall, cpu = np.array(took).T
    p50, p95 = np.quantile(wall, [0.5, 0.95]).tolist()
    return Asked(p50, p95, float(np.median(cpu)), len(took), hits / len(took))


def first(folder: Path) -> dict[str, float]:
    """Open a store, recall once, then `RECALLS_RESIDENT` times. Report times, and the memory at the end."""
    questions, encoder = plan_of(folder).questions, HashedWords()
    encoder.encode(["warm up"])
    began, worked = time.perf_counter(), time.process_time()
    with opened(folder, encoder) as store:
        store.recall(questions[0], k=K)
        first_ms, cpu_ms = 1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - worked)
        for number in range(RECALLS_RESIDENT):
            store.recall(questions[number % len(questions)], k=K)
        return {"first_ms": first_ms, "cpu_ms": cpu_ms} | memory()


def rebuild(folder: Path, what: str) -> dict[str, float]:
    """Rebuild a projection. Report the time, and the most memory that the process ever had."""
    with opened(folder, HashedWords()) as store:
        turns = sum(scope.turns for scope in store.scopes())
        before = memory()["peak_mb"]
        began, worked = time.perf_counter(), time.process_time()
        store.rebuild(what)  # type: ignore[arg-type]
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - worked
    return {"per_s": turns / seconds, "seconds": seconds, "cpu_s": cpu_s, "opened_mb": before} | memory()


def memory() -> dict[str, float]:
    """Return the memory of this process in megabytes: now, at most, and what of it are pages of files (Linux)."""
    names = {"VmRSS": "resident_mb", "VmHWM": "peak_mb", "RssFile": "of_files_mb"}
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return {names[name[:-1]]: int(rest[0]) * 1024 / 1e6 for name, *rest in lines if name[:-1] in names}


def conversations(folder: Path, data: str) -> dict[str, Any]:
    """Embed turns and questions with the real model, and recall without counting its time."""
    inner = SentenceTransformerEncoder(DEFAULT_MODEL, download=False)
    encoder = Remembering(inner)
    with opened(folder, encoder) as store:
        import_files(store, [Path(data) / "turns.jsonl"], fields=[FIELDS], agent="bench")
        store.admin.catch_up_views()
        inner.encode(["warm up"])
        began = time.perf_counter()
        store.admin.catch_up_vectors()
        embedded_s = time.perf_counter() - began
        encoder.ask()
        lines = (Path(data) / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        scope_of = {item["question"]: str(item["conversation"]) for item in map(json.loads, lines)}
        questions = list(scope_of)[: 2 * MODEL_QUESTIONS]
        embedded = question_times(inner, questions)
        ways = {
            "in its conversation": lambda question: store.recall(question, k=K, scope=scope_of[question]),
            WHOLE: lambda question: store.recall(question, k=K),
        }
        times = timed(ways, questions[:RECALLS_RESIDENT])
        turns = sum(scope.turns for scope in store.scopes())
    return {
        "turns": turns,
        "ways": times,
        "texts_per_s": encoder.corpus.texts / embedded_s,
        "question": embedded,
    }


def question_times(encoder: Any, questions: Sequence[str]) -> dict[str, float]:
    """Embed questions, half of them alone on the machine and half beside a process that is busy all the time."""
    idle = [embedding_ms(encoder, text) for text in questions[::2]]
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        beside = [embedding_ms(encoder, text) for text in questions[1::2]]
    finally:
        busy.kill()
        busy.wait()
    return {
        f"{name}_{quantile}_ms": float(np.quantile(took, share))
        for name, took in (("idle", idle), ("busy", beside))
        for quantile, share in (("p50", 0.5), ("p95", 0.95))
    }


def embedding_ms(encoder: Any, text: str) -> float:
    """Return how long one question takes."""
    began = time.perf_counter()
    encoder.encode([text])
    return 1e3 * (time.perf_counter() - began)


TASKS: Final[dict[str, Callable[..., Any]]] = {task.__name__: task for task in (recall, first, rebuild, conversations)}


def run(task: str, folder: Path, *arguments: object) -> Any:
    """Run a task in a process of its own; return what it reports."""
    command = [sys.executable, "-m", "benchmarks.scale_children", task, str(folder), *map(str, arguments)]
    ran = subprocess.run(command, cwd=Path(__file__).parents[1], env=compiled(), stdout=subprocess.PIPE, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def compiled() -> dict[str, str]:
    """Return an environment in which Python keeps compiled modules, as it does for an installed package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


if __name__ == "__main__":
    name, where, *rest = sys.argv[1:]
    print(msgspec.json.encode(TASKS[name](Path(where), *rest)).decode())
