"""The whole store against a plain Python model: random histories through two handles, reopened and stripped.

Steps, model and comparison are those of the simulation (`tests/faults/simulation`), which has the disk fail as well.
Here hypothesis chooses the steps, and there is a kind with projectors, whose threads no seed replays.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mnemolog.projections import projector
from mnemolog.projections.history import states
from tests.faults.simulation.accidents import Accidents
from tests.faults.simulation.script import NUMBER_MAX, NUMBERS, WEIGHTS, Step

pytestmark = pytest.mark.local

LEFT_OUT = {"flip", "cut", "crash", "no_space", "io_error", "doctor", "no_room"}
"""What needs a disk that fails, or a projector that stands still."""
NAMES = [name for name in WEIGHTS if name not in LEFT_OUT for _ in range(WEIGHTS[name])]
STEPS = st.builds(
    Step,
    st.sampled_from(NAMES),
    st.integers(0, 1),
    st.tuples(*[st.integers(0, NUMBER_MAX)] * NUMBERS),
)
POSITIONS = 6
"""As of how many positions everything is compared in the end."""


class WithoutModels(Accidents):
    """Stores of text only."""

    with_models = False


class WithProjectors(Accidents):
    """Stores whose projectors follow the log, and die with each handle."""

    background = True


class WholeStore(RuleBasedStateMachine):
    kind: type[Accidents] = WithoutModels

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, small in (("SNAPSHOT_EVERY", 3), ("SESSIONS_KEPT_MAX", 2), ("CHECKPOINTS_KEPT_MAX", 2)):
            self.patch.setattr(states, name, small)
        self.patch.setattr(projector, "START_DELAY_S", 0.0)
        self.base = Path(tempfile.mkdtemp())
        self.world = self.kind(self.base)

    @initialize()
    def first(self):
        self.do(Step("start", 0, (0,) * NUMBERS))

    @rule(step=STEPS)
    def do(self, step):
        self.world.handle = step.handle
        self.world.check(getattr(self.world, step.name)(*step.numbers))
        self.world.check_agent()

    def teardown(self):
        try:
            for _ in ("as it is", "from snapshots"):
                self.world.check_all(positions=POSITIONS)
                self.world.check_receipts()
                self.world.reopen()
        finally:
            self.world.close()
            shutil.rmtree(self.base)
            self.patch.undo()


WholeStore.TestCase.settings = settings(
    max_examples=10, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWholeStore = WholeStore.TestCase


class WholeStoreWithProjectors(WholeStore):
    kind = WithProjectors


WholeStoreWithProjectors.TestCase.settings = settings(WholeStore.TestCase.settings, max_examples=6)
TestWholeStoreWithProjectors = WholeStoreWithProjectors.TestCase
