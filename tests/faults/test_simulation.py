"""The whole store against a list of facts, in random scripts: `tests/faults/simulation` says what they can do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.simulation.model import StoreModel
from tests.faults.simulation.running import seeds_of, shrunk, told
from tests.faults.simulation.script import WEIGHTS, Step, read, script_of, written
