"""What the tests of the Hermes adapter share."""

import pytest

from tests.adapters.hermes.managed import Hermes
from tests.support import StuckEncoder


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A Hermes home of this test's own."""
    path = tmp_path / "hermes"
    path.mkdir()
    monkeypatch.setenv("HERMES_HOME", str(path))
    return path


@pytest.fixture
def encoder():
    """A model that blocks until it is released."""
    encoder = StuckEncoder()
    yield encoder
    encoder.free.set()


@pytest.fixture
def hermes(home, encoder):
    """An agent in session `one`, whose model is stuck."""
    agent = Hermes(home, model=encoder)
    agent.begin("one")
    yield agent
    encoder.free.set()
    agent.leave()
