"""What an event log promises, whatever it is made of, and what ours promises as a file.

History cannot be changed through the library, and hardly past it.
"""

import os
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from eventsourcing.persistence import StoredEvent
from pysqlite3 import dbapi2

from mnemolog import MemoryStore
from mnemolog.application.commands import decide, record_turn
from mnemolog.domain import errors
from mnemolog.domain.events import SessionEnded
from mnemolog.domain.scope import UNBOUNDED
from mnemolog.domain.session import end, session_stream
from mnemolog.domain.stream_fold import nothing_known
from mnemolog.eventsourcing import LogApplicationRecorder
from mnemolog.infra import sqlite
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.projections.history.states import evolve
from mnemolog.projections.history.verify import verify
from tests.children.forking import in_child
from tests.postgres import connect, put_log_in_postgres
from tests.support import (
    FakeClock,
    append,
    append_as_one_group,
    in_thread,
    nothing_written,
    once,
    queue_up,
    read_all,
    settings_of,
    start,
    start_child,
    started,
    texts_of,
    turn,
)

CHILD = Path(__file__).parent.parent / "children" / "appending.py"


FROM_THE_LOG = SimpleNamespace(
    known=nothing_known, boundary=UNBOUNDED, is_inside=lambda _: True, is_outside=lambda _: False
)
"""States that nobody keeps."""


def keyed(session, *turns):
    """Record turns as the store does: `(key, text)` pairs."""
    works = [
        partial(record_turn, session_id=session, turn=turn(text), states=FROM_THE_LOG, key=key) for key, text in turns
    ]
    return lambda tx: [work(tx) for work in works]


