"""P39: loops that run for days. What each of them needs is taken away for a while: it goes on, and misses nothing."""

import asyncio
import errno
import json
import logging
import shutil
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from mnemolog import AsyncMemoryStore, MemoryStore
from mnemolog.adapters.watch import Watcher
from mnemolog.aio.wrappers import WorkerPools
from mnemolog.application.tokens import Tokens
from mnemolog.domain import errors
from mnemolog.domain.values import to_datetime
from mnemolog.eventsourcing import LogApplicationRecorder
from mnemolog.infra import postgres, text_file
from mnemolog.infra.log.postgres.engine import PostgresEngine
from mnemolog.infra.runtime import files
from mnemolog.observability.telemetry import HEAD
from mnemolog.projections import projector
from mnemolog.server.http import live_events
from mnemolog.server.http.authentication import VERBS, Caller
from tests.e2e.test_logs import Collected
from tests.postgres import connect
from tests.support import HashEncoder, in_thread, unprivileged, wait_until

pytestmark = [pytest.mark.promise("P39"), pytest.mark.timeout(300)]


SESSION = "11111111-1111-4111-8111-111111111111"


class Loop:
    """Something that runs in the background of a store. `heard` returns the texts of the turns that it has handled."""

    met = ""
    """What it logs when it meets an outage."""

    def __init__(self, store, stack):
        self.store = store

    def say(self, text):
        self.store.session(SESSION).record("user", text)

    def in_log(self):
        found = self.store.find_session(SESSION)
        return [] if found is None else [turn.text for turn in found.turns()]


class Watch(Loop):
    """Records the lines of a transcript."""

    met = "watch.waits"

    def __init__(self, store, stack):
        super().__init__(store, stack)
        self.folder = store.path.parent / "projects"
        self.path = self.folder / "p" / f"{SESSION}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.file = stack.enter_context(self.path.open("a"))  # Opened once: an agent writes on, whatever happens.
        self.reports = []
        self.watcher = stack.enter_context(Watcher(store, self.folder))
        self.passes, self._catch_up, self.watcher.catch_up = 0, self.watcher.catch_up, self._caught_up
        running = in_thread(lambda: self.watcher.follow(self.reports.append, poll_s=0.05))
        stack.callback(running.result)
        stack.callback(self.watcher.stop.set)

    def _caught_up(self, **how):
        report = self._catch_up(**how)
        self.passes += 1
        return report

    def say(self, text):
        row = {"type": "user", "uuid": text, "sessionId": SESSION, "timestamp": "2026-03-01T10:00:00Z"}
        self.file.write(json.dumps(row | {"message": {"role": "user", "content": text}}) + "\n")
        self.file.flush()

    heard = Loop.in_log


class Projector(Loop):
    """Embeds turns."""

    met = "projector.backing_off"

    def heard(self):
        status, head = self.store.status().projector, self.store.head().position
        return self.in_log() if (status.state, status.position) == ("idle", head) else []


class Subscription(Loop):
    """A subscription of the eventsourcing library."""

    def __init__(self, store, stack):
        super().__init__(store, stack)
        recorder, self.positions, self.failed = LogApplicationRecorder(store.parts.log, id_type="text"), [], 0
        self._select, recorder.select_notifications = recorder.select_notifications, self._selected
        subscription = stack.enter_context(recorder.subscribe(gt=0))
        reading = in_thread(lambda: self.positions.extend(entry.id for entry in subscription))
        stack.callback(reading.result)
        stack.callback(subscription.stop)

    def _selected(self, *args, **how):
        try:
            return self._select(*args, **how)
        except errors.MnemologError:
            self.failed += 1
            raise

    def heard(self):
        return [turn.text for turn in self.store.turns(SESSION) if turn.position in self.positions]


class Tail(Loop):
    """A caller of a server who follows the log."""

    met = "http.tail_waits"

    def __init__(self, store, stack):
        super().__init__(store, stack)
        self.sent, self.begun = b"", threading.Event()
        pools = WorkerPools()
        stack.callback(pools.end)
        whole = AsyncMemoryStore(store, pools)
        self.followers = live_events.Followers(whole)

        async def follow():
            caller = Caller(actor="alice", verbs=VERBS, store=whole)
            follower = live_events.Follower(self.followers, caller, live_events._wanted(store, {}))
            await self.followers.add(follower)
            self.begun.set()
            async for make in follower.parts():
                self.sent += make()
            self.followers.remove(follower)

        loop = asyncio.Runner()
        running = in_thread(lambda: loop.run(follow()))
        stack.callback(loop.close)
        stack.callback(running.result)
        stack.callback(lambda: loop.get_loop().call_soon_threadsafe(self.followers.stop))
        assert self.begun.wait(60)

    def heard(self):
        return [text for text in self.in_log() if f'"{text}"'.encode() in self.sent]


