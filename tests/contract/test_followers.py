"""Followers of a log in PostgreSQL see what other processes append, soon and with few queries."""

import threading
import time
import uuid
from contextlib import ExitStack, closing, contextmanager

import pytest

from mnemolog.domain import errors
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres import heads
from mnemolog.infra.log.postgres.address import LogAddress
from mnemolog.infra.runtime.clock import SystemClock
from tests.children.forking import in_child
from tests.postgres import stoppable_server
from tests.support import append, wait_until

QUIET_S = 2.0


@pytest.fixture
def opened(postgres_url, tmp_path):
    """Open a log by its name, each time in a folder of its own."""
    run = uuid.uuid4().hex
    with ExitStack() as logs:

        def opened(name="one", *, url=postgres_url):
            address = LogAddress(url, f"{name}_{run}")
            folder = tmp_path / uuid.uuid4().hex
            log = open_log(folder, clock=SystemClock(), create=True, address=address, encrypt=False)
            logs.callback(log.close)
            return log

        yield opened


class Follower:
    """Reads a log whenever it is notified, and never else."""

    def __init__(self, log, **how):
        self.log, self.seen, self.told = log, [], 0
        self._changed = threading.Condition()
        log.followers.listen(self, **how)
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
def polls_counted(monkeypatch):
    """Collect the number of logs in each query of the thread that watches heads."""
    polls = []
    poll = heads._Poller._poll
    with monkeypatch.context() as counting:
        counting.setattr(
            heads._Poller, "_poll", lambda self, driver, logs: polls.append(len(logs)) or poll(self, driver, logs)
        )
        yield polls


def threads():
    """The threads of this process that watch heads."""
    return [thread for thread in threading.enumerate() if thread.name == "mnemolog-heads" and thread.is_alive()]


def test_a_follower_on_another_node_sees_every_event_in_order(opened):
    """Several processes append at once; nothing is missed and nothing comes twice."""
    follower, other = Follower(opened()), opened()

    def write():
        with closing(opened()) as log:
            for n in range(100):
                log.appends.transact(append("s", str(n), str(n)))

    for n in range(20):
        other.appends.transact(append("s", str(n)))
    in_child(write)
    other.appends.transact(append("s", "last"))
    follower.wait_for(221)
    assert follower.seen == list(range(1, 222))


def test_an_idle_follower_polls_as_seldom_as_it_allows(opened, monkeypatch):
    """Soon after news, then less and less often."""
    poll_s_max = 0.2
    log, other = opened(), opened()
    with polls_counted(monkeypatch) as polls:
        follower = Follower(log, poll_s_max=poll_s_max)
        other.appends.transact(append("s", "hello"))
        follower.wait_for(1)
        seen = len(polls)
        wait_until(lambda: len(polls) > seen + 20, what="polling less and less often")
        started, before = time.monotonic(), len(polls)
        wait_until(lambda: time.monotonic() >= started + QUIET_S, what="time to pass")
        assert len(polls) - before <= QUIET_S / poll_s_max + 1
        other.appends.transact(append("s", "hello again"))
        follower.wait_for(2)


def test_followers_of_many_logs_share_one_thread_and_one_query(opened, monkeypatch):
    """However many logs a process follows."""
    logs = [opened(f"log{n}") for n in range(8)]
    followers = [Follower(log) for log in logs for _ in range(2)]
    assert len(threads()) == 1
    with polls_counted(monkeypatch) as polls:
        for log in logs:
            log.appends.transact(append("s", "hello"))
        for follower in followers:
            follower.wait_for(1)
        assert set(polls) == {len(logs)}
    for log in logs:
        log.close()
    assert threads() == []


def test_only_a_log_that_is_followed_has_a_thread(opened):
    """It starts with the first follower, and ends with the last one; appends start none, and who left is not told."""
    log, other, third = opened(), opened(), opened()
    log.appends.transact(append("s", "hello"))
    assert threads() == []
    followers = [Follower(log), Follower(other)]
    assert len(threads()) == 1
    followers[0].wait_for(1)
    log.followers.unlisten(followers[0])
    told = followers[0].told
    third.appends.transact(append("s", "news"))
    followers[1].wait_for(2)
    assert followers[0].told == told
    assert len(threads()) == 1
    other.close()
    assert threads() == []
    follower = Follower(log)
    third.appends.transact(append("s", "hello again"))
    follower.wait_for(3)
    log.close()
    assert threads() == []


def test_a_child_has_no_thread_and_leaves_that_of_its_parent_alone(opened):
    """It starts one of its own for the logs that it opens."""
    follower = Follower(opened())
    follower.log.appends.transact(append("s", "hello"))

    def child():
        assert threads() == []
        with closing(opened()) as own:
            mine = Follower(own)
            own.appends.transact(append("s", "of the child"))
            mine.wait_for(2)
        return mine.seen

    assert in_child(child) == [1, 2]
    follower.wait_for(2)
    assert len(threads()) == 1


def test_followers_survive_a_restart_of_the_server(tmp_path, opened):
    """The thread connects again, and notifies of what was appended meanwhile."""
    from mnemolog.infra.log.postgres.engine import prepare

    with stoppable_server() as server:
        prepare(server.url)
        with closing(opened(url=server.url)) as log:
            follower = Follower(log)
            log.appends.transact(append("s", "before"))
            follower.wait_for(1)
            server.stop()
            server.start()
            opened(url=server.url).appends.transact(append("s", "after"))
            follower.wait_for(2)
