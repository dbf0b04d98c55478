"""What tests of the domain share."""

import pytest

from tests.memory_log import MemoryLog


@pytest.fixture
def log():
    """A log in memory with one session, `s`."""
    log = MemoryLog()
    log.start("s")
    return log
