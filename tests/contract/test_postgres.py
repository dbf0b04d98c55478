"""What a log in PostgreSQL promises beyond the contract: its appends, its locks, its connections, its protection.

A pooler in front of PostgreSQL: one that gives each client a session of its own, and one that shares sessions. A
PostgreSQL server that is restarted, or stays away, under an open log.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from mnemolog import MemoryStore
from mnemolog.domain import errors
from mnemolog.infra import postgres
from mnemolog.infra.log import appends
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres import engine, schema
from mnemolog.infra.log.postgres.address import ADDRESS_FILE, LogAddress, note_address, read_address
from mnemolog.infra.log.postgres.engine import LOCKED_APPENDS
from mnemolog.projections.history.verify import verify
from tests.contract.test_event_log import keyed
from tests.interrupts import at_each_line
from tests.postgres import connect, put_log_in_postgres
from tests.support import (
    FakeClock,
    append,
    append_as_one_group,
    in_thread,
    read_all,
    start,
    start_child,
    texts_of,
    turn,
    wait_until,
)

CHILDREN = Path(__file__).parent.parent / "children"


@pytest.fixture
def folder(folder, postgres_url):
    """The local folder of a log in PostgreSQL."""
    put_log_in_postgres(folder, postgres_url)
    return folder


@pytest.fixture
def log(log):
    """A log of one event, whose writer knows the head."""
    log.appends.transact(start("s"))
    return log


@pytest.fixture
def other(folder, log):
    """The same log, opened by another writer."""
    with closing(open_log(folder, clock=FakeClock(), create=False)) as other:
        yield other


@pytest.fixture
def database(postgres_url):
    """A connection past the library, of a superuser."""
    with connect(postgres_url) as database:
        yield database


def recorded(text, *, key=None):
    """A unit of work that records a turn in session s, with its text as key."""
    return lambda tx: keyed("s", (key or text, text))(tx)[0]


def messages_to_server(log, work, tmp_path):
    """The kinds of messages that a unit of work sends to the server."""
    traced = tmp_path / "trace"
    pgconn = log.appends.connection.driver.pgconn
    with traced.open("wb") as file:
        pgconn.trace(file.fileno())
        log.appends.transact(work)
        pgconn.untrace()
    lines = [line.split("\t") for line in traced.read_text().splitlines()]
    return [line[3] for line in lines if line[1] == "F"]


ONE_STATEMENT = ["Bind", "Describe", "Execute", "Sync"]


def test_an_append_is_exactly_one_statement_and_one_round_trip(log, tmp_path):
    """No BEGIN, no lock, no look for a key before it, however many events it has."""
    for texts in (["one"], ["one", "two", "three"]):
        log.appends.transact(append("s", *texts))
        assert sorted(messages_to_server(log, append("s", *texts), tmp_path)) == ONE_STATEMENT
    log.appends.transact(recorded("first"))
    assert sorted(messages_to_server(log, recorded("new"), tmp_path)) == ONE_STATEMENT
    again = log.appends.transact(recorded("new"))  # The insert finds that the key is used; it is looked up then.
    assert (again.event.position, again.deduplicated) == (11, True)
    assert log.appends.connection.is_contended
    assert log.head().position == 11
    with pytest.raises(errors.DuplicateKey):
        log.appends.transact(recorded("another text", key="new"))
    assert log.appends.transact(recorded("two")).event.position == 12
    assert verify(log).sound


def test_a_key_that_is_only_looked_up_is_looked_up(log):
    """Who appends something else where a key is used gets the true answer."""
    log.appends.transact(recorded("one"))

    def work(tx):
        used = tx.position_of("session/s", "one")
        tx.append("session/s", turn(f"seen at {used}"))
        return used, tx.find("session/s", "nothing")

    log.appends.transact(append("s", "any"))
    assert log.appends.transact(work) == (2, None)
    assert texts_of(read_all(log))[-1] == "seen at 2"


def test_a_group_is_exactly_one_statement(log):
    """Threads that wait for one another's commits share it."""
    log.appends.transact(append("s", "first"))
    swaps, connection = [], log.appends.connection
    swap = connection._swap
    connection._swap = lambda rows, *head: swaps.append(len(rows)) or swap(rows, *head)
    outcomes = append_as_one_group(log, [append("s", str(n)) for n in range(20)])
    assert [outcome.result() for outcome in outcomes] == [[3 + n] for n in range(20)]
    assert swaps == [20]