class EventLogContract:
    """What every event log promises. Subclass it and provide `log`, empty."""

    @pytest.fixture
    def session_s(self, log):
        """The first event of the log starts session `s`."""
        log.appends.transact(start("s"))

    def test_events_are_read_in_the_order_of_appends_by_position_batch_and_stream(self, log):
        """Positions rise across streams, versions within one; any part of the log can be read."""
        given = [log.appends.transact(start(name)) for name in ("a", "b")]
        for n in range(20):
            given += log.appends.transact(append("ab"[n % 2], *(f"{n}/{m}" for m in range(1 + n % 3))))
        head, events = log.head().position, read_all(log)
        assert given == sorted(set(given)) == [event.position for event in events]
        for name in ("a", "b"):
            of_stream = [event for event in events if event.stream == session_stream(name)]
            assert [event.version for event in of_stream] == list(range(1, len(of_stream) + 1))
            read = [event for batch in log.read_stream(session_stream(name), upto=head, batch_max=2) for event in batch]
            assert read == of_stream
            behind = [event for batch in log.read_stream(session_stream(name), after=3, upto=20) for event in batch]
            assert behind == [event for event in of_stream if event.version > 3 and event.position <= 20]
        assert list(log.read_stream("session/none", upto=100)) == []
        streams = [(event.position, event.stream) for event in events]
        assert log.streams(after=0, upto=head, limit=100) == streams
        assert log.streams(after=streams[1][0], upto=streams[6][0], limit=3) == streams[2:5]
        for count in range(len(events) + 1):
            assert log.read_at([position for position, _ in streams[:count]]) == events[:count]
        for batch_max in (1, 3, 7, 500):
            batches = list(log.read(after=1, upto=20, batch_max=batch_max))
            assert [event for batch in batches for event in batch] == events[1:20]
            assert all(0 < len(batch) <= batch_max for batch in batches)

    def test_what_is_read_is_what_was_appended(self, log):
        """Every field comes back as it went in."""
        told = turn(
            "a\u0301 🌍 \x01\n",
            role="tool",
            speaker="Zoë",
            said_at=-62_135_596_800_000_000,
            tool_calls=[{"name": "f", "arguments": [1, 2.5, None, True]}],
            metadata={"z": 1, "a": {"b": [2**63, -(2**63)]}},
        )
        log.appends.transact(start("s", scope="acme/support"))
        log.appends.transact(lambda tx: tx.append("session/s", told, expected=1, key="k"))
        first, second = read_all(log)
        assert first.event == started(scope="acme/support")
        assert (second.event, second.key, second.stream, second.version) == (told, "k", "session/s", 2)

    def test_an_append_is_read_as_soon_as_it_returns_and_its_digest_never_changes(self, log):
        """From position 0 on: what the head said once, the log says of that position for ever."""
        heads = [log.head()]
        assert read_all(log) == []
        log.appends.transact(start("s"))
        for n in range(10):
            heads.append(log.head())
            (position,) = log.appends.transact(append("s", str(n)))
            assert log.head().position == position
            assert texts_of(read_all(log, after=position - 1)) == [str(n)]
        assert [head.position for head in heads] == list(range(11))
        assert len({head.digest for head in heads}) == len(heads)
        assert [log.digest_at(head.position) for head in heads] == [head.digest_bytes for head in heads]
        assert log.digest_at(12) is None

    def test_an_append_is_written_whole_or_leaves_no_trace(self, log):
        """Over several streams, whatever refuses it in its middle: no event, no position, no key."""

        def across(tx):
            start("s")(tx)
            start("b")(tx)
            return append("b", "in b")(tx)

        assert log.appends.transact(across) == [3]
        before = log.head()

        def changed_my_mind(tx):
            append("s", "one", "two", keys=["k1", "k2"])(tx)
            raise RuntimeError("changed my mind")

        def conflict_in_the_last(tx):
            append("s", "more", keys=["k1"])(tx)
            append("b", "more in b", expected=7)(tx)

        for work, refused in (
            (changed_my_mind, RuntimeError),
            (append("s", "fine", "\ud800", keys=["k1", None]), errors.InvalidInput),
            (conflict_in_the_last, errors.WrongExpectedVersion),
        ):
            with pytest.raises(refused):
                log.appends.transact(work)
            assert log.head() == before
        assert log.appends.transact(lambda tx: (tx.find("session/s", "k1"), tx.version("session/s"))) == (None, 1)
        for expected in (0, 2, 100):
            with pytest.raises(errors.WrongExpectedVersion) as caught:
                log.appends.transact(append("s", "two", expected=expected))
            assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("session/s", expected, 1)
        assert log.appends.transact(append("s", "three", keys=["k1"])) == [before.position + 1]
        assert texts_of(read_all(log)) == ["in b", "three"]

    def test_a_retry_adds_nothing_and_a_key_names_one_event_of_its_stream(self, log):
        """Alone, within one call, partly recorded before, and after the session has ended; other content is refused."""
        for name in ("s", "b"):
            log.appends.transact(start(name))
        (first,) = log.appends.transact(keyed("s", ("k", "x")))
        one, two, three = log.appends.transact(keyed("s", ("k", "x"), ("l", "y"), ("l", "y")))
        assert [item.event.position for item in (one, two, three)] == [3, 4, 4]
        assert [item.deduplicated for item in (first, one, two, three)] == [False, True, False, True]
        assert one.event == first.event
        with nothing_written(log):
            for turns in ([("new", "fine"), ("k", "twice")], [("m", "x"), ("m", "other")]):
                with pytest.raises(errors.DuplicateKey) as caught:
                    log.appends.transact(keyed("s", *turns))
                assert caught.value.key == turns[-1][0]
            with pytest.raises(errors.DuplicateKey) as caught:
                log.appends.transact(keyed("s", ("k", "twice")))
            assert (caught.value.key, caught.value.position) == ("k", 3)
        log.appends.transact(keyed("b", ("k", "in b")))
        assert texts_of(read_all(log)) == ["x", "y", "in b"]
        log.appends.transact(lambda tx: decide(tx, "s", FROM_THE_LOG, partial(end, "s", reason="ended")))
        (again,) = log.appends.transact(keyed("s", ("k", "x")))
        assert again.deduplicated
        with pytest.raises(errors.SessionAlreadyEnded):
            log.appends.transact(keyed("s", ("z", "one more")))

    def test_long_streams_are_read_whole_and_from_their_end(self, log):
        """However many rows an engine fetches together."""
        stream = "eventsourcing.events/test/long"
        log.appends.transact(start("s"))
        log.appends.transact(append("s", *(str(n) for n in range(130))))
        log.appends.transact(lambda tx: [tx.append_stored(stream, "t", str(n).encode()) for n in range(130)])
        with log.engine.reading() as reads:
            assert [row[2] for row in reads.not_turns(stream, after=3)] == list(range(4, 131))
            assert [row[1] for row in reads.state_heads(stream)] == list(range(1, 131))
            between = [row[2] for row in reads.between(stream, stream, "t")]
            assert sorted(between) == list(range(1, 131))
            assert [row[2] for row in reads.turns_backward("session/s", after=1, upto=131)] == list(range(131, 1, -1))
            heads = reads.turn_heads_backward("session/s", after=5, upto=120)
            assert [row[1] for row in heads] == list(range(120, 5, -1))
            assert [row[1] for row in reads.beginnings("t")] == [stream]
        newest = log.last_turns("session/s", after=0, upto=None, limit=60)
        assert texts_of(newest) == [str(n) for n in range(129, 69, -1)]

    def test_a_state_folded_from_the_log_is_the_one_folded_under_the_lock(self, log):
        """Whatever the writer remembers of a stream, the file says the same."""
        stream = "session/s"

        def both():
            return log.fold(stream, evolve).state, log.appends.transact(lambda tx: tx.fold(stream, evolve))

        assert both() == (None, None)
        log.appends.transact(start("s"))
        assert both()[0] == both()[1] is not None
        log.appends.transact(append("s", "one"))
        outside, inside = both()
        assert outside == inside
        assert not inside.ended

        def end_and_look(tx):
            append("s", "two", keys=["k"])(tx)
            tx.append(stream, SessionEnded(), expected=3)
            return tx.version(stream), tx.find(stream, "k").position, tx.fold(stream, evolve).ended

        assert log.appends.transact(end_and_look) == (4, 3, True), "what it has staged"
        assert all(state.ended for state in both())

    @pytest.mark.usefixtures("session_s")
    def test_a_work_that_raises_undoes_only_itself_in_a_group(self, log):
        """Those before and after it in the same commit are written, and do not see it."""

        def bad(tx):
            append("s", "bad", "worse", keys=["k", "l"])(tx)
            tx.append("session/bad", started(), expected=0)
            raise RuntimeError("no")

        def after_bad(tx):
            assert tx.find("session/s", "k") is None
            assert tx.version("session/bad") == 0
            assert tx.fold("session/bad", evolve) is None
            return append("s", "second", keys=["k"])(tx)

        before, refused, after = append_as_one_group(log, [append("s", "first"), bad, after_bad])
        assert before.result() == [2]
        with pytest.raises(RuntimeError, match="no"):
            refused.result()
        assert after.result() == [3]
        assert texts_of(read_all(log)) == ["first", "second"]
        assert verify(log).sound

    @pytest.mark.usefixtures("session_s")
    def test_a_group_is_written_in_the_order_of_its_calls_as_if_each_came_alone(self, log):
        """One key is one event, one version has one winner; nothing is written of the others."""
        outcomes = append_as_one_group(log, [append("s", str(n)) for n in range(50)])
        assert [outcome.result() for outcome in outcomes] == [[2 + n] for n in range(50)]
        outcomes = append_as_one_group(log, [keyed("s", ("k", "once"))] * 4)
        assert {outcome.result()[0].event.position for outcome in outcomes} == {52}
        won, lost = [], []
        for outcome in append_as_one_group(log, [append("s", f"winner {n}", expected=52) for n in range(8)]):
            try:
                won.append(outcome.result())
            except errors.WrongExpectedVersion as error:
                lost.append((error.expected, error.actual))
        assert (won, lost) == ([[53]], [(52, 53)] * 7)
        assert texts_of(read_all(log)) == [*(str(n) for n in range(50)), "once", "winner 0"]

    @pytest.mark.usefixtures("session_s")
    def test_many_threads_lose_nothing(self, log):
        """Every acknowledged append of every thread is there once, each thread's in its order."""
        barrier = threading.Barrier(16)

        def one(name):
            barrier.wait()
            return [log.appends.transact(append("s", f"{name}/{n}"))[0] for n in range(50)]

        given = [outcome.result() for outcome in [in_thread(lambda n=n: one(n)) for n in range(16)]]
        texts = {event.position: event.event.text for event in read_all(log, after=1)}
        assert sorted(position for positions in given for position in positions) == sorted(texts)
        for name, positions in enumerate(given):
            assert positions == sorted(positions)
            assert [texts[position] for position in positions] == [f"{name}/{n}" for n in range(50)]
        assert verify(log).sound

    @pytest.mark.usefixtures("session_s")
    def test_a_lock_held_by_others_is_log_busy_and_nothing_is_written(self, log, folder, write_lock):
        """The waiting time ends in our own error; when the lock is free, the next append works."""
        with closing(open_log(folder, clock=FakeClock(), create=False, busy_timeout_s=0.2)) as waiting:
            with write_lock():
                for _ in range(2):
                    with pytest.raises(errors.LogBusy) as caught:
                        waiting.appends.transact(append("s", "blocked"))
                    assert caught.value.waited_s == 0.2
                assert waiting.head().position == 1, "reading goes on while another writes"
            assert waiting.appends.transact(append("s", "free")) == [2]

    @pytest.mark.usefixtures("session_s")
    def test_close_finishes_what_is_queued(self, log):
        """What was accepted before `close()` is written, what comes after is refused."""
        queued = []

        def fill_and_close():
            queue_up(log, [append("s", str(n)) for n in range(20)], queued)
            queued.append(in_thread(log.close))

        log.appends.transact(once(fill_and_close))
        queued.pop().result()
        assert [outcome.result() for outcome in queued] == [[2 + n] for n in range(20)]
        with pytest.raises(errors.StoreClosed):
            log.appends.transact(append("s", "too late"))

    @pytest.mark.usefixtures("session_s")
    def test_a_closed_log_refuses_everything(self, log):
        """Every call after `close()` says so, also a reading that was begun before."""
        log.appends.transact(append("s", "one", "two"))
        reading = log.read(after=0, upto=3, batch_max=1)
        assert len(next(reading)) == 1
        log.close()
        log.close()
        for call in (
            log.head,
            log.last_given,
            lambda: log.usable_engine.size_bytes(),
            log.missing_triggers,
            lambda: log.digest_at(1),
            lambda: log.appends.transact(append("s", "no")),
            lambda: log.fold("session/s", evolve),
            lambda: log.count(topic="turn.recorded.v1", after=0, upto=3),
            lambda: next(log.read(after=0, upto=3)),
            lambda: next(log.read_stream("session/s", upto=3)),
            lambda: next(reading),
            lambda: recorder_of(log).insert_events([StoredEvent("a", 2, "t", b"")]),
            lambda: recorder_of(log).select_events("a"),
            lambda: recorder_of(log).select_notifications(1, 10),
            recorder_of(log).max_notification_id,
        ):
            with pytest.raises(errors.StoreClosed):
                call()

    @pytest.mark.usefixtures("session_s")
    def test_what_was_appended_is_there_after_reopening(self, log, folder):
        """Another opening of the file reads the same events, the same head, the same identity."""
        log.appends.transact(append("s", "one", "two", keys=["k", None]))
        log.close()
        with closing(open_log(folder, clock=FakeClock(), create=False)) as again:
            assert again.log_id == log.log_id
            assert texts_of(read_all(again)) == ["one", "two"]
            assert again.appends.transact(keyed("s", ("k", "one")))[0].deduplicated
            assert verify(again).sound

    @pytest.mark.usefixtures("session_s")
    def test_names_and_keys_have_no_nul(self, log):
        """PostgreSQL cannot store one in a text, so no log takes one: events can move between databases."""
        for stream, topic, key in (("a\0", "t", "k"), ("a", "t\0", "k"), ("a", "t", "\0")):
            with pytest.raises(errors.InvalidInput, match="NUL"):
                log.appends.transact(lambda tx, row=(stream, topic, key): tx.append_stored(*row[:2], b"\0", key=row[2]))
        assert log.appends.transact(lambda tx: tx.append_stored("a", "t", b"\0", key="k")) == 2

    @pytest.mark.usefixtures("session_s")
    def test_a_fork_may_not_use_the_log_and_the_parent_may(self, log):
        """A child of fork() gets `StoreForked` from every call; the parent goes on as if nothing was."""
        log.appends.transact(append("s", "before"))

        def attempt(call):
            try:
                call()
            except errors.StoreForked as error:
                return f"forked {error.opened_in == os.getppid()} {error.used_in == os.getpid()}"
            except BaseException as error:
                return repr(error)
            return "worked"

        def child():
            calls = (
                log.head,
                lambda: read_all(log),
                lambda: log.appends.transact(append("s", "from the child")),
                lambda: log.fold("session/s", evolve),
                lambda: recorder_of(log).insert_events([StoredEvent("a", 1, "t", b"")]),
            )
            answers = [attempt(call) for call in calls]
            log.close()  # Must not close what belongs to the parent.
            return "; ".join(answers)

        assert in_child(child) == "; ".join(["forked True True"] * 5)
        assert log.appends.transact(append("s", "after")) == [3]
        assert verify(log).sound

    @pytest.mark.usefixtures("session_s")
    def test_closing_the_log_ends_its_subscriptions(self, log):
        """A subscription that is read when the log closes ends, or says that it is closed; it reads no more."""
        subscription = recorder_of(log).subscribe(gt=0)
        try:
            assert next(subscription).id == 1

            def read_to_the_end():
                try:
                    return [entry.id for entry in subscription]
                except errors.StoreClosed:
                    return []

            reading = in_thread(read_to_the_end)
            log.close()
            assert reading.result(timeout_s=5) == []
        finally:
            subscription.stop()

    @pytest.mark.usefixtures("session_s")
    def test_a_subscription_receives_what_another_process_appends(self, log, folder):
        """Nobody notifies us across processes, yet every event arrives, in order."""
        with recorder_of(log).subscribe(gt=0) as subscription:
            child = start_child(CHILD, folder, "s", 30)
            received = in_thread(lambda: [next(subscription) for _ in range(31)])
            assert [entry.id for entry in received.result()] == list(range(1, 32))
            output, _ = child.communicate()
        assert child.returncode == 0
        assert [int(line) for line in output.split()] == list(range(2, 32))

    @pytest.mark.usefixtures("session_s")
    def test_a_subscription_receives_what_this_process_appends(self, log):
        """Own appends wake the subscription; topics and the position asked for are kept."""
        with recorder_of(log).subscribe(gt=1, topics=["turn.recorded.v1"]) as subscription:
            log.appends.transact(append("s", "one", "two"))
            log.appends.transact(lambda tx: tx.append("session/s", SessionEnded(), expected=3))
            log.appends.transact(append("s", "three"))
            received = in_thread(lambda: [next(subscription).id for _ in range(3)])
            assert received.result() == [2, 3, 5]

    @pytest.mark.usefixtures("session_s")
    def test_an_append_after_another_process_wrote_follows_it(self, log, folder):
        """What the writer remembers of the log is not trusted once somebody else wrote."""
        log.appends.transact(keyed("s", ("k", "mine")))
        for n in range(2):
            child = start_child(CHILD, folder, "s", 2)
            child.communicate()
            assert child.returncode == 0
            assert log.appends.transact(append("s", f"parent {n}")) == [5 + 3 * n]
        with closing(open_log(folder, clock=FakeClock(), create=False)) as other:
            other.appends.transact(lambda tx: tx.append("session/s", SessionEnded(), expected=tx.version("session/s")))
        assert log.appends.transact(keyed("s", ("k", "mine")))[0].deduplicated
        with pytest.raises(errors.SessionAlreadyEnded):
            log.appends.transact(keyed("s", ("l", "too late")))
        assert verify(log).sound

    def test_two_processes_that_create_at_once_share_one_log(self, folder, tmp_path):
        """Whoever is quicker creates it, the other one opens it."""
        children = [start_child(CHILD, folder, f"s{n}", 5) for n in range(4)]
        for child in children:
            child.communicate()
        assert [child.returncode for child in children] == [0] * 4
        with closing(open_log(folder, clock=FakeClock(), create=False)) as log:
            assert verify(log).sound
            assert log.head().position == 4 * 6


