"""The background projector: it embeds what anybody records, says what is wrong, and ends when it is told to."""

import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.adapters.support.framework_sessions import reconcile
from mnemolog.domain.errors import EncodingFailed, StoreForked
from mnemolog.projections import projector
from mnemolog.projections.projector import PROJECTORS
from tests.children.forking import in_child
from tests.support import WAIT_S, HashEncoder, Picky, StuckEncoder, projections_of, start_child, wait_until

pytestmark = pytest.mark.local

ROOT = Path(__file__).parents[2]
CHILD = ROOT / "tests" / "children" / "projecting.py"
PROMPT_S = WAIT_S / 2
"""No measure of speed, but less than waiting for what never comes. On a quiet machine it is a few hundredths of a
second, on a busy one six seconds were seen."""


class Failing(HashEncoder):
    """Fails while `wrong` says how."""

    def __init__(self, wrong):
        super().__init__()
        self.wrong, self.asked = wrong, 0

    def encode(self, texts):
        self.asked += 1
        if self.wrong is not None:
            raise self.wrong
        return super().encode(texts)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    """Nothing to wait for before the first look."""
    monkeypatch.setattr(projector, "START_DELAY_S", 0.0)


def state(store):
    return store.status().projector


def wait_for(store, word, position=None):
    """Return when the projector is in that state, at that position if one is given."""

    def there():
        now = state(store)
        return now.state == word and (position is None or now.position == position)

    wait_until(there, what=f"{word} at {position}")
    return state(store)


def record(store, *texts):
    """Record turns of the session `s`; return their positions."""
    if not store.sessions():
        store.start_session("s")
    return [store.record("s", "user", text).position for text in texts]


def projector_threads():
    return [thread for thread in threading.enumerate() if thread.name == "mnemolog-projector"]


