"""A log in PostgreSQL: its writers are killed, its server crashes, its network fails, several nodes use it."""

import random
import threading
import time
import uuid
from pathlib import Path

import psycopg
import pytest

from mnemolog import MemoryStore, errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.infra.log.postgres.address import LogAddress, note_address
from mnemolog.infra.log.postgres.engine import prepare
from mnemolog.infra.log.seen_head import noted_head
from tests.children.workers import append_through_crashes, append_until_killed, batch_of, messages
from tests.faults.proxy import SOCKET, of_postgres
from tests.faults.test_kill import KILLS_PER_STORE, Killed, wait_for, whole_batches
from tests.faults.test_model_change import fingerprint_of
from tests.faults.test_processes import PROCESSES, readers_miss_nothing
from tests.postgres import put_log_in_postgres, stoppable_server
from tests.support import WAIT_S, HalfEncoder, in_thread, read_all, texts_of

pytestmark = pytest.mark.timeout(7200)

WRITERS = 2


class KilledInPostgres(Killed):
    """Two writers at once of a log in PostgreSQL, which repeat nothing themselves."""

    def __init__(self, url, *arguments):
        super().__init__(*arguments)
        self._url, self.retried = url, 0

    def begin(self, number):
        super().begin(number)
        if number % KILLS_PER_STORE == 0:
            put_log_in_postgres(self.folder, self._url)

    def kill_both(self, *, near_opening):
        """Start two writers and kill both. Return the name of each run, and what it was told."""
        runs = []
        for _ in range(WRITERS):
            name, seed = f"run{self.runs}", self.rng.randrange(2**32)
            self.runs += 1
            started = self.processes.start(append_until_killed, str(self.folder), name, seed, True)
            runs.append((name, seed, *started))
        told = []
        for name, seed, process, pipe in runs:
            acknowledged = []
            assert pipe.poll(WAIT_S), "the child did not begin"
            assert pipe.recv() == "opening"
            wait_for(pipe, acknowledged, seconds=self.rng.uniform(0, 0.05 if near_opening else 0.4))
            process.kill()
            acknowledged += messages(pipe)
            process.join()
            assert process.exitcode == -9, f"it was killed, it did not fail by itself: {acknowledged[-1:]}"
            self.acknowledged += acknowledged
            self.told_in_all += len(acknowledged)
            if acknowledged:  # Noted before they were acknowledged.
                assert noted_head(self.folder).position >= acknowledged[-1][2][-1]
            told.append((name, acknowledged))
            self.retry(name, seed, len(acknowledged))
        return told

    def retry(self, run, seed, done):
        """Record the batch that the writer was killed in once more: it is there once, whoever recorded it."""
        sizes = random.Random(seed)
        size = [sizes.randint(1, 50) for _ in range(done + 1)][-1]
        with MemoryStore.open(self.folder, model=None, background=False) as store:
            store.session("s")
            before = store.head().position
            turns = store.record_many(batch_of("s", f"{run}.{done}", size, keyed=True))
            self.retried += store.head().position == before or turns[0].position <= before
        self.acknowledged.append((f"{run}.{done}", size, [turn.position for turn in turns]))


