"""A store, folders of transcripts, and what watches them."""

import pytest

from mnemolog.adapters.watch import Watcher
from tests.e2e.conftest import run
from tests.e2e.transcripts.conftest import memory, projects, rollouts

__all__ = ["memory", "projects", "read", "rollouts", "run"]


@pytest.fixture
def read(memory, projects, rollouts):
    """Reads on, as a watcher that was just started would, and gives its report."""

    def read_on(**options):
        with Watcher(memory, [projects, rollouts], **options) as watcher:
            return watcher.catch_up()

    return read_on