def test_a_missed_comparison_writes_nothing(log, other, database):
    """The head has moved: no row, no head, no key of the attempt is in the database."""
    log.appends.transact(append("s", "mine"))
    other.appends.transact(append("s", "theirs"))
    staged = (3, "session/s", 3, "t", bytearray(b"\x80"), 0, bytearray(32), "key")
    connection = log.appends.connection
    assert not connection.append([staged], head=2, head_digest=log.digest_at(2))
    assert not connection.append([staged, staged], head=2, head_digest=log.digest_at(2))
    assert other.head().position == other.last_given() == 3
    assert other.position_of("session/s", "key") is None
    assert verify(other).sound


@pytest.mark.parametrize("way", ["compared", "locked"])
def test_a_stopped_writer_does_not_stop_the_others(folder, log, way):
    """One that compares holds no lock while it stages; one that locked loses its session to the server's timeout."""
    child = start_child(CHILDREN / "stopping.py", folder, way)
    try:
        assert child.stdout.readline() == "stopping\n"
        os.waitpid(child.pid, os.WUNTRACED)
        log.appends.transact(append("s", "meanwhile"))
    finally:
        os.kill(child.pid, signal.SIGCONT)
    said = child.communicate()[0].split()
    after = [event.position for event in read_all(log) if event.stream.endswith("child")][way == "compared" :]
    assert said == [str(*after)] if after else ["LogUnreachable"]
    assert verify(log).sound


def terminate(database, log):
    """End the session of the writer."""
    pid = log.appends.connection.driver.info.backend_pid
    database.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def test_an_append_whose_connection_is_lost_before_the_commit_is_written_once(log, database, postgres_url):
    """The writer looks for it under the log's lock, finds nothing, and appends again."""
    log.appends.transact(append("s", "before"))
    with connect(postgres_url) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT 1 FROM mnemolog.head WHERE log = %s FOR UPDATE", (log.engine.log,))
        outcome = in_thread(lambda: log.appends.transact(append("s", "in doubt")))
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"
        while not database.execute(waiting, (log.appends.connection.driver.info.backend_pid,)).fetchone()[0]:
            pass
        terminate(database, log)
        holder.execute("ROLLBACK")
    assert outcome.result() == [3]
    assert texts_of(read_all(log)) == ["before", "in doubt"]
    assert verify(log).sound


@pytest.mark.parametrize("way", ["compared", "locked"])
def test_an_append_whose_acknowledgement_is_lost_is_not_written_again(log, other, way):
    """It is committed, the connection is cut before the answer: the writer finds it and acknowledges it."""
    log.appends.transact(append("s", "before"))
    if way == "locked":
        other.appends.transact(append("s", "theirs"))
        log.appends.transact(append("s", "mine"))
    connection, before = log.appends.connection, log.head().position
    name = {"compared": "_swap", "locked": "commit"}[way]
    answer = getattr(connection, name) if way == "compared" else connection.driver.execute
    driver = connection.driver

    def cut(*arguments):
        result = answer(*arguments)
        if way == "compared" or arguments[0] == "COMMIT":
            driver.close()
            raise psycopg.OperationalError("the connection was cut")
        return result

    if way == "compared":
        connection._swap = cut
    else:
        connection.driver.execute = cut
    assert log.appends.transact(append("s", "in doubt")) == [before + 1]
    assert texts_of(read_all(log))[-1] == "in doubt"
    assert log.head().position == before + 1
    assert verify(log).sound