@pytest.mark.promise("P26", "kills")
def test_a_killed_writer_loses_no_acknowledged_turn_and_a_retry_records_nothing_twice(
    processes, postgres_url, tmp_path, rng, seed, tries, record_property
):
    """Two writers of one log at once, batches of 1 to 50 turns with keys; the batch that was cut off is sent again."""
    killed = KilledInPostgres(postgres_url, processes, tmp_path, rng, seed)
    for number in range(0, tries, WRITERS):
        killed.begin(number // WRITERS)
        runs = killed.kill_both(near_opening=number % 10 == 0)
        killed.check(number, *((name, [*told, (f"{name}.{len(told)}", 0, [])]) for name, told in runs))
    assert killed.told_in_all
    record_property("committed before the kill, found by the retry", killed.retried)


@pytest.mark.promise("P27", "crashes")
def test_a_crash_of_the_server_loses_no_acknowledged_turn_and_leaves_no_gap(
    processes, fork_server, tmp_path, rng, seed, tries
):
    """`pg_ctl stop -m immediate` under load, with fsync: the recovery is PostgreSQL's, the retry and the chain ours.

    The operating system survives, so this does not show that the disk keeps what it has synced.
    """
    folder = tmp_path / "node"
    with stoppable_server(fsync=True) as server:
        prepare(server.url)
        put_log_in_postgres(folder, server.url)
        MemoryStore.open(folder, model=None).close()
        over = fork_server.Event()
        started = [
            processes.start(append_through_crashes, str(folder), f"w{n}", rng.randrange(2**32), over) for n in range(4)
        ]
        for _, pipe in started:
            assert pipe.poll(WAIT_S)
            assert pipe.recv() == "started"
        hearing = [in_thread(lambda pipe=pipe: messages(pipe)) for _, pipe in started]
        for _ in range(tries):
            time.sleep(rng.uniform(0.1, 0.5))  # The moment is the test: no result depends on it.
            server.kill()
            server.start()
        over.set()
        told = [answers.result(timeout_s=600) for answers in hearing]
        assert all(isinstance(answers[-1], int) for answers in told), (seed, [answers[-1] for answers in told])
        with MemoryStore.open(folder, model=None) as store:
            events = read_all(store.parts.log)
            assert [event.position for event in events] == list(range(1, len(events) + 1)), f"a gap, seed {seed}"
            turns = {event.position: event.event.text for event in events if isinstance(event.event, TurnRecorded)}
            for answers in told:
                for label, size, positions in answers[:-1]:
                    expected = [f"{label}/{n}/{size}" for n in range(size)]
                    assert [turns.get(position) for position in positions] == expected, f"lost, seed {seed}"
            assert len(whole_batches(texts_of(events))) == sum(len(answers) - 1 for answers in told)
            assert store.verify().findings == (), f"seed {seed}"


@pytest.mark.promise("P28", "events of each process")
def test_four_followers_miss_nothing_while_eight_processes_append(
    processes, fork_server, folder, postgres_url, rng, seed, tries, record_property
):
    """Strictly rising positions, every event once, batches whole and not interleaved."""
    put_log_in_postgres(folder, postgres_url)
    record_property("tried", PROCESSES * tries)
    readers_miss_nothing(processes, fork_server, folder, rng, seed, tries, of_each_kind=2)


@pytest.mark.promise("P30", "cuts")
def test_a_network_that_fails_leaves_every_append_known_and_recorded_once(
    postgres_url, tmp_path, tmp_path_factory, rng, seed, tries, record_property
):
    """Requests are dropped, halved, delayed, repeated, come late, or lose their answer; a retry adds nothing."""
    found = psycopg.conninfo.conninfo_to_dict(postgres_url)
    server = Path(found["host"], f".s.PGSQL.{found.get('port', 5432)}")
    if not server.is_socket():
        pytest.skip("the proxy needs the socket of the server")
    sockets = tmp_path_factory.mktemp("s")
    proxy = of_postgres(sockets, server, rng)
    through = postgres_url.replace(str(found["host"]), str(sockets))
    assert through != postgres_url
    assert SOCKET.endswith(str(found.get("port", 5432)))
    folder, log = tmp_path / "node", uuid.uuid4().hex
    folder.mkdir()
    note_address(folder, LogAddress(through, log))
    positions, unknown, number = {}, 0, 0
    with MemoryStore.open(folder, model=None, background=False) as store:
        session = store.session("trip")
        while sum(proxy.faults.values()) < tries:
            if rng.random() < 0.7:
                proxy.arm()
            text, turn = f"turn {number}", None
            while turn is None:
                try:
                    turn = session.record("user", text, key=text)
                except errors.LogUnreachable as error:
                    unknown += "unknown" in str(error)
            positions[turn.position] = text
            number += 1
    proxy.close()
    direct = tmp_path / "direct"
    with MemoryStore.open(postgres_url, log=log, local=direct, model=None, background=False) as store:
        events = read_all(store.parts.log)
        held = {event.position: event.event.text for event in events if isinstance(event.event, TurnRecorded)}
        assert held == positions, f"seed {seed}, {proxy.faults}"
        assert len(set(held.values())) == number, f"recorded twice, seed {seed}"
        assert [event.position for event in events] == list(range(1, len(events) + 1))
        assert store.verify().findings == ()
    record_property("reported unknown", unknown)


@pytest.mark.promise("P31", "turns of each node")
def test_two_nodes_change_the_model_under_readers_on_both(postgres_url, tmp_path, tries):
    """Every answer is of the model of its position; a node without it answers by words, and says so."""
    both, log = [HalfEncoder(0), HalfEncoder(1)], uuid.uuid4().hex

    def node(name, model, others=()):
        return MemoryStore.open(postgres_url, log=log, local=tmp_path / name, model=model, models=others)

    with (
        node("one", both[0], [both[1]]) as one,
        node("two", both[1], [both[0]]) as two,
        node("three", both[0]) as three,
    ):
        for n in range(tries):
            for store in (one, two):
                store.session("s").record("user", f"note number{n} of {store.path.name}")
        for store in (one, two):
            for model in both:
                store.models.add(model)
        one.models.activate("half-0")
        over, answers, failed = threading.Event(), {"one": [], "two": []}, []

        def read(store):
            while not over.is_set():
                try:
                    found = store.recall("note number7 of one", k=1, mode="vector")
                    answers[store.path.name].append((found.head, found.model, found.hits[0].similarity))
                except Exception as error:
                    failed.append(error)

        readers = [in_thread(lambda store=store: read(store)) for store in (one, two)]
        activated = [(one.head().position, fingerprint_of(0))]
        try:
            for half, by in ((1, two), (0, one), (1, one), (0, two)):
                position = by.models.activate(f"half-{half}").position
                activated.append((position, fingerprint_of(half)))
                for store in (one, two):
                    seen = len(answers[store.path.name])
                    while not failed and not any(head >= position for head, *_ in answers[store.path.name][seen:]):
                        time.sleep(0.005)
        finally:
            over.set()
        for reader in readers:
            reader.result()
        assert not failed, failed
        for found in answers.values():
            for head, model, similarity in found:
                assert model == [name for position, name in activated if position <= head][-1]
                assert similarity == pytest.approx(1.0, abs=1e-5)
        two.models.activate("half-1")
        answer = three.recall("note number7 of one", k=1)
        assert answer.legs == ("text",)
        assert "half-1" in answer.unavailable_legs["vector"]
        assert answer.hits[0].text == "note number7 of one"