class Followers(Loop):
    """The thread that sees commits of other processes in PostgreSQL."""

    met = "heads.not_seen"

    def __init__(self, store, stack):
        super().__init__(store, stack)
        self.woken, log = threading.Event(), store.parts.log
        self.other = stack.enter_context(MemoryStore.open(store.path, model=None, background=False))
        log.followers.listen(self)
        stack.callback(lambda: log.followers.unlisten(self))

    def say(self, text):
        self.woken.clear()
        self.other.session(SESSION).record("user", text)

    def set(self):
        self.woken.set()

    def heard(self):
        return self.in_log() if self.woken.is_set() else []


class Gauges(Loop):
    """What a collector of metrics asks for."""

    def heard(self):
        return self.in_log() if self.gauges.values(HEAD) == [self.store.head().position] else []


@pytest.fixture(autouse=True)
def impatient(monkeypatch, caplog):
    """Try again at once, so that only the outage takes time."""
    monkeypatch.setattr(postgres, "RECONNECT_S", 0.1)
    monkeypatch.setattr(projector, "RETRY_S_MIN", 0.02)
    monkeypatch.setattr(projector, "START_DELAY_S", 0.0)
    monkeypatch.setattr(live_events, "RETRY_S", 0.02)
    caplog.set_level(logging.DEBUG, "mnemolog")


@pytest.fixture
def through(caplog, outage_s):
    """Take something away from a loop, and give it back: what was said before, meanwhile and after it is handled."""

    def through(loop, outage, *, meanwhile=False, met=None):
        def has_met():
            return met() if met is not None else any(loop.met in record.message for record in caplog.records)

        loop.say("before")
        wait_until(lambda: loop.heard() == ["before"], what="the first turn")
        with outage():
            if meanwhile:
                loop.say("meanwhile")
            wait_until(has_met, what="the outage to be met")
            threading.Event().wait(outage_s)
        loop.say("after")
        said = ["before", "meanwhile", "after"] if meanwhile else ["before", "after"]
        wait_until(lambda: loop.heard() == said, what="all turns")

    return through


@contextmanager
def stopped(database):
    database.stop()
    try:
        yield
    finally:
        database.start()


@contextmanager
def moved(path):
    away = path.rename(path.with_name("away"))
    try:
        yield away
    finally:
        away.rename(path)


@pytest.fixture
def opened(tmp_path):
    """Open a store beside the test's other folders, and a loop in it."""
    with ExitStack() as stack:

        def open_loop(kind, *where, **how):
            model = HashEncoder() if kind is Projector else None
            store = stack.enter_context(MemoryStore.open(*where or [tmp_path / "memory"], model=model, **how))
            return kind(store, stack)

        yield open_loop


@pytest.mark.parametrize("kind", [Watch, Projector, Subscription, Tail, Followers])
def test_it_waits_for_a_database_that_is_away(stoppable, tmp_path, opened, through, monkeypatch, kind):
    """PostgreSQL is stopped, and started again."""
    monkeypatch.setattr(PostgresEngine, "poll_interval_s", 0.05)
    loop = opened(kind, stoppable.url, log=kind.__name__, local=tmp_path / "node")
    met = (lambda: loop.failed) if kind is Subscription else None
    through(loop, lambda: stopped(stoppable), meanwhile=kind is Watch, met=met)


def test_gauges_are_missing_while_the_database_is_away(stoppable, tmp_path, opened, through):
    """The collector goes on, and reports the head again."""
    collected = Collected()
    loop = opened(Gauges, stoppable.url, log="gauges", local=tmp_path / "node", telemetry=collected)
    loop.gauges = collected
    through(loop, lambda: stopped(stoppable), met=lambda: collected.values(HEAD) == [])


@pytest.mark.parametrize(("kind", "left"), [(Watch, 0), (Watch, 1), (Projector, 0)])
def test_it_waits_for_descriptors(opened, through, descriptor_limit, kind, left):
    """The process has opened all files that it may open, or all but one."""
    loop = opened(kind)

    @contextmanager
    def used_up():
        descriptor_limit(left)
        loop.passes = 0
        try:
            yield
        finally:
            descriptor_limit(None)

    through(loop, used_up, meanwhile=True, met=(lambda: loop.passes > 1) if kind is Watch else None)


