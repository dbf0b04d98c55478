"""What an event log promises, whatever it is made of, and what ours promises as a file."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
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
from mnemolog.domain.session import end, session_stream
from mnemolog.domain.stream_fold import nothing_known
from mnemolog.eventsourcing import LogApplicationRecorder
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.sqlite.log_file import LOG_FILE
from mnemolog.projections.health.verify import verify
from mnemolog.projections.history.states import evolve
from tests.children.forking import in_child
from tests.postgres import put_log_in_postgres
from tests.support import (
    FakeClock,
    append,
    append_as_one_group,
    in_thread,
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


FROM_THE_LOG = SimpleNamespace(known=nothing_known, is_inside=lambda _: True, is_outside=lambda _: False)
"""States that nobody keeps."""


def keyed(session, *turns):
    """Record turns as the store does: `(key, text)` pairs."""
    works = [
        partial(record_turn, session_id=session, turn=turn(text), states=FROM_THE_LOG, key=key) for key, text in turns
    ]
    return lambda tx: [work(tx) for work in works]


class EventLogContract:
    """What every event log promises. Subclass it and provide `log`, empty."""

    def test_an_empty_log_is_at_position_zero(self, log):
        """Before the first event there is a head: position 0, with a digest of its own."""
        assert log.head().position == 0
        assert len(log.head().digest_bytes) == 32
        assert log.digest_at(0) == log.head().digest_bytes
        assert read_all(log) == []

    def test_offsets_are_handed_out_in_append_order(self, log):
        """Positions rise by the order of appends, across streams; versions within a stream."""
        given = [log.appends.transact(start(name)) for name in ("a", "b")]
        for n in range(20):
            given += log.appends.transact(append("ab"[n % 2], *(f"{n}/{m}" for m in range(1 + n % 3))))
        events = read_all(log)
        assert given == sorted(set(given)) == [event.position for event in events]
        for name in ("a", "b"):
            versions = [event.version for event in events if event.stream == session_stream(name)]
            assert versions == list(range(1, len(versions) + 1))

    def test_events_are_read_at_positions_that_their_streams_lead_to(self, log):
        """Any number of positions, and the streams of any part of the log."""
        for name in ("a", "b"):
            log.appends.transact(start(name))
        for n in range(10):
            log.appends.transact(append("ab"[n % 2], str(n)))
        events = read_all(log)
        streams = [(event.position, event.stream) for event in events]
        assert log.streams(after=0, upto=log.head().position, limit=100) == streams
        assert log.streams(after=streams[1][0], upto=streams[6][0], limit=3) == streams[2:5]
        for count in range(len(events) + 1):
            assert log.read_at([position for position, _ in streams[:count]]) == events[:count]

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

    def test_an_append_is_read_as_soon_as_it_returns(self, log):
        """Acknowledged means visible to the very next read."""
        log.appends.transact(start("s"))
        for n in range(20):
            (position,) = log.appends.transact(append("s", str(n)))
            assert log.head().position == position
            assert texts_of(read_all(log, after=position - 1)) == [str(n)]

    def test_the_digest_at_a_position_never_changes(self, log):
        """What the head said once, the log says of that position for ever."""
        log.appends.transact(start("s"))
        heads = [log.head()]
        for n in range(10):
            log.appends.transact(append("s", str(n)))
            heads.append(log.head())
        assert len({head.digest for head in heads}) == len(heads)
        assert [log.digest_at(head.position) for head in heads] == [head.digest_bytes for head in heads]
        assert log.digest_at(heads[-1].position + 1) is None

    def test_a_refused_append_leaves_no_trace(self, log):
        """An error in the middle of a unit of work writes nothing: no event, no position, no key."""
        log.appends.transact(start("s"))
        before = log.head()

        def work(tx):
            append("s", "one", "two", keys=["k1", "k2"])(tx)
            raise RuntimeError("changed my mind")

        with pytest.raises(RuntimeError, match="changed my mind"):
            log.appends.transact(work)
        assert log.head() == before
        assert log.appends.transact(lambda tx: (tx.find("session/s", "k1"), tx.version("session/s"))) == (None, 1)
        assert log.appends.transact(append("s", "three", keys=["k1"])) == [before.position + 1]

    def test_an_event_that_cannot_be_stored_refuses_the_whole_append(self, log):
        """A lone surrogate in the second turn keeps the first out too."""
        log.appends.transact(start("s"))
        before = log.head()
        with pytest.raises(errors.InvalidInput):
            log.appends.transact(append("s", "fine", "\ud800"))
        assert log.head() == before

    def test_one_append_covers_several_streams_or_none(self, log):
        """Streams move together."""

        def across(tx):
            start("a")(tx)
            start("b")(tx)
            append("a", "in a")(tx)
            return append("b", "in b")(tx)

        assert log.appends.transact(across) == [4]
        before = log.head()

        def conflict_in_the_last(tx):
            append("a", "more in a")(tx)
            append("b", "more in b", expected=7)(tx)

        with pytest.raises(errors.WrongExpectedVersion):
            log.appends.transact(conflict_in_the_last)
        assert log.head() == before
        assert texts_of(read_all(log)) == ["in a", "in b"]

    @pytest.mark.parametrize("expected", [0, 1, 3, 100])
    def test_another_version_than_the_expected_one_is_refused(self, log, expected):
        """The stream is at version 2: nothing else will do, and the error says so."""
        log.appends.transact(start("s"))
        log.appends.transact(append("s", "one", expected=1))
        before = log.head()
        with pytest.raises(errors.WrongExpectedVersion) as caught:
            log.appends.transact(append("s", "two", expected=expected))
        assert (caught.value.stream, caught.value.expected, caught.value.actual) == ("session/s", expected, 2)
        assert log.head() == before

    def test_a_retry_with_the_same_key_adds_nothing(self, log):
        """Recording again under the key returns the turn that is there."""
        log.appends.transact(start("s"))
        (first,) = log.appends.transact(keyed("s", ("k", "once")))
        before = log.head()
        (again,) = log.appends.transact(keyed("s", ("k", "once")))
        assert (again.event.position, again.deduplicated, first.deduplicated) == (2, True, False)
        assert again.event == first.event
        assert log.head() == before

    def test_a_key_with_other_content_is_refused(self, log):
        """A key names one event for ever; the error says where it is."""
        log.appends.transact(start("s"))
        log.appends.transact(keyed("s", ("k", "once")))
        before = log.head()
        with pytest.raises(errors.DuplicateKey) as caught:
            log.appends.transact(keyed("s", ("new", "fine"), ("k", "twice")))
        assert (caught.value.key, caught.value.position) == ("k", 2)
        assert log.head() == before

    def test_a_key_may_name_one_event_in_each_stream(self, log):
        """Keys belong to a stream."""
        for name in ("a", "b"):
            log.appends.transact(start(name))
            log.appends.transact(keyed(name, ("k", f"in {name}")))
        assert texts_of(read_all(log)) == ["in a", "in b"]

    def test_a_key_twice_in_one_append_is_one_event(self, log):
        """Deduplication sees what the same call staged; other content refuses the call."""
        log.appends.transact(start("s"))
        one, two, three = log.appends.transact(keyed("s", ("k", "x"), ("k", "x"), ("l", "y")))
        assert (one.event.position, two.event.position, three.event.position) == (2, 2, 3)
        before = log.head()
        with pytest.raises(errors.DuplicateKey):
            log.appends.transact(keyed("s", ("m", "x"), ("m", "other")))
        assert log.head() == before

    def test_a_retry_partly_recorded_adds_what_is_missing(self, log):
        """A longer batch with a known beginning adds its end."""
        log.appends.transact(start("s"))
        log.appends.transact(keyed("s", ("1", "a"), ("2", "b")))
        recorded = log.appends.transact(keyed("s", ("1", "a"), ("2", "b"), ("3", "c")))
        assert [item.deduplicated for item in recorded] == [True, True, False]
        assert texts_of(read_all(log)) == ["a", "b", "c"]

    def test_a_retry_finds_its_turn_after_the_session_ended(self, log):
        """An acknowledgement that was lost is found again, although the session takes no more turns."""
        log.appends.transact(start("s"))
        log.appends.transact(keyed("s", ("k", "last words")))
        log.appends.transact(lambda tx: decide(tx, "s", FROM_THE_LOG, partial(end, "s", reason="ended")))
        (again,) = log.appends.transact(keyed("s", ("k", "last words")))
        assert again.deduplicated
        with pytest.raises(errors.SessionAlreadyEnded):
            log.appends.transact(keyed("s", ("l", "one more")))

    @pytest.mark.parametrize("batch_max", [1, 3, 7, 500])
    def test_events_are_read_in_batches(self, log, batch_max):
        """Batches are full but the last, in order, within the bounds asked for."""
        log.appends.transact(start("s"))
        log.appends.transact(append("s", *(str(n) for n in range(1, 21))))
        batches = list(log.read(after=1, upto=20, batch_max=batch_max))
        assert [event.position for batch in batches for event in batch] == list(range(2, 21))
        assert all(len(batch) == batch_max for batch in batches[:-1])
        assert 0 < len(batches[-1]) <= batch_max

    def test_a_stream_is_read_alone(self, log):
        """Reading a stream gives its events only, behind a version, up to a position."""
        for name in ("a", "b"):
            log.appends.transact(start(name))
        for n in range(10):
            log.appends.transact(append("ab"[n % 2], str(n)))
        batches = log.read_stream("session/b", upto=log.head().position, batch_max=2)
        read = [event for batch in batches for event in batch]
        assert [event.version for event in read] == [1, 2, 3, 4, 5, 6]
        assert texts_of(read) == ["1", "3", "5", "7", "9"]
        behind = [event for batch in log.read_stream("session/b", after=3, upto=8) for event in batch]
        assert texts_of(behind) == ["5"]
        assert list(log.read_stream("session/none", upto=100)) == []

    def test_long_streams_are_read_whole_and_from_their_end(self, log):
        """However many rows an engine fetches together."""
        stream = "eventsourcing.events/test/long"
        log.appends.transact(start("s"))
        log.appends.transact(append("s", *(str(n) for n in range(130))))
        log.appends.transact(lambda tx: [tx.append_stored(stream, "t", str(n).encode()) for n in range(130)])
        with log.engine.reading() as reads:
            assert [row[2] for row in reads.not_turns(stream, after=3)] == list(range(4, 131))
            assert [row[1] for row in reads.state_heads(stream)] == list(range(1, 131))
            between = [row[1] for row in reads.states_between(stream, stream, "t")]
            assert sorted(between) == list(range(1, 131))
            assert [row[2] for row in reads.turns_backward("session/s", after=1, upto=131)] == list(range(131, 1, -1))
            heads = reads.turn_heads_backward("session/s", after=5, upto=120)
            assert [row[1] for row in heads] == list(range(120, 5, -1))
            assert [row[0] for row in reads.first_states("t")] == [stream]
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
            tx.append(stream, SessionEnded(), expected=2)
            return tx.fold(stream, evolve)

        assert log.appends.transact(end_and_look).ended
        assert all(state.ended for state in both())

    def test_a_unit_of_work_sees_what_it_staged(self, log):
        """Version, state and keys under the lock include what is not committed yet."""

        def work(tx):
            start("s")(tx)
            append("s", "one", keys=["k"])(tx)
            return tx.version("session/s"), tx.find("session/s", "k").position, tx.fold("session/s", evolve).ended

        assert log.appends.transact(work) == (2, 2, False)

    def test_a_work_that_raises_undoes_only_itself_in_a_group(self, log):
        """Those before and after it in the same commit are written, and do not see it."""
        log.appends.transact(start("s"))

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

    def test_a_group_is_written_in_the_order_it_was_asked_for(self, log):
        """First come, first written: positions follow the queue."""
        log.appends.transact(start("s"))
        outcomes = append_as_one_group(log, [append("s", str(n)) for n in range(50)])
        assert [outcome.result() for outcome in outcomes] == [[2 + n] for n in range(50)]
        assert texts_of(read_all(log)) == [str(n) for n in range(50)]

    def test_the_same_key_twice_in_a_group_is_one_event(self, log):
        """Two threads that retry at once get the same turn."""
        log.appends.transact(start("s"))
        outcomes = append_as_one_group(log, [keyed("s", ("k", "once"))] * 4)
        assert {outcome.result()[0].event.position for outcome in outcomes} == {2}
        assert texts_of(read_all(log)) == ["once"]

    def test_one_of_those_who_expect_the_same_version_wins(self, log):
        """In a group as among processes: one winner, nothing of the others."""
        log.appends.transact(start("s"))
        won, lost = [], []
        for outcome in append_as_one_group(log, [append("s", str(n), expected=1) for n in range(8)]):
            try:
                won.append(outcome.result())
            except errors.WrongExpectedVersion as error:
                lost.append((error.expected, error.actual))
        assert (won, lost) == ([[2]], [(1, 2)] * 7)
        assert texts_of(read_all(log)) == ["0"]

    def test_many_threads_lose_nothing(self, log):
        """Every acknowledged append of every thread is there once, each thread's in its order."""
        log.appends.transact(start("s"))
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

    def test_close_finishes_what_is_queued(self, log):
        """What was accepted before `close()` is written, what comes after is refused."""
        log.appends.transact(start("s"))
        queued = []

        def fill_and_close():
            queue_up(log, [append("s", str(n)) for n in range(20)], queued)
            queued.append(in_thread(log.close))

        log.appends.transact(once(fill_and_close))
        closing = queued.pop()
        closing.result()
        assert [outcome.result() for outcome in queued] == [[2 + n] for n in range(20)]
        with pytest.raises(errors.StoreClosed):
            log.appends.transact(append("s", "too late"))

    def test_a_closed_log_refuses_everything(self, log):
        """Every call after `close()` says so, also a reading that was begun before."""
        log.appends.transact(start("s"))
        log.appends.transact(append("s", "one", "two"))
        reading = log.read(after=0, upto=3, batch_max=1)
        assert len(next(reading)) == 1
        log.close()
        log.close()
        for call in (
            log.head,
            log.last_given,
            log.size_bytes,
            log.missing_triggers,
            lambda: log.digest_at(1),
            lambda: log.appends.transact(append("s", "no")),
            lambda: log.fold("session/s", evolve),
            lambda: log.count(topic="turn.recorded.v1", after=0, upto=3),
            lambda: next(log.read(after=0, upto=3)),
            lambda: next(log.read_stream("session/s", upto=3)),
            lambda: next(reading),
        ):
            with pytest.raises(errors.StoreClosed):
                call()

    def test_what_was_appended_is_there_after_reopening(self, log, folder):
        """Another opening of the file reads the same events, the same head, the same identity."""
        log.appends.transact(start("s"))
        log.appends.transact(append("s", "one", "two", keys=["k", None]))
        log.close()
        again = open_log(folder, clock=FakeClock(), create=False)
        assert again.log_id == log.log_id
        assert texts_of(read_all(again)) == ["one", "two"]
        assert again.appends.transact(keyed("s", ("k", "one")))[0].deduplicated
        assert verify(again).sound
        again.close()

    def test_names_and_keys_have_no_nul(self, log):
        """PostgreSQL cannot store one in a text, so no log takes one: events can move between databases."""
        log.appends.transact(start("s"))
        for stream, topic, key in (("a\0", "t", "k"), ("a", "t\0", "k"), ("a", "t", "\0")):
            with pytest.raises(errors.InvalidInput, match="NUL"):
                log.appends.transact(lambda tx, row=(stream, topic, key): tx.append_stored(*row[:2], b"\0", key=row[2]))
        assert log.appends.transact(lambda tx: tx.append_stored("a", "t", b"\0", key="k")) == 2

    def test_a_fork_may_not_use_the_log_and_the_parent_may(self, log):
        """A child of fork() gets `StoreForked` from every call; the parent goes on as if nothing was."""
        log.appends.transact(start("s"))
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
            )
            answers = [attempt(call) for call in calls]
            log.close()  # Must not close what belongs to the parent.
            return "; ".join(answers)

        assert in_fork(child) == "; ".join(["forked True True"] * 4)
        assert log.appends.transact(append("s", "after")) == [3]
        assert verify(log).sound

    def test_a_fork_may_not_write_through_the_recorder(self, log):
        """The library's door is guarded like ours: its applications fork as well."""
        recorder_of(log).insert_events([StoredEvent("a", 1, "t", b"")])

        def child():
            try:
                recorder_of(log).insert_events([StoredEvent("a", 2, "t", b"")])
            except errors.StoreForked:
                return "forked"
            return "worked"

        assert in_fork(child) == "forked"
        assert log.head().position == 1

    def test_the_recorder_of_a_closed_log_refuses_everything(self, log):
        """The library's door closes with ours: a read after it does not open the file again."""
        recorder_of(log).insert_events([StoredEvent("a", 1, "t", b"")])
        log.close()
        for call in (
            lambda: recorder_of(log).insert_events([StoredEvent("a", 2, "t", b"")]),
            lambda: recorder_of(log).select_events("a"),
            lambda: recorder_of(log).select_notifications(1, 10),
            recorder_of(log).max_notification_id,
        ):
            with pytest.raises(errors.StoreClosed):
                call()

    def test_closing_the_log_ends_its_subscriptions(self, log):
        """A subscription that is read when the log closes ends, or says that it is closed; it reads no more."""
        log.appends.transact(start("s"))
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

    def test_a_subscription_receives_what_another_process_appends(self, log, folder):
        """Nobody notifies us across processes, yet every event arrives, in order."""
        log.appends.transact(start("s"))
        with recorder_of(log).subscribe(gt=0) as subscription:
            child = start_child(CHILD, folder, "s", 30)
            received = in_thread(lambda: [next(subscription) for _ in range(31)])
            assert [entry.id for entry in received.result()] == list(range(1, 32))
            output, _ = child.communicate()
        assert child.returncode == 0
        assert [int(line) for line in output.split()] == list(range(2, 32))

    def test_a_subscription_receives_what_this_process_appends(self, log):
        """Own appends wake the subscription; topics and the position asked for are kept."""
        log.appends.transact(start("s"))
        with recorder_of(log).subscribe(gt=1, topics=["turn.recorded.v1"]) as subscription:
            log.appends.transact(append("s", "one", "two"))
            log.appends.transact(lambda tx: tx.append("session/s", SessionEnded(), expected=3))
            log.appends.transact(append("s", "three"))
            received = in_thread(lambda: [next(subscription).id for _ in range(3)])
            assert received.result() == [2, 3, 5]

    def test_an_append_after_another_process_wrote_follows_it(self, log, folder):
        """What the writer remembers of the log is not trusted once somebody else wrote."""
        log.appends.transact(start("s"))
        log.appends.transact(keyed("s", ("k", "mine")))
        for n in range(3):
            child = start_child(CHILD, folder, "s", 2)
            child.communicate()
            assert child.returncode == 0
            assert log.appends.transact(append("s", f"parent {n}")) == [5 + 3 * n]
        other = open_log(folder, clock=FakeClock(), create=False)
        other.appends.transact(lambda tx: tx.append("session/s", SessionEnded(), expected=tx.version("session/s")))
        other.close()
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
        log = open_log(folder, clock=FakeClock(), create=False)
        assert verify(log).sound
        assert log.head().position == 4 * 6
        log.close()


