"""Runs scripts, many of them in a few processes, and makes those that fail as short as they can be."""

from __future__ import annotations

import gc
import random
import shutil
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from mnemolog.infra import sqlite
from mnemolog.projections.history import states
from mnemolog.projections.vectors import generation, projection, segment
from tests.faults.simulation.accidents import Accidents
from tests.faults.simulation.adopting import adopt
from tests.faults.simulation.failing import Failing
from tests.faults.simulation.script import STEPS, Script, script_of, written

SHRINKING_S = 120.0
SMALL = (
    (states, "SNAPSHOT_EVERY", 5),
    (states, "SESSIONS_KEPT_MAX", 4),
    (states, "CHECKPOINTS_KEPT_MAX", 2),
    (generation, "ROWS_FREE", 8),
    (projection, "BUILD_ROWS", 20),
    (segment, "COARSE_ROWS_MIN", 48),
)
"""What is thousands in use is a few here, so that fifty steps come to snapshots, merges and coarse indexes."""

READ_BESIDE = frozenset({"forget", "rebuild", "activate", "catch_up", "language", "record", "batch"})
"""Steps during which the other handle is read."""

_FOLDER: list[str] = []


class Failure(NamedTuple):
    """A script after which store and model do not agree."""

    seed: str
    start: Path | None
    """The store that it began with, None for a new one."""
    script: Script
    why: str


def _compile_statements_once() -> None:
    """SQLAlchemy compiles each statement for each engine, which is half of what a short script costs."""
    create, first = sqlite.create_engine, list[sa.Engine]()

    def create_engine(*arguments: Any, **options: Any) -> sa.Engine:
        engine = create(*arguments, **options)
        if first:
            engine.dialect, engine._compiled_cache = first[0].dialect, first[0]._compiled_cache
        else:
            engine.connect().close()  # Its dialect knows then what it speaks to.
            first.append(engine)
        return engine

    sqlite.create_engine = create_engine


def work_below(folder: str) -> None:
    """Have this process keep its stores below a folder, which the caller removes."""
    _FOLDER[:] = [folder]


@cache
def _prepared() -> tuple[Path, Failing]:
    """Where this process keeps its stores, with a disk that can fail."""
    for module, name, value in SMALL:
        setattr(module, name, value)
    _compile_statements_once()
    gc.freeze()
    root = Path(tempfile.mkdtemp(dir=_FOLDER[0]))
    return root, Failing(root)


def run(script: Script, *, start: Path | None = None) -> str | None:
    """Run a script on a new store, or a copy of `start`; return why it failed, None where it did not."""
    root, failing = _prepared()
    base = Path(tempfile.mkdtemp(dir=root))
    gc.disable()  # What is left open is seen, and not at times collected before.
    try:
        if start is not None:
            shutil.copytree(start, base / "memory")
        return played(script, base, failing, adopts=start is not None)
    finally:
        failing.disarm()
        failing.let_go()
        shutil.rmtree(base, ignore_errors=True)
        gc.collect()


def played(script: Script, base: Path, failing: Failing | None = None, *, adopts: bool = False) -> str | None:
    """Play a script in a folder; return why it failed. Without a disk that can fail it leaves such steps out."""
    at = "opening"
    try:
        world = Accidents(base, failing)
        if adopts:
            adopt(world)
        for number, step in enumerate(script, 1):
            at = f"step {number}, {step}"
            world.handle = step.handle
            if world.model.sessions or step.name == "start":
                take = partial(getattr(world, step.name), *step.numbers)
                world.check(world.beside_a_reader(take) if step.name in READ_BESIDE else take())
        at = "the end"
        world.check_all()
        world.check_receipts()
        world.close()
    except Exception as error:
        return f"{at}: {''.join(traceback.format_exception(error)[-6:])}"
    return None


def run_seed(seed: str, *, steps: int = STEPS, starts: Sequence[Path] = ()) -> Failure | None:
    """Run the script of a seed, on a store that others have made if the seed says so, and shrink it if it fails."""
    script, start = script_of(seed, steps=steps), start_of(seed, starts)
    why = run(script, start=start)
    if why is None:
        return None
    short = shrunk(script, lambda shorter: run(shorter, start=start) is not None)
    return Failure(seed, start, short, run(short, start=start) or f"(not every time) {why}")


def start_of(seed: str, starts: Sequence[Path]) -> Path | None:
    """The store that a script begins with, None for a new one: half of them begin with an old one, if there is any."""
    return random.Random(f"{seed}/start").choice([None] * len(starts) + list(starts)) if starts else None


def seeds_of(seed: int, scripts: int) -> list[str]:
    """The seeds of so many scripts."""
    return [f"{seed}/{n}" for n in range(scripts)]


def shrunk(script: Script, fails: Callable[[Script], bool]) -> Script:
    """Drop steps of a failing script as long as it still fails: halves first, then less, down to single ones."""
    end = time.monotonic() + SHRINKING_S
    size = len(script) // 2
    while size:
        for shorter in _without(script, size):
            if time.monotonic() > end:
                return script
            if fails(shorter):
                script = shorter
                break
        else:
            size //= 2
        size = min(size, len(script) // 2)
    return script


def _without(script: Script, size: int) -> Iterator[Script]:
    for start in range(len(script) - size, 0, -size):
        yield script[:start] + script[start + size :]
    if len(script) > size:
        yield script[size:]


def told(failure: Failure) -> str:
    """A failure, with all it takes to see it again."""
    start = "" if failure.start is None else f", from {failure.start.parent.name}/{failure.start.name}"
    return (
        f"seed {failure.seed}{start}: {failure.why}\n"
        f"the shortest script that fails ({len(failure.script)} steps):\n{written(failure.script)}\n"
    )