def test_it_waits_for_descriptors_to_connect_with(stoppable, tmp_path, opened, through, descriptor_limit, caplog):
    """The server has ended all sessions, and one descriptor is too few for a new one."""
    loop = opened(Followers, stoppable.url, log="descriptors", local=tmp_path / "node")

    @contextmanager
    def cut_off():
        descriptor_limit(0)  # Its own is free again as soon as it has lost the connection.
        ours.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mnemolog'")
        try:
            yield
        finally:
            descriptor_limit(None)

    def has_tried_twice():
        return sum(loop.met in record.message for record in caplog.records) > 1

    with connect(stoppable.url) as ours:
        through(loop, cut_off, met=has_tried_twice)


@pytest.mark.parametrize("left", [0, 1])
def test_a_shortage_of_descriptors_is_an_outage_of_the_database(stoppable, descriptor_limit, left):
    """Whether the socket lacks one, or the wait for it: callers know that error, and try again."""
    stoppable.start()
    settings = postgres.Settings(stoppable.url)
    settings.connect().close()
    descriptor_limit(left)
    with pytest.raises(psycopg.OperationalError):
        settings.connect()


def test_the_write_ahead_log_is_emptied_once_there_are_descriptors(folder, descriptor_limit, caplog):
    """What keeps it small starts again with a later commit."""
    caplog.set_level(logging.DEBUG, "mnemolog")
    with MemoryStore.open(folder, model=None, background=False) as store:
        keeper, session = store.parts.wal_keeper, store.session("trip")
        keeper._warn_bytes = 1 << 20

        def logged(event):
            session.record("user", "a turn " * 100)
            return any(event in record.message for record in caplog.records)

        descriptor_limit(0)
        wait_until(lambda: logged("wal.not_emptied"), what="a try without descriptors")
        descriptor_limit(None)
        wait_until(lambda: logged("wal.emptied"), what="a small write-ahead log")


def test_it_waits_for_a_folder_that_is_away(opened, through):
    """It is moved away, as when a disk is not mounted, and back again with what was written meanwhile."""
    loop = opened(Watch)

    @contextmanager
    def away():
        with moved(loop.folder):
            loop.passes = 0
            yield

    through(loop, away, meanwhile=True, met=lambda: loop.passes > 1)


def test_it_goes_on_without_its_projections(opened, through):
    """They can be deleted at any time."""
    loop = opened(Watch)

    @contextmanager
    def deleted():
        shutil.rmtree(loop.store.path / "projections")
        loop.passes = 0
        yield

    through(loop, deleted, meanwhile=True, met=lambda: loop.passes > 1)


def test_a_transcript_that_cannot_be_read_is_recorded_as_soon_as_it_can_be(outage_s):
    """Its rights are taken away and given back, and nothing else about it changes. The trouble is reported once."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        Path(folder).chmod(0o777)
        with unprivileged(), MemoryStore.open(f"{folder}/memory", model=None, background=False) as store:
            loop = Watch(store, stack)
            loop.path.chmod(0)
            loop.say("before")
            wait_until(lambda: loop.reports, what="the report")
            threading.Event().wait(outage_s)
            loop.path.chmod(0o600)
            wait_until(lambda: loop.heard() == ["before"], what="the turn")
            assert [report.refused for report in loop.reports] == [1, 0]
            stack.close()


def test_a_transcript_is_read_again_whose_format_could_not_be_read(opened, monkeypatch):
    """An input error while its format is looked for does not make it a file of another program."""
    loop, failing = opened(Watch), iter([OSError(errno.EIO, "Input/output error")])

    def open_file(path, **how):
        if path == loop.path and (error := next(failing, None)):
            raise error
        return files.open_file(path, **how)

    monkeypatch.setattr(text_file, "open_file", open_file)
    loop.say("before")
    wait_until(lambda: loop.heard() == ["before"], what="the turn")
    assert sum(report.refused for report in loop.reports) == 1


def test_uses_of_tokens_are_written_down_once_they_can_be(store, clock):
    """They are not dropped, as when the disk is full for a moment."""
    token, tokens = store.admin.create_token("alice").token, store.parts.tokens
    file = store.path / "projections" / "token-uses.json"
    file.mkdir(parents=True)
    tokens.note_use(token.id, to_datetime(clock.now()))
    tokens.save_uses()
    file.rmdir()
    tokens.save_uses()
    (known,) = Tokens(store.parts.log, clock, uses=file).all()
    assert known.last_used_at is not None