def start_projecting(*arguments):
    """Start tests/children/projecting.py, which needs this folder on its path."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return start_child(CHILD, *arguments, env=os.environ | {"PYTHONPATH": path})


def test_what_is_recorded_is_embedded_without_a_recall(folder, encoder):
    """Each text once, whoever asks afterwards."""
    with MemoryStore.open(folder, model=encoder) as store:
        last = record(store, *(f"tea {n}" for n in range(300)))[-1]
        wait_for(store, "idle", last)
        embedded = [text for batch in encoder.calls for text in batch]
        assert len(embedded) == len(set(embedded)) == 300
        answer = store.recall("tea 7", mode="vector")
        assert (answer.vectors_cover, answer.vectors_lag) == (last, None)
        assert encoder.texts_encoded == 301  # And the query.


@pytest.mark.parametrize("already", [True, False], ids=["with turns", "empty"])
def test_what_another_process_records_is_embedded_too(folder, tmp_path, encoder, already):
    """Nobody tells of it, so it is looked for."""
    with MemoryStore.open(folder, model=encoder) as store:
        wait_for(store, "idle", record(store, "mine")[-1])
        child = start_child(ROOT / "tests" / "children" / "appending.py", folder, "s" if already else "other", 3)
        with child:
            positions = [int(line) for line in child.stdout]
        wait_for(store, "idle", positions[-1])
        assert encoder.texts_encoded == 4


@pytest.mark.parametrize(
    ("options", "expected"), [({"model": None}, "off"), ({"background": False}, "off"), ({}, "idle")], ids=str
)
def test_no_thread_is_started_that_has_nothing_to_do(folder, encoder, options, expected):
    """Without a model, without wanting one, and before the first append."""
    with MemoryStore.open(folder, **{"model": encoder, **options}) as store:
        assert state(store).state == expected
        assert projector_threads() == []


def test_a_log_without_turns_loads_no_model(folder, encoder):
    """Values and notes have no vectors."""
    with MemoryStore.open(folder, model=encoder) as store:
        session = store.start_session("s")
        for n in range(20):
            session.set("n", n)
        wait_for(store, "idle", store.head().position)
        assert projections_of(store).models.known_fingerprint() is None
        wait_for(store, "idle", record(store, "tea")[-1])
        assert encoder.texts_encoded == 1


def test_closing_does_not_wait_for_a_model_that_is_stuck(folder):
    """It is abandoned; what it gives later is written nowhere, and the next one embeds it."""
    encoder = StuckEncoder("stuck")
    store = MemoryStore.open(folder, model=encoder)
    last = record(store, "stuck")[-1]
    assert encoder.entered.wait(WAIT_S)
    (thread,) = projector_threads()
    began = time.monotonic()
    store.close()
    assert time.monotonic() - began < PROMPT_S
    assert state_files(folder) == []
    encoder.free.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert state_files(folder) == []
    fresh = HashEncoder()
    with MemoryStore.open(folder, model=fresh) as store:
        wait_for(store, "idle", last)
    assert fresh.texts_encoded == 1


def state_files(folder):
    return list((folder / "projections" / PROJECTORS).glob("*.json"))


@pytest.mark.parametrize("failures", [1, 3])
def test_an_error_is_reported_and_retried_until_it_works(folder, monkeypatch, failures):
    """In the state, in recalls, and to another process; forgotten when it has worked."""
    monkeypatch.setattr(projector, "RETRY_S_MIN", WAIT_S)
    encoder = Failing(RuntimeError("out of luck"))
    with MemoryStore.open(folder, model=encoder) as store, MemoryStore.open(folder, model=None) as other:
        last = record(store, "tea")[-1]
        for failed in range(1, failures + 1):
            wait_until(lambda failed=failed: state(store).failures == failed, what="a failure")
            now = wait_for(store, "backing off")
            assert "out of luck" in now.error
            assert now.failed_at is not None
            assert 0 < now.retry_in_s <= WAIT_S
            seen = state(other)
            assert (seen.state, seen.error, seen.pid) == ("backing off", now.error, os.getpid())
            if failed < failures:
                projections_of(store).poke()
        answer = store.recall("tea")
        assert answer.legs == ("text",)
        assert "out of luck" in answer.unavailable_legs["vector"]
        encoder.wrong = None
        projections_of(store).poke()
        now = wait_for(store, "idle", last)
        assert (now.error, now.failures, now.failed_at) == (None, 0, None)
        assert store.recall("tea", mode="vector").vectors_lag is None


def test_it_retries_without_being_called_after_a_pause_that_doubles_up_to_a_minute(folder, monkeypatch):
    """A model that is gone is not asked for all the time."""
    assert [projector.retry_delay_s(n) for n in (1, 2, 3, 6, 7, 8, 10_000)] == [1, 2, 4, 32, 60, 60, 60]
    monkeypatch.setattr(projector, "RETRY_S_MIN", 0.001)
    encoder = Failing(RuntimeError("out of luck"))
    with MemoryStore.open(folder, model=encoder) as store:
        last = record(store, "tea")[-1]
        wait_until(lambda: state(store).failures > 3, what="four failures")
        encoder.wrong = None
        wait_for(store, "idle", last)


def test_a_missing_model_is_reported(folder):
    """The turns are recorded all the same."""
    with MemoryStore.open(folder, model="no-such-model") as store:
        record(store, "tea")
        now = wait_for(store, "backing off")
        assert "no-such-model" in now.error
        assert now.position in (None, 1)  # The start of the session may have been all there was.


@pytest.mark.parametrize("where", [0, 2, 4], ids=["first", "middle", "last"])
def test_a_text_that_the_model_refuses_stops_it_there_until_a_rebuild(folder, where):
    """What comes before is embedded; the state and recalls name the position."""
    encoder = Picky()
    texts = [f"tea {n}" for n in range(5)]
    texts[where] = "poison"
    with MemoryStore.open(folder, model=None) as store:
        positions = record(store, *texts)
    with MemoryStore.open(folder, model=encoder) as store:
        assert wait_for(store, "backing off").error.startswith(f"position {positions[where]}: ")
        assert store.parts.projections.vectors().projection().covers == positions[where] - 1
        answer = store.recall("tea", mode="vector")
        assert [hit.text for hit in answer.hits if hit.text in texts[where:]] == []
        assert f"position {positions[where]}: " in answer.vectors_lag
        with pytest.raises(EncodingFailed):
            store.rebuild("vectors")
        encoder.refuses = False
        store.rebuild("vectors")
        wait_for(store, "idle", positions[-1])


def test_a_recall_says_why_the_vectors_stay_behind_even_if_its_own_step_went_well(folder, monkeypatch):
    """The projector's trouble is told where the distance is too great for a recall."""

    monkeypatch.setattr(projector, "RECALL_TEXTS", 2)
    encoder = Picky()
    with MemoryStore.open(folder, model=None) as store:
        record(store, "poison", *(f"tea {n}" for n in range(5)))
    with MemoryStore.open(folder, model=encoder) as store:
        wait_for(store, "backing off")
        encoder.refuses = False
        answer = store.recall("tea", mode="vector")
        assert answer.vectors_cover < answer.head
        assert answer.vectors_lag.startswith("the background projector is backing off: position 2: ")


