"""A store, folders of transcripts, and what records them."""

import pytest

from mnemolog import MemoryStore
from mnemolog.adapters.importers.transcripts import Transcripts
from tests.support import nothing_written


def files_in(*folders):
    """All transcripts below some folders."""
    return [path for folder in folders for path in folder.rglob("*.jsonl")]


@pytest.fixture
def memory(folder):
    """A store without a model: nothing here looks for meaning."""
    with MemoryStore.open(folder, model=None, background=False) as store:
        yield store


@pytest.fixture
def projects(tmp_path):
    """Where Claude Code keeps its transcripts."""
    path = tmp_path / "projects"
    path.mkdir()
    return path


@pytest.fixture
def rollouts(tmp_path):
    """Where Codex keeps its transcripts."""
    path = tmp_path / "sessions"
    path.mkdir()
    return path


@pytest.fixture
def read(memory, projects, rollouts):
    """Reads on, as one that was just begun would, and gives its report. At the end of a test all is read anew."""

    def read_on(**options):
        with Transcripts(memory, **options) as transcripts:
            return transcripts.catch_up(files_in(projects, rollouts))

    yield read_on
    read_all_anew(memory, read_on)


@pytest.fixture
def read_anew(memory, read):
    """Reads everything from the beginning, before the test goes on, and gives the report."""
    return lambda: read_all_anew(memory, read)


def read_all_anew(memory, read):
    """Read everything from the beginning, as if it were not known how far it had got: that adds nothing."""
    for path in (memory.path / "projections").glob("watch.db*"):
        path.unlink()
    with nothing_written(memory):
        return read()


@pytest.fixture
def said(memory):
    """What a session sees: its texts."""

    def texts(session, **options):
        return [turn.text for turn in memory.session(session).turns(**options)]

    return texts