class TestPostgresLog(EventLogContract):
    """The contract on a log in PostgreSQL."""

    @pytest.fixture
    def folder(self, folder, postgres_url):
        put_log_in_postgres(folder, postgres_url)
        return folder


class TestSqliteLog(EventLogContract):
    """The contract on a file, and what only a file can promise."""

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
        log = open_log(folder, clock=FakeClock(), create=True)
        assert log.head().position == 2
        log.close()

    @pytest.mark.parametrize(("synchronous", "value"), [("FULL", 2), ("NORMAL", 1)])
    def test_every_connection_has_our_settings(self, folder, synchronous, value):
        """Settings are of a connection, not of a file: each of several open at once is asked."""
        log = open_log(folder, clock=FakeClock(), create=True, synchronous=synchronous, busy_timeout_s=7)
        connections = [log.engine.pool.connect() for _ in range(8)]
        try:
            drivers = [connection.connection.driver_connection for connection in connections]
            found = [settings_of(driver) for driver in drivers]
        finally:
            for connection in connections:
                connection.close()
            log.close()
        assert found == 8 * [
            {
                "journal_mode": "wal",
                "synchronous": value,
                "busy_timeout": 7_000,
                "foreign_keys": 1,
                "recursive_triggers": 1,
                "secure_delete": 1,
                "mmap_size": 0,
                "trusted_schema": 0,
            }
        ]

    def test_the_default_is_the_safe_setting(self, log):
        """Who asks for nothing gets every commit synced."""
        with log.engine.pool.connect() as connection:
            assert settings_of(connection.connection.driver_connection)["synchronous"] == 2

    def test_a_lock_held_by_others_is_log_busy_and_nothing_is_written(self, folder):
        """The waiting time ends in our own error; when the lock is free, the next append works."""
        log = open_log(folder, clock=FakeClock(), create=True, busy_timeout_s=0.2)
        log.appends.transact(start("s"))
        other = dbapi2.connect(folder / LOG_FILE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        before = log.head()
        for _ in range(2):
            with pytest.raises(errors.LogBusy) as caught:
                log.appends.transact(append("s", "blocked"))
            assert caught.value.waited_s == 0.2
        assert log.head() == before, "reading goes on while another writes"
        other.execute("ROLLBACK")
        other.close()
        assert log.appends.transact(append("s", "free")) == [2]
        log.close()

    def test_every_caller_of_a_group_gets_log_busy(self, folder):
        """Nobody in the group waits for ever, nobody is told that it was written."""
        log = open_log(folder, clock=FakeClock(), create=True, busy_timeout_s=0.2)
        log.appends.transact(start("s"))
        other = dbapi2.connect(folder / LOG_FILE, isolation_level=None, check_same_thread=False)

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
        other.close()
        written = [result[0] for result in results if result != "busy"]
        assert [event.position for event in read_all(log, after=1)] == written
        assert log.appends.transact(append("s", "free")) == [len(written) + 2]
        log.close()

    def test_a_missing_log_is_not_created_unless_asked(self, folder):
        """Looking for a store leaves nothing behind."""
        with pytest.raises(errors.StoreNotFound):
            open_log(folder, clock=FakeClock(), create=False)
        assert not folder.exists()


def recorder_of(log):
    """The eventsourcing library's recorder, over all streams of the log."""
    return LogApplicationRecorder(log, id_type="text")


def in_fork(function):
    """What `function` returns in a forked child, or the error it raises, as text."""

    def child():
        try:
            return function()
        except BaseException as error:
            return repr(error)

    return in_child(child)