class Fatal(BaseException):
    """What no handler of errors catches."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_is_reported_and_not_waited_for(folder):
    """By the state, to another process, and in a recall; `poke` starts a new one."""
    encoder = Failing(Fatal("gone"))
    with MemoryStore.open(folder, model=encoder) as store, MemoryStore.open(folder, model=None) as other:
        last = record(store, "tea")[-1]
        assert wait_for(store, "dead").error == "Fatal: gone"
        wait_until(lambda: projector_threads() == [], what="the end of the thread")
        assert state(other).state == "dead"
        encoder.wrong = None
        assert store.recall("tea", min_position=last, mode="vector").vectors_cover == last
        projections_of(store).poke()
        wait_for(store, "idle", last)


def test_the_tail_is_written_when_it_is_large(folder):
    """What is held in memory is bounded, and nothing waits for the end."""
    with MemoryStore.open(folder, model=None, synchronous="NORMAL") as store:
        store.start_session("s")
        for n in range(5):
            reconcile(
                store.session("s"), [{"role": "user", "text": f"tea {n} {m}", "key": f"{n}.{m}"} for m in range(1_000)]
            )
        head = store.head().position
    with MemoryStore.open(folder, model=HashEncoder(dimension=16)) as store:
        wait_for(store, "idle", head)
        (generation,) = store.status().vectors
        assert head - generation.covers <= 2_048 + 128
        assert store.parts.projections.vectors().projection().covers == head


def kept_texts(folder):
    """How many texts the embedding cache holds."""
    path = folder / "projections" / "embeddings.db"
    if not path.exists():
        return 0
    connection = dbapi2.connect(str(path))
    try:
        return connection.execute("SELECT count(*) FROM embeddings").fetchone()[0]
    except dbapi2.OperationalError:  # Its table is being made.
        return 0
    finally:
        connection.close()


def test_two_processes_embed_each_text_once_in_all(folder, tmp_path):
    """Whoever is second finds the vectors in the cache."""
    notes = tmp_path / "notes"
    children = [start_projecting(folder, notes) for _ in range(2)]
    told = [f"tea {n} of child {m}" for m in range(2) for n in range(40)]
    for child in children:
        assert child.stdout.readline() in ("open\n", "encoding\n")
    for n, text in enumerate(told):
        children[n % 2].stdin.write(text + "\n")
        children[n % 2].stdin.flush()
    with MemoryStore.open(folder, model=HashEncoder(), background=False) as store:
        # In the cache, not only given by the model: who is told to stop in between drops what it was given.
        wait_until(lambda: kept_texts(folder) >= 80, what="all texts")
        for child in children:
            child.communicate(timeout=WAIT_S)
            assert child.returncode == 0
        assert sorted(notes.read_text().splitlines()) == sorted(told)
        assert state(store).state == "off"


@contextmanager
def process_stuck_in_its_model(folder, tmp_path):
    """Another process whose projector waits in the model for ever."""
    with start_projecting(folder, tmp_path / "notes", "STUCK") as child:
        child.stdin.write("tea\n")
        child.stdin.flush()
        while child.stdout.readline() != "encoding\n":
            assert child.poll() is None
        yield child


def test_a_standby_takes_over_when_the_holder_is_killed(folder, tmp_path, monkeypatch, encoder):
    """It says for whom it waits; the dead one is reported as such until the next one starts, which sweeps up."""
    monkeypatch.setattr(projector, "STANDBY_S", 0.01)
    with process_stuck_in_its_model(folder, tmp_path) as child, MemoryStore.open(folder, model=None) as other:
        with MemoryStore.open(folder, model=encoder) as store:
            now = wait_for(store, "standing by")
            assert now.waits_for.startswith(f"process {child.pid} on ")
            assert (state(other).state, state(other).pid) == ("working", child.pid)
            child.kill()
            child.wait(WAIT_S)
            wait_for(store, "idle", store.head().position)
            assert encoder.texts_encoded == 1
            assert state(other).pid == os.getpid()
        assert state(other).state == "off"
    killed = folder.with_name("killed")
    with process_stuck_in_its_model(killed, tmp_path) as child:
        child.kill()
        child.wait(WAIT_S)
    with MemoryStore.open(killed, model=None) as other:
        now = state(other)
        assert now.state == "dead"
        assert now.error.startswith(f"process {child.pid} on ")
        with MemoryStore.open(killed, model=HashEncoder()) as store:
            wait_for(store, "idle", store.head().position)
        assert state(other).state == "off"


def test_a_child_of_a_fork_has_no_projector(folder, encoder):
    """It raises `StoreForked`, does not hang, and leaves its parent's projector alone."""
    with MemoryStore.open(folder, model=encoder) as store:
        wait_for(store, "idle", record(store, "tea")[-1])

        def child():
            assert projector_threads() == []
            assert projections_of(store).projector.status().state == "off"
            projections_of(store).poke()
            projections_of(store).stop()
            for call in (store.status, lambda: store.recall("tea", min_position=1)):
                with pytest.raises(StoreForked):
                    call()

        in_child(child)
        assert len(state_files(folder)) == 1
        wait_for(store, "idle", record(store, "milk")[-1])