def test_an_outcome_that_cannot_be_looked_up_is_reported_as_unknown(log, monkeypatch):
    """The connection is cut and the server does not come back: the error says that nobody knows."""
    log.appends.transact(append("s", "before"))
    connection = log.appends.connection

    def cut(*_):
        connection.driver.close()
        raise psycopg.OperationalError("the connection was cut")

    def down():
        raise psycopg.OperationalError("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(postgres, "RECONNECT_S", 0)
        patch.setattr(connection, "_swap", cut)
        patch.setattr(connection._settings, "connect", down)
        with pytest.raises(errors.LogUnreachable, match="whether the events were written is unknown"):
            log.appends.transact(append("s", "in doubt"))
        with pytest.raises(errors.LogUnreachable, match="connection refused"):
            log.appends.transact(append("s", "still down"))
    assert log.appends.transact(append("s", "up again")) == [3]


CODE = {engine.__file__, appends.__file__}


@pytest.mark.parametrize("way", ["compared", "locked"])
def test_an_interrupt_at_any_line_of_an_append_leaves_it_whole_or_absent(log, way):
    """Wherever Ctrl-C hits: a retry with the same key adds the event if it is missing, and nothing if it is there."""
    committed = []
    for at, came_through in enumerate(at_each_line(CODE, more_than=10)):
        log.appends.transact(append("s", f"before {at}"))
        log.appends.connection._locked_appends = LOCKED_APPENDS if way == "locked" else 0
        before, work = log.head().position, append("s", "mine", keys=[f"k{at}"])
        if not came_through(lambda work=work: log.appends.transact(work)):
            committed.append(log.head().position - before)
            if log.position_of("session/s", f"k{at}") is None:
                log.appends.transact(work)
        assert log.head().position == before + 1, f"interrupted before line {at}"
    assert {*committed} == {0, 1}
    assert verify(log).sound


REWRITING = {
    "update a state": "UPDATE mnemolog.events SET state = '\\x80' WHERE log = %s",
    "update nothing": "UPDATE mnemolog.events SET version = 1 WHERE false",
    "delete": "DELETE FROM mnemolog.events WHERE log = %s",
    "truncate": "TRUNCATE mnemolog.events",
    "upsert": (
        "INSERT INTO mnemolog.events SELECT * FROM mnemolog.events WHERE log = %s "
        "ON CONFLICT (log, position) DO UPDATE SET state = '\\x80'"
    ),
    "merge": (
        "MERGE INTO mnemolog.events e USING mnemolog.head h ON h.log = e.log "
        "WHEN MATCHED THEN UPDATE SET state = '\\x80'"
    ),
    "delete the head": "DELETE FROM mnemolog.head WHERE log = %s",
    "truncate the heads": "TRUNCATE mnemolog.head",
    "update the identity": "UPDATE mnemolog.head SET log_id = 'other' WHERE log = %s",
}


def test_history_is_changed_neither_by_a_superuser_nor_by_the_role_of_a_writer(log, database):
    """Triggers refuse it, unless they are turned off; the rights of a writer end before that."""
    before = log.head(), read_all(log)
    for name, statement in REWRITING.items():
        parameters = (log.engine.log,) if "%s" in statement else ()
        with pytest.raises(psycopg.Error, match="append-only"):
            database.execute(statement, parameters)
        if name != "upsert":
            database.execute(f"SET ROLE {schema.WRITER}")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                database.execute(statement, parameters)
            database.execute("RESET ROLE")
    assert (log.head(), read_all(log)) == before


@pytest.fixture
def as_writer(postgres_url, tmp_path):
    """A local folder whose connections have the role of a writer."""
    folder = tmp_path / "as writer"
    separator = "&" if "?" in postgres_url else "?"
    put_log_in_postgres(folder, f"{postgres_url}{separator}options=-c%20role%3D{schema.WRITER}")
    return folder


def test_the_role_of_a_writer_is_enough_for_a_log(as_writer):
    """It creates a log, appends to it and reads it."""
    with closing(open_log(as_writer, clock=FakeClock(), create=True, encrypt=False)) as log:
        log.appends.transact(start("s"))
        assert log.appends.transact(append("s", "one", "two")) == [2, 3]
        assert verify(log).sound


def test_a_log_that_lost_a_trigger_takes_no_more_events(folder, log, database):
    """What anybody could change is not written to, and `verify` says so."""
    log.close()
    database.execute("ALTER TABLE mnemolog.events DISABLE TRIGGER events_refuse_delete")
    try:
        with closing(open_log(folder, clock=FakeClock(), create=False)) as again:
            with pytest.raises(errors.LogWriteFailed, match="events_refuse_delete"):
                again.appends.transact(append("s", "no"))
            assert [finding.kind for finding in verify(again).findings] == ["unprotected"]
    finally:
        database.execute("ALTER TABLE mnemolog.events ENABLE TRIGGER events_refuse_delete")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM mnemolog.events WHERE log = %s AND position = 3",
        "DELETE FROM mnemolog.events WHERE log = %s AND position = 2",
        "UPDATE mnemolog.events SET state = '\\x80' WHERE log = %s AND position = 2",
    ],
    ids=["the last event deleted", "an event deleted", "an event changed"],
)
def test_what_a_superuser_changes_past_the_triggers_is_found(log, database, statement):
    """`session_replication_role` turns triggers off; the chain and the head row remain."""
    log.appends.transact(append("s", "one", "two"))
    database.execute("SET session_replication_role = replica")
    database.execute(statement, (log.engine.log,))
    assert not verify(log).sound


