"""P25: what works through the whole log does so in memory that does not depend on the log's length.

Python's and numpy's allocations are counted (tracemalloc), which gives the same figure on every machine. SQLite counts
its own: each connection keeps pages up to `mnemolog.infra.sqlite.CACHE_BYTES`.
"""

import gc
import json
import random
import subprocess
import sys
import tracemalloc
from collections import deque
from pathlib import Path

import pytest

from mnemolog import MemoryStore, NewTurn, import_log, restore_backup

pytestmark = [pytest.mark.promise("P25"), pytest.mark.timeout(3_600)]

TURNS = {"ci": (3_000, 9_000), "nightly": (20_000, 200_000)}
"""The lengths that are compared."""
GROWTH_BYTES_MAX = 150_000
"""What the longer log may cost more: 24 bytes for each further turn in CI. A position in a list takes 40."""
CHILD_S = 3_000
SESSIONS = 5
RECEIPTS = 20
WARM_TURNS = 300
BATCH = 1_000

OPERATIONS = {
    "status": lambda store, folder: store.status(),
    "verify": lambda store, folder: store.verify(),
    "verify --contents": lambda store, folder: store.verify(contents=True),
    "doctor": lambda store, folder: store.admin.doctor(),
    "doctor --deep": lambda store, folder: store.admin.doctor(deep=True),
    "backup": lambda store, folder: store.backup(folder / "backup", keys=folder / "keys"),
    "restore": lambda store, folder: restore_backup(folder / "backup", folder / "restored", keys=folder / "keys"),
    "export": lambda store, folder: store.audit.export(folder / "log.jsonl"),
    "import": lambda store, folder: import_log(folder / "log.jsonl", folder / "imported", keys=folder / "keys"),
    "timeline": lambda store, folder: deque(store.audit.timeline(), maxlen=0),
    "diff": lambda store, folder: store.audit.diff(0, turns_max=10),
    "judgements": lambda store, folder: store.audit.judgements(),
    "audit of receipts": lambda store, folder: store.audit.receipts(),
    "find": lambda store, folder: store.find(f"{word(1)} {word(2)}", limit=10),
    "find nothing": lambda store, folder: store.find("no such words"),
    "sessions": lambda store, folder: store.sessions(),
    "recall": lambda store, folder: store.recall(f"{word(1)} {word(2)}"),
    "rebuild views": lambda store, folder: store.rebuild("views"),
    "catch up views": lambda store, folder: _views_from_nothing(store),
    "forget, previewed": lambda store, folder: store.forget(session="s1", dry_run=True),
    "forget a scope, previewed": lambda store, folder: store.forget(scope="acme", dry_run=True),
    "forget": lambda store, folder: store.forget(session="last"),
    "forgotten": lambda store, folder: store.audit.forgotten(),
}
"""In the order in which they are run."""


def _views_from_nothing(store):
    store.parts.projections.close()
    for path in store.path.glob("projections/views.db*"):
        path.unlink()
    store.admin.catch_up_views()


def word(number):
    """A word of letters: of one such as `word7` the part `word`, which every turn would have, is a word as well."""
    return "word" + chr(97 + number // 26) + chr(97 + number % 26)


def make(folder, turns):
    """Make a store of so many turns, that has everything else in the same number."""
    rng = random.Random(1)
    words = [word(n) for n in range(500)]
    with MemoryStore.open(folder, model=None, background=False, synchronous="NORMAL") as store:
        for number in range(SESSIONS):
            session = store.session(f"s{number}", scope=f"acme/{number % 3}")
            session.set("value", number)
            session.checkpoint("begun")
        for start in range(0, turns, BATCH):
            store.record_many(
                [
                    NewTurn(session=f"s{n % SESSIONS}", role="user", text=" ".join(rng.choices(words, k=8)))
                    for n in range(start, min(turns, start + BATCH))
                ]
            )
        for number in range(RECEIPTS):
            recall = store.recall(word(number), receipt=True)
            store.audit.judge(recall.receipt, good=[recall.hits[0].position])
            store.context(word(number), receipt=True)
        store.session("last", scope="other").record("user", "to be forgotten")


def measure(folder, turns):
    """Print the peak of each operation in bytes, by name, as JSON. Runs in a child."""
    _peaks(Path(folder, "warm"), WARM_TURNS, counted=False)  # What is imported and compiled once is not counted.
    print(json.dumps(_peaks(Path(folder, "measured"), turns)))


def _peaks(folder, turns, *, counted=True):
    peaks = {}
    make(folder / "store", turns)
    with MemoryStore.open(folder / "store", model=None, background=False) as store:
        for name, operation in OPERATIONS.items():
            if not counted:
                operation(store, folder)
                continue
            peaks[name] = _peak(operation, store, folder)
    return peaks


def _peak(operation, store, folder):
    """Garbage does not count: it is collected often, and only what the operation made is looked at for it."""
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(500, 1, 1)
    tracemalloc.start()
    try:
        operation(store, folder)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@pytest.fixture(scope="module")
def peaks(request, tmp_path_factory):
    """Peaks of the operations, by name, for a short log and for a long one."""
    found = []
    for turns in TURNS[request.config.option.scale]:
        folder = tmp_path_factory.mktemp(f"turns-{turns}")
        code = f"from {__name__} import measure; measure({str(folder)!r}, {turns})"
        child = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD_S, check=False
        )
        assert child.returncode == 0, child.stderr[-6_000:]
        found.append(json.loads(child.stdout))
    return found


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_memory_of_an_operation_does_not_grow_with_the_length_of_the_log(peaks, operation):
    """Several times as many turns in as many sessions: as much memory."""
    short, long = (found[operation] for found in peaks)
    assert long - short < GROWTH_BYTES_MAX, f"{operation}: {short:,} bytes for the short log, {long:,} for the long one"
