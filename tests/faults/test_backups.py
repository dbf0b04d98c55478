"""P16: backups made while others write restore to a prefix of the history, whole batches only, and recall works."""

import shutil
from collections import Counter

import pytest

from mnemolog import MemoryStore, Weights, restore_backup
from tests.children.workers import append_and_index
from tests.support import WAIT_S, HashEncoder

pytestmark = pytest.mark.promise("P16")

WRITERS = 2
EVENTS_MAX = 20_000
"""Of a store that backups are made of. Then another is begun, so that the last backups are no slower."""


def is_whole(turns):
    """Whether of each batch every turn is there: their texts are `label/which/of how many`."""
    batches, sizes = Counter(), {}
    for turn in turns:
        name, _, size = turn.text.split("/")
        batches[name] += 1
        sizes[name] = int(size)
    return all(batches[name] == size for name, size in sizes.items())


@pytest.fixture
def writers(processes, fork_server):
    """Start processes that append; the function returned stops them and returns what they said."""

    def start(folder, number):
        stop = fork_server.Event()
        started = [processes.start(append_and_index, str(folder), f"w{number}x{n}", stop) for n in range(WRITERS)]
        for _, pipe in started:
            assert pipe.poll(WAIT_S)
            assert pipe.recv() == "started"

        def end():
            stop.set()
            for process, pipe in started:
                assert pipe.poll(WAIT_S)
                assert pipe.recv() == "done"
                process.join(WAIT_S)

        return end

    return start


@pytest.mark.timeout(7_200)
@pytest.mark.promise("P16", "backups")
def test_backups_under_write_load_restore_to_a_prefix_that_verifies(tmp_path, folder, writers, rng, tries):
    """Two processes append and index meanwhile; each backup is restored, verified link by link, and asked."""
    with MemoryStore.open(folder, model=None) as store:
        store.start_session("first").record("user", "first/0/1")
    end, last = writers(folder, 0), 0
    for number in range(tries):
        with MemoryStore.open(folder, model=None) as store:
            made = store.backup(tmp_path / "backup", keys=tmp_path / "keys")
            assert made.head >= last
            restored = restore_backup(tmp_path / "backup", tmp_path / "restored", keys=tmp_path / "keys")
            assert (restored.head, restored.digest) == (made.head, made.digest)
            assert store.parts.log.digest_at(made.head).hex() == made.digest  # A prefix of what the original has.
        last = made.head
        _ask(tmp_path / "restored", made)
        for name in ("backup", "restored", "keys"):
            shutil.rmtree(tmp_path / name)
        if last > EVENTS_MAX:
            end()
            folder, last = tmp_path / f"memory.{number}", 0
            end = writers(folder, number + 1)
    end()


def _ask(folder, made):
    with MemoryStore.open(folder, model=HashEncoder(dimension=32), background=False) as store:
        assert store.verify().sound
        status = store.status()
        assert status.warnings == ()
        assert status.views.state in ("current", "behind", "missing")
        assert all(not item.unused or all(part.covered for part in item.unused) for item in status.vectors)
        assert sum(item.turns for item in store.sessions()) == made.head - len(store.sessions())
        for summary in store.sessions():
            turns = store.turns(summary.session, limit=100_000)
            assert is_whole(turns)
            if turns:
                each = {"asked": "keep", "weights": Weights(distinct=False)}
                found = store.recall(turns[-1].text, session=summary.session, mode="text", k=3, **each)
                assert turns[-1].position in [hit.position for hit in found.hits]
        assert store.admin.doctor().log_damaged is False
        assert store.start_session("after").record("user", "it goes on").position == made.head + 2