def test_every_connection_has_our_settings_whatever_the_server_sets(folder, postgres_url):
    """Isolation, waiting times and durability are not left to the configuration of a server."""
    separator = "&" if "?" in postgres_url else "?"
    given = "options=-c%20default_transaction_isolation%3Dserializable%20-c%20synchronous_commit%3Doff"
    (folder / ADDRESS_FILE).unlink()
    note_address(folder, LogAddress(f"{postgres_url}{separator}{given}", "settings"))
    with closing(open_log(folder, clock=FakeClock(), create=True, busy_timeout_s=7)) as log:
        log.appends.transact(start("s"))
        names = ("transaction_isolation", "synchronous_commit", "lock_timeout", "idle_in_transaction_session_timeout")
        with log.engine.reading() as reads:
            for driver in (reads.driver, log.appends.connection.driver):
                found = [driver.execute(f"SHOW {name}").fetchone()[0] for name in names]
                assert found == ["read committed", "on", "7s", "10s"]


def test_a_log_id_that_is_not_ours_stops_appends(folder, log, database):
    """A database that was made again under the same URL is not appended to."""
    log.appends.transact(append("s", "before"))
    database.execute("SET session_replication_role = replica")
    database.execute(
        "UPDATE mnemolog.head SET log_id = 'another', digest = decode(repeat('00', 32), 'hex') WHERE log = %s",
        (log.engine.log,),
    )
    with pytest.raises(errors.StoreReplaced, match="another"):
        log.appends.transact(append("s", "lost"))
    held = "SELECT count(*) FROM mnemolog.events WHERE log = %s"
    assert database.execute(held, (log.engine.log,)).fetchone() == (2,)


def test_a_server_that_does_not_answer_is_log_unreachable(tmp_path):
    """The error names the reason that the driver gives, and what to do."""
    address = LogAddress(f"postgresql://nobody@/none?host={tmp_path}", "acme")
    with pytest.raises(errors.LogUnreachable, match="No such file") as caught:
        open_log(tmp_path / "memory", clock=FakeClock(), create=True, address=address)
    assert not (tmp_path / "memory").exists(), "a mistyped URL is not noted"
    assert "check that PostgreSQL runs" in caught.value.hint


def test_a_password_is_not_written_down(tmp_path):
    """The file beside the projections holds no secret."""
    note_address(tmp_path, LogAddress("postgresql://me:secret@db/memory?password=secret&sslmode=require", "acme"))
    assert "secret" not in (tmp_path / ADDRESS_FILE).read_text()
    assert read_address(tmp_path) == LogAddress("postgresql://me@db/memory?sslmode=require", "acme")


def test_a_store_in_a_folder_does_not_load_the_driver(tmp_path):
    """Who keeps a log in a file needs no PostgreSQL."""
    opening = "import sys, mnemolog; mnemolog.MemoryStore.open(sys.argv[1], model=None).close()"
    program = f"{opening}; print('psycopg' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program, tmp_path / "memory"], capture_output=True, check=True)
    assert found.stdout == b"False\n"
    assert postgres.__name__ in sys.modules


def test_a_connection_that_is_in_use_while_the_log_is_closed_is_closed_too(log):
    """Another thread may be reading then."""
    with log.engine.reading() as reads:
        log.close()
        assert reads.last_given() == 1
    assert reads.driver.closed


READY = b"Z\x00\x00\x00\x05I"


class Session:
    """A session of the server, and the client that has asked last."""

    def __init__(self, address, startup):
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(address)
        self.server.sendall(startup)
        self.greeting = b""
        while not self.greeting.endswith(READY):
            self.greeting += self.server.recv(65_536)
        at = self.greeting.index(b"K\x00\x00\x00\x0c") + 5  # The number of the session: a pooler invents one.
        self.greeting = self.greeting[:at] + struct.pack("!i", 7) + self.greeting[at + 4 :]
        self.client = None
        self.answering = threading.Thread(target=self.answer, daemon=True)
        self.answering.start()

    def close(self):
        """End the session: closing a socket alone would leave its reader blocked."""
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)
        self.answering.join()
        self.server.close()

    def answer(self):
        with suppress(OSError):  # A client is gone, or the test is over.
            while data := self.server.recv(65_536):
                self.client.sendall(data)