class TestPostgresLog(EventLogContract):
    """The contract on a log in PostgreSQL."""

    @pytest.fixture
    def folder(self, folder, postgres_url):
        put_log_in_postgres(folder, postgres_url)
        return folder

    @pytest.fixture
    def write_lock(self, log, postgres_url):
        @contextmanager
        def held():
            with connect(postgres_url) as holder:
                holder.execute("BEGIN")
                holder.execute("SELECT 1 FROM mnemolog.head WHERE log = %s FOR UPDATE", (log.engine.log,))
                yield
                holder.execute("ROLLBACK")

        return held


class TestSqliteLog(EventLogContract):
    """The contract on a file, and what only a file can promise."""

    @pytest.fixture
    def write_lock(self, folder):
        @contextmanager
        def held():
            with closing(dbapi2.connect(folder / LOG_FILE, isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                yield

        return held

    @pytest.mark.parametrize("step", range(6))
    def test_a_log_that_appears_while_its_folder_is_looked_at_is_opened(self, tmp_path, monkeypatch, step):
        """Another process creates it, and writes, after any step of the look."""
        folder, steps = tmp_path / "new", []
        folder.mkdir()

        def slow(look):
            def looking(path, *args, **options):
                found = look(path, *args, **options)
                seen = list(found) if look.__name__ == "iterdir" else found
                if path in (folder, folder / LOG_FILE):
                    steps.append(look.__name__)
                    if len(steps) == step + 1:
                        with MemoryStore.open(folder, model=None, clock=FakeClock()) as store:
                            store.session("a").record("user", "Lisbon", key="1")
                return iter(seen) if look.__name__ == "iterdir" else seen

            return looking

        for look in (Path.exists, Path.stat, Path.iterdir):
            monkeypatch.setattr(Path, look.__name__, slow(look))
        with closing(open_log(folder, clock=FakeClock(), create=True)) as log:
            assert log.head().position == 2

    def test_every_connection_has_the_settings_that_were_asked_for(self, folder):
        """Settings are of a connection, not of a file: each of several open at once is asked."""
        with (
            closing(open_log(folder, clock=FakeClock(), create=True, synchronous="NORMAL", busy_timeout_s=7)) as log,
            ExitStack() as open_now,
        ):
            connections = [open_now.enter_context(log.engine.pool.connect()) for _ in range(8)]
            found = [settings_of(connection.connection.driver_connection) for connection in connections]
        assert [(item["synchronous"], item["busy_timeout"]) for item in found] == 8 * [(1, 7_000)]

    def test_every_caller_of_a_group_gets_log_busy(self, folder):
        """Nobody in the group waits for ever, nobody is told that it was written."""
        with closing(open_log(folder, clock=FakeClock(), create=True, busy_timeout_s=0.2)) as log:
            log.appends.transact(start("s"))
            with closing(dbapi2.connect(folder / LOG_FILE, isolation_level=None, check_same_thread=False)) as other:
                outcomes = []
                other.execute("PRAGMA busy_timeout=60000")

                def fill_and_lock():
                    queue_up(log, [append("s", str(n)) for n in range(3)], outcomes)
                    outcomes.append(in_thread(lambda: other.execute("BEGIN IMMEDIATE")))

                with suppress(errors.LogBusy):  # The lock may be taken before the one who called us is done.
                    log.appends.transact(once(fill_and_lock))
                outcomes.pop().result()  # The lock is taken: before the group, or after it.
                results = []
                for outcome in outcomes:
                    try:
                        results.append(outcome.result())
                    except errors.LogBusy:
                        results.append("busy")
                other.execute("ROLLBACK")
            written = [result[0] for result in results if result != "busy"]
            assert [event.position for event in read_all(log, after=1)] == written
            assert log.appends.transact(append("s", "free")) == [len(written) + 2]

    def test_a_missing_log_is_not_created_unless_asked(self, folder):
        """Looking for a store leaves nothing behind."""
        with pytest.raises(errors.StoreNotFound):
            open_log(folder, clock=FakeClock(), create=False)
        assert not folder.exists()


def recorder_of(log):
    """The eventsourcing library's recorder, over all streams of the log."""
    return LogApplicationRecorder(log, id_type="text")


INSERT = "INTO events (position, stream, version, topic, state, key, recorded_at, digest) "
FORGED = "VALUES ({}, '{}', {}, 'turn.recorded.v1', x'80', {}, 0, zeroblob(32))"

REWRITING = {
    "update a state": "UPDATE events SET state = x'80' WHERE position = 2",
    "update nothing but the time": "UPDATE events SET recorded_at = recorded_at + 1",
    "update a digest": "UPDATE events SET digest = zeroblob(32) WHERE position = 3",
    "update or replace": "UPDATE OR REPLACE events SET version = 2 WHERE version = 3",
    "update or ignore": "UPDATE OR IGNORE events SET version = 9 WHERE version = 3",
    "update from": "UPDATE events SET key = o.key FROM events o WHERE o.position = events.position + 1",
    "delete the tail": "DELETE FROM events WHERE position = 4",
    "delete one": "DELETE FROM events WHERE position = 2",
    "delete all": "DELETE FROM events",
    "replace by position": "INSERT OR REPLACE " + INSERT + FORGED.format(2, "session/x", 1, "NULL"),
    "replace by version": "INSERT OR REPLACE " + INSERT + FORGED.format(9, "session/s", 2, "NULL"),
    "replace by key": "INSERT OR REPLACE " + INSERT + FORGED.format(9, "session/s", 9, "'k1'"),
    "replace": "REPLACE " + INSERT + FORGED.format(2, "session/s", 2, "NULL"),
    "upsert": "INSERT "
    + INSERT
    + FORGED.format(2, "session/s", 2, "NULL")
    + " ON CONFLICT (position) DO UPDATE SET state = excluded.state",
    "upsert by key": "INSERT "
    + INSERT
    + FORGED.format(9, "session/s", 9, "'k1'")
    + " ON CONFLICT (stream, key) WHERE key IS NOT NULL DO UPDATE SET state = excluded.state",
    "update the identity": "UPDATE log SET log_id = 'other'",
    "delete the identity": "DELETE FROM log",
    "replace the identity": "INSERT OR REPLACE INTO log (id, log_id, format, created_at) VALUES (1, 'other', 1, 0)",
}
"""Refused by the file itself, whatever connection asks."""

UNLOCKING = {
    "drop a trigger": "DROP TRIGGER events_refuse_update",
    "drop the events": "DROP TABLE events",
    "drop the identity": "DROP TABLE log",
    "drop an index": "DROP INDEX events_key",
    "rename the events": "ALTER TABLE events RENAME TO old_events",
    "rename a column": "ALTER TABLE events RENAME COLUMN state TO condition",
    "add a column": "ALTER TABLE events ADD COLUMN more TEXT",
    "drop a column": "ALTER TABLE events DROP COLUMN recorded_at",
    "writable schema": "PRAGMA writable_schema=ON",
    "writable schema as a call": "PRAGMA writable_schema(1)",
    "recursive triggers": "PRAGMA recursive_triggers=OFF",
    "unsynced writes": "PRAGMA synchronous=OFF",
    "another journal": "PRAGMA journal_mode=DELETE",
    "another schema version": "PRAGMA schema_version=1",
    "another program's file": "PRAGMA application_id=1",
    "ignored checks": "PRAGMA ignore_check_constraints=ON",
    "another user version": "PRAGMA user_version=5",
    "edit the schema": "UPDATE sqlite_master SET sql = '' WHERE name = 'events_refuse_update'",
    "delete from the schema": "DELETE FROM sqlite_master WHERE type = 'trigger'",
    "take numbers back": "UPDATE sqlite_sequence SET seq = 1",
    "forget numbers": "DELETE FROM sqlite_sequence",
    "invent numbers": "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', 1000)",
    "swallow events": "CREATE TRIGGER swallow BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END",
    "swallow events for this connection": (
        "CREATE TEMP TRIGGER swallow BEFORE INSERT ON main.events BEGIN SELECT RAISE(IGNORE); END"
    ),
    "hide the events": "CREATE TEMP VIEW events AS SELECT * FROM main.events WHERE position < 2",
    "shadow the events": "CREATE TEMP TABLE events (position INTEGER)",
}
"""Refused by our connections: what would take the triggers away, or around them."""


@pytest.fixture
def four(log):
    """A log of four events."""
    log.appends.transact(start("s"))
    log.appends.transact(append("s", "one", "two", "three", keys=["k1", "k2", None]))
    return log


@pytest.fixture
def unchanged(four):
    """Checks at the end that the events are what they were, that the audit is sound, that appending works."""
    before, head = read_all(four), four.head()
    yield
    assert read_all(four) == before
    assert four.head() == head
    assert verify(four).findings == ()
    assert four.appends.transact(append("s", "after")) == [5]
    assert verify(four).sound


def test_our_connections_refuse_what_changes_history_or_its_guard(four, unchanged):
    """Whatever SQL reaches a connection of the library, through the driver's own cursor too."""
    for name, statement in (REWRITING | UNLOCKING).items():
        with four.engine.pool.connect() as connection:
            driver = connection.connection.driver_connection
            before = settings_of(driver)
            with pytest.raises(Exception, match=r"append-only|not authorized|may not be modified") as caught:
                connection.exec_driver_sql(statement)
            if "may not be modified" not in str(caught.value):
                assert isinstance(sqlite.map_error(caught.value, four.path), errors.AppendOnly), name
            assert settings_of(driver) == before, name
            connection.rollback()
            if name in REWRITING:
                with pytest.raises(dbapi2.DatabaseError, match=r"append-only|not authorized"):
                    driver.executescript(statement)


def test_the_file_refuses_a_foreign_connection(four, unchanged):
    """UPDATE and DELETE always; what replaces a row, once the connection asks for recursive triggers."""
    for name, statement in REWRITING.items():
        with closing(dbapi2.connect(four.path, isolation_level=None)) as foreign:
            if "replace" not in name or name == "update or replace":
                with pytest.raises(dbapi2.IntegrityError, match="append-only"):
                    foreign.execute(statement)
            foreign.execute("PRAGMA recursive_triggers=ON")
            with pytest.raises(dbapi2.IntegrityError, match="append-only"):
                foreign.execute(statement)


def test_an_event_put_in_by_hand_is_noticed(four):
    """An INSERT past the log is no change of history; it is not linked, so the audit names it."""
    with four.engine.pool.connect() as connection:
        connection.exec_driver_sql("INSERT " + INSERT + FORGED.format(5, "session/s", 5, "NULL"))
    found = verify(four)
    assert not found.sound
    assert {finding.position for finding in found.findings} == {5}


def test_an_event_put_in_by_hand_without_a_whole_digest_is_refused(four, unchanged):
    """The schema asks for 32 bytes."""
    with four.engine.pool.connect() as connection, pytest.raises(Exception, match="CHECK"):
        connection.exec_driver_sql(
            "INSERT " + INSERT + FORGED.format(5, "session/s", 5, "NULL").replace("zeroblob(32)", "zeroblob(31)")
        )


def test_a_log_that_lost_its_triggers_takes_no_more_events(four, folder, clock):
    """A file that anybody could change is not written to: opening it for an append says so."""

    four.close()
    with closing(dbapi2.connect(folder / LOG_FILE, isolation_level=None)) as foreign:
        foreign.execute("DROP TRIGGER events_refuse_delete")
    with closing(open_log(folder, clock=clock, create=False)) as again:
        with pytest.raises(errors.MnemologError, match="events_refuse_delete"):
            again.appends.transact(append("s", "no"))
        assert again.head().position == 4
        assert [finding.kind for finding in verify(again).findings] == ["unprotected"]


def test_our_connections_still_read_check_and_back_up(four, tmp_path, unchanged):
    """The guard is in nobody's way who reads."""
    with four.engine.pool.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        with closing(dbapi2.connect(tmp_path / "copy.db")) as copy:
            driver.backup(copy)
            assert copy.execute("SELECT count(*) FROM events").fetchone() == (4,)
