"""The whole store against a list of facts, in random scripts: `tests/faults/simulation` says what they can do."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from mnemolog import Session
from tests.children.simulated import FATAL, dying_amid
from tests.faults.simulation.accidents import Accidents
from tests.faults.simulation.running import SMALL, Failure, played, seeds_of, shrunk, told
from tests.faults.simulation.script import WEIGHTS, read, script_of, written
from tests.faults.simulation.workers import play_all
from tests.postgres import put_log_in_postgres

pytestmark = pytest.mark.promise("P20")
SHORT_MAX = 8
FOUND = Path(__file__).parent / "simulation" / "found"


def simulate(*arguments):
    """Run scripts in processes of their own: a disk that can be made to fail is one for the whole process."""
    command = [sys.executable, "-m", "tests.faults.simulation", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])


@pytest.mark.timeout(36_000)
@pytest.mark.promise("P20", "scripts")
def test_store_and_model_agree_after_every_script(request, seed, tries):
    """Scripts of 50 steps: sessions, memory, recalls, rebuilds, model changes, crashes, damage, full disks, jumps."""
    ran = simulate("--seed", seed, "--scripts", tries, "--workers", request.config.option.workers)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    print(ran.stdout)


@pytest.mark.timeout(36_000)
@pytest.mark.promise("P20", "scripts in PostgreSQL")
def test_store_and_model_agree_after_every_script_over_postgresql(tmp_path, monkeypatch, postgres_url, seed, tries):
    """The same scripts, without a disk that fails: PostgreSQL's is not ours to break."""
    for setting in SMALL:
        monkeypatch.setattr(*setting)
    folders = (tmp_path / str(n) for n in itertools.count())

    def why_it_fails(script):
        (base := next(folders)).mkdir()
        put_log_in_postgres(base / "memory", postgres_url)
        return played(script, base)

    for name in seeds_of(seed, tries):
        script = script_of(name)
        if why_it_fails(script) is not None:
            short = shrunk(script, lambda shorter: why_it_fails(shorter) is not None)
            pytest.fail(told(Failure(name, None, short, why_it_fails(short) or "not every time")))


def test_scripts_that_have_failed_agree_now():
    """Each was a fault of the store or of the simulation, as its name says; they are kept as short as they could be."""
    found = sorted(FOUND.glob("*.txt"))
    assert found
    ran = simulate("--script", *found)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_simulation_sees_a_store_that_is_wrong_and_makes_the_script_short(tmp_path, monkeypatch, seed):
    """A rewind that hides one turn too few is found within a few scripts, and told in a few steps."""
    rewind = Session.rewind
    monkeypatch.setattr(Session, "rewind", lambda self, turns: rewind(self, turns=max(1, turns - 1)) and turns)
    folders = (tmp_path / str(n) for n in itertools.count())

    def fails(script):
        (base := next(folders)).mkdir()
        return played(script, base) is not None

    found = next(script for script in map(script_of, seeds_of(seed, 30)) if fails(script))
    short = shrunk(found, fails)
    assert "rewind" in {step.name for step in short}
    assert len(short) <= SHORT_MAX, written(short)


def test_a_script_that_kills_its_process_is_reported_and_ends_the_run(tmp_path):
    """Its work is not waited for: its seed is among those named, and no more are named than processes."""
    done, (told,) = play_all(seeds_of(1, 40), str(tmp_path), dying_amid, workers=2)
    assert done < 40
    assert FATAL in told
    assert len(told.split(":")[1].split(",")) <= 2, told


def test_a_seed_determines_its_script_which_can_be_read_back(seed):
    """What is printed is what is run again, and every step has a method."""
    script = script_of(f"{seed}/1")
    assert script == script_of(f"{seed}/1") == read(written(script))
    assert script != script_of(f"{seed}/2")
    assert all(callable(getattr(Accidents, name)) for name in WEIGHTS)