@contextmanager
def pooler(folder, url, *, shares_sessions):
    """The URL of a pooler that knows nothing of transactions: its clients take turns."""
    parts, sessions = psycopg.conninfo.conninfo_to_dict(url), []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{folder}/.s.PGSQL.5432")
    listener.listen()

    def serve(client):
        with client, suppress(OSError):
            startup = client.recv(65_536)
            if not (shares_sessions and sessions):
                sessions.append(Session(f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}", startup))
            session = sessions[-1]
            client.sendall(session.greeting)
            while (data := client.recv(65_536)) and data != b"X\x00\x00\x00\x04":
                session.client = client
                session.server.sendall(data)

    def accept():
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"postgresql://{parts['user']}@/{parts['dbname']}?{urlencode({'host': folder})}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for session in sessions:
            session.close()


def test_a_pooler_that_gives_each_client_its_session_is_no_different(tmp_path, postgres_url):
    with (
        pooler(tmp_path, postgres_url, shares_sessions=False) as url,
        MemoryStore.open(url, log="pooled", local=tmp_path / "node", model=None) as store,
    ):
        store.session("a").record("user", "Lisbon", key="1")
        assert store.recall("Lisbon").hits
        assert store.verify().sound


def test_a_pooler_that_shares_sessions_is_refused(tmp_path, postgres_url):
    """What is set for a session would be another client's, so that an append might not be durable."""
    with pooler(tmp_path, postgres_url, shares_sessions=True) as url:
        with pytest.raises(errors.StoreError, match="shares sessions by transaction") as raised:
            MemoryStore.open(url, log="shared", local=tmp_path / "node", model=None)
        assert "pool_mode = session" in raised.value.hint


@pytest.fixture
def lasting(stoppable, tmp_path, request):
    """A log of one event."""
    stoppable.start()
    address = LogAddress(stoppable.url, request.node.name)
    log = open_log(tmp_path / "node", clock=FakeClock(), create=True, address=address, encrypt=False)
    log.appends.transact(start("s"))
    yield log
    log.close()


def test_threads_that_append_and_read_during_restarts_see_no_error(stoppable, lasting):
    """They wait for the server, wherever the restart hits them: each append is there once, and the chain is whole."""
    stop = threading.Event()

    def appending(name):
        count = 0
        while not stop.is_set():
            lasting.appends.transact(append("s", f"{name} {count}", keys=[f"{name} {count}"]))
            count += 1
        return count

    def reading():
        while not stop.is_set():
            assert lasting.recorded_at(lasting.head().position)

    running = [in_thread(lambda n=n: appending(n)) for n in range(3)]
    reader = in_thread(reading)
    for _ in range(3):
        before = lasting.head().position
        wait_until(lambda before=before: lasting.head().position > before, what="an append")
        stoppable.stop()
        stoppable.start()
    stop.set()
    counts = [outcome.result() for outcome in running]
    reader.result()
    assert all(counts)
    assert len(read_all(lasting)) == 1 + sum(counts)
    assert verify(lasting).sound


def test_a_server_that_stays_away_is_unreachable_within_the_stated_time(stoppable, lasting, monkeypatch):
    """The first calls wait for it, those after that fail at once, until it is there again."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 1.0)
    lasting.appends.transact(append("s", "before"))
    stoppable.stop()
    waited = []
    for call in (
        lasting.head,
        lambda: lasting.appends.transact(append("s", "lost", keys=["k"])),
        lasting.head,
        lasting.last_given,
    ):
        began = time.monotonic()
        with pytest.raises(errors.LogUnreachable, match="does not answer") as caught:
            call()
        waited.append(time.monotonic() - began)
    assert 0.9 < waited[0] < 3
    assert max(waited[2:]) < 0.5
    assert "check that PostgreSQL runs" in caught.value.hint
    stoppable.start()
    assert lasting.head().position == 2
    assert lasting.appends.transact(append("s", "again", keys=["k"])) == [3]
    assert verify(lasting).sound