WORKING = """
import sys, threading, time
from mnemolog import MemoryStore
from mnemolog.projections import projector
from tests.support import HashEncoder

projector.START_DELAY_S = 0
began = threading.Event()

class Slow(HashEncoder):
    def encode(self, texts):
        began.set()
        {how}
        return super().encode(texts)

store = MemoryStore.open(sys.argv[1], model=Slow())
session = store.start_session("s")
for n in range(500):
    session.record("user", f"tea {{n}}")
began.wait()
print("done")
"""


@pytest.mark.parametrize("how", ["time.sleep(0.01)", "threading.Event().wait()"], ids=["working", "stuck"])
def test_a_process_ends_quietly_without_closing_the_store(folder, how):
    """Exit status 0, and nothing on stderr."""
    ran = run_script(WORKING.format(how=how), folder)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")


def run_script(script, *arguments):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)


REAL = """
import sys, time
from mnemolog import MemoryStore
from mnemolog.projections import projector

projector.START_DELAY_S = 0
store = MemoryStore.open(sys.argv[1], model="all-MiniLM-L6-v2", synchronous="NORMAL")
texts = (f"{{n}} the night train to Lisbon leaves at ten " * 6 for n in range({texts}))
store.start_session("s").record_many([{{"role": "user", "content": text}} for text in texts])
{wait}
if "close" in sys.argv:
    began = time.monotonic()
    store.close()
    print(f"{{time.monotonic() - began:.3f}}")
"""
ENCODING = """
while store.parts.projections.vectors().encoder._model_loaded is None:
    time.sleep(0.01)
time.sleep(0.5)
"""


@pytest.mark.model
def test_closing_stops_the_real_model_in_the_middle_of_a_step(folder, record_property):
    """Between two batches; the process ends as if nothing was."""
    ran = run_script(REAL.format(wait=ENCODING, texts=1_000), folder, "close")
    assert (ran.returncode, ran.stderr) == (0, "")
    record_property("close_s", ran.stdout.strip())
    assert float(ran.stdout) < PROMPT_S
    assert kept_texts(folder) < 1_000, "it waited for all of them"


@pytest.mark.model
@pytest.mark.parametrize("wait", ["time.sleep(0.5)", ENCODING], ids=["loading", "encoding"])
def test_a_process_ends_quietly_while_the_real_model_is_at_work(folder, wait):
    """Inside torch, or on the way into it."""
    ran = run_script(REAL.format(wait=wait, texts=200), folder)
    assert (ran.returncode, ran.stderr) == (0, "")
