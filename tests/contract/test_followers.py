"""Followers of a log in PostgreSQL see what other processes append, soon and without asking often."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import ExitStack, contextmanager

import pytest

from mnemolog.domain import errors
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres import heads
from mnemolog.infra.log.postgres.address import LogAddress
from mnemolog.infra.runtime.clock import SystemClock
from tests.children.forking import in_child
from tests.postgres import connect, stoppable_server
from tests.support import append, wait_until

QUIET_S = 3.0


@pytest.fixture
def opened(postgres_url, tmp_path):
    """Open a log by its name, each time in a folder of its own."""
    run = uuid.uuid4().hex
    with ExitStack() as logs:

        def opened(name="one", *, url=postgres_url):
            address = LogAddress(url, f"{name}_{run}")
            folder = tmp_path / uuid.uuid4().hex
            log = EventLog.open(folder, clock=SystemClock(), create=True, address=address, encrypt=False)
            logs.callback(log.close)
            return log

        yield opened


class Follower:
    """Reads a log whenever it is told of news, and never else."""

    def __init__(self, log):
        self.log, self.seen, self.told = log, [], 0
        self._changed = threading.Condition()
        log.listen(self)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def set(self):
        with self._changed:
            self.told += 1
            self._changed.notify_all()

    def _run(self):
        read = 0
        while True:
            with self._changed:
                while read == self.told:
                    self._changed.wait()
                read = self.told
            try:
                head = self.log.head().position
                for events in self.log.read(after=len(self.seen), upto=head):
                    self.seen += [event.position for event in events]
            except errors.StoreClosed:
                return

    def wait_for(self, count):
        wait_until(lambda: len(self.seen) >= count, what=f"{count} events", timeout_s=8)


@contextmanager
def queries_counted(monkeypatch):
    """Count the queries of the thread that watches heads."""
    asked = []
    ask = heads._Thread._ask
    with monkeypatch.context() as counting:
        counting.setattr(heads._Thread, "_ask", lambda self, *given, **how: asked.append(1) or ask(self, *given, **how))
        yield asked


def threads():
    """The threads of this process that watch heads."""
    return [thread for thread in threading.enumerate() if thread.name == "mnemolog-heads" and thread.is_alive()]


def in_another_process(function):
    """Run a function in a process of its own. Nothing that this one has open is used there."""
    in_child(function)


def test_a_follower_on_another_node_sees_every_event_in_order(opened):
    """Several processes append at once; nothing is missed and nothing comes twice."""
    follower, other = Follower(opened()), opened()

    def write():
        log = opened()
        for n in range(100):
            log.transact(append("s", str(n), str(n)))
        log.close()

    for n in range(20):
        other.transact(append("s", str(n)))
    in_another_process(write)
    other.transact(append("s", "last"))
    follower.wait_for(221)
    assert follower.seen == list(range(1, 222))


def test_an_idle_follower_asks_once_a_second_at_most(opened, monkeypatch):
    """And is woken by a notification at once nevertheless."""
    log = opened()
    with queries_counted(monkeypatch) as asked:
        follower = Follower(log)
        wait_until(lambda: len(asked) > 12, what="asking more and more seldom")
        started, before = time.monotonic(), len(asked)
        wait_until(lambda: time.monotonic() >= started + QUIET_S, what="time to pass")
        assert len(asked) - before <= 2 * QUIET_S + 1
        before = len(asked)
        in_another_process(lambda: opened().transact(append("s", "hello")))
        follower.wait_for(1)
        assert len(asked) - before < 60


def test_followers_of_many_logs_share_one_thread_and_one_query(opened, monkeypatch):
    """However many logs a process follows."""
    logs = [opened(f"log{n}") for n in range(8)]
    followers = [Follower(log) for log in logs for _ in range(2)]
    assert len(threads()) == 1
    with queries_counted(monkeypatch) as asked:
        for log in logs:
            log.transact(append("s", "hello"))
        for follower in followers:
            follower.wait_for(1)
        assert len(asked) < len(followers) * 4
    for log in logs:
        log.close()
    assert threads() == []


def test_without_any_notification_events_are_seen_all_the_same(opened, monkeypatch):
    """They are an addition: a pooler may lose them."""
    monkeypatch.setattr(heads, "_is_notified", lambda driver: list(driver.notifies(timeout=0)) == 1)
    follower = Follower(opened())
    in_another_process(lambda: [opened().transact(append("s", str(n))) for n in range(50)])
    follower.wait_for(50)
    assert follower.seen == list(range(1, 51))


@pytest.mark.parametrize("listens", [True, False])
def test_notifications_are_few_and_not_on_the_connection_that_appends(opened, postgres_url, listens):
    """One in 4 ms at most, none where nobody says that it listens; an append stays one statement."""
    log = opened()
    log.transact(append("s", "first"))
    with connect(postgres_url) as listening:
        listening.execute(f"LISTEN mnemolog_{log.engine.log}")
        if listens:
            listening.execute(f"SELECT pg_advisory_lock_shared({heads.LISTENING}, {log.engine.log})")
        writer = log.writer.connection.driver.info.backend_pid
        started = time.monotonic()
        for n in range(300):
            log.transact(append("s", str(n)))
        took = time.monotonic() - started
        found = list(listening.notifies(timeout=2 * heads.LISTENERS_S, stop_after=1))
        found += list(listening.notifies(timeout=0.1))
        assert listens <= len(found) <= listens * (took / heads.NOTIFY_S + 2)
        assert writer not in {notify.pid for notify in found}


def test_a_process_that_appends_asks_seldom_who_listens(opened, monkeypatch):
    """However much it appends."""
    monkeypatch.setattr(heads, "LISTENERS_S", 60.0)
    log, asked = opened(), []
    log.transact(append("s", "first"))
    wait_until(lambda: threads(), what="the thread")
    (thread,) = threads()
    look = thread._look
    thread._look = lambda driver: asked.append(1) or look(driver)
    for n in range(300):
        log.transact(append("s", str(n)))
    assert len(asked) <= 3


def test_a_store_that_neither_follows_nor_appends_has_no_thread(opened):
    """It begins with the first follower or append, and ends with the last log."""
    log, other = opened(), opened()
    log.head()
    assert threads() == []
    log.transact(append("s", "hello"))
    assert len(threads()) == 1
    Follower(other)
    assert len(threads()) == 1
    log.close()
    assert len(threads()) == 1
    other.close()
    assert threads() == []


def test_a_child_has_no_thread_and_leaves_that_of_its_parent_alone(opened):
    """It starts one of its own for the logs that it opens."""
    follower = Follower(opened())
    follower.log.transact(append("s", "hello"))

    def child():
        assert threads() == []
        own = opened()
        mine = Follower(own)
        own.transact(append("s", "of the child"))
        mine.wait_for(2)
        own.close()
        return mine.seen

    assert in_child(child) == [1, 2]
    follower.wait_for(2)
    assert len(threads()) == 1


def test_followers_survive_a_restart_of_the_server(tmp_path, opened):
    """The thread connects again, and tells what was appended meanwhile."""
    from mnemolog.infra.log.postgres.database import prepare

    with stoppable_server() as server:
        prepare(server.url)
        log = opened(url=server.url)
        follower = Follower(log)
        log.transact(append("s", "before"))
        follower.wait_for(1)
        server.stop()
        server.start()
        opened(url=server.url).transact(append("s", "after"))
        follower.wait_for(2)
        log.close()


def test_a_follower_sees_events_after_its_connection_was_ended(opened, postgres_url):
    """As an administrator ends sessions."""
    follower, other = Follower(opened()), opened()
    other.transact(append("s", "before"))
    follower.wait_for(1)
    with connect(postgres_url) as database:
        ended = database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%mnemolog.head WHERE log = ANY%' "
            "AND pid <> pg_backend_pid()"
        ).fetchall()
    assert ended
    other.transact(append("s", "after"))
    follower.wait_for(2)


def test_who_listens_no_longer_is_not_told(opened):
    """And the heads of its log are not asked for."""
    log, other = opened(), opened()
    follower = Follower(log)
    other.transact(append("s", "hello"))
    follower.wait_for(1)
    log.unlisten(follower)
    told = follower.told
    again = Follower(opened())
    other.transact(append("s", "hello again"))
    again.wait_for(2)
    assert follower.told == told
