"""Prefetched recalls without a store: who gets an answer, when, and what ends the waiting."""

import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from mnemolog.domain.errors import InvalidInput, StoreClosed
from mnemolog.domain.values import Position
from mnemolog.projections.recall import prefetch
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import (
    REMEMBERED_MAX,
    WAITING_MAX,
    Prefetcher,
    PrefetchReason,
    Request,
    StoreState,
)
from tests.interrupts import Interrupt, at_each_line
from tests.support import WAIT_S, in_thread, wait_until

ROOT = Path(__file__).parents[2]
SOURCES = {prefetch.__file__}


class Desk:
    """A prefetcher whose recalls answer when the test says so. A query beginning with `held` waits for it."""

    def __init__(self):
        self.prefetcher = Prefetcher(self.recall, lambda session: self.moment(session))
        self.take, self.discard, self.close = self.prefetcher.take, self.prefetcher.discard, self.prefetcher.close
        self.generations = Counter()
        self.head, self.model, self.answers_with = 10, None, None
        self.began, self.running, self.tickets, self.threads, self.errors = [], 0, [], set(), {}
        self.free = threading.Event()

    def moment(self, session):
        return StoreState(generation=self.generations[session], head=Position(self.head), model=self.model)

    def recall(self, request):
        self.running += 1
        self.began.append(request.query)
        self.threads.add(threading.current_thread())
        try:
            if request.query.startswith("held"):
                assert self.free.wait(WAIT_S)
            if request.query in self.errors:
                raise self.errors[request.query]
            return answer(request.query, model=self.answers_with)
        finally:
            self.running -= 1

    def submit(self, session="a", query="tea"):
        self.tickets.append(self.prefetcher.submit(Request(session=session, query=query)))
        return self.tickets[-1]

    def hold(self, session="busy"):
        """Occupy the thread until `let_go()`. Returns the ticket."""
        self.free.clear()
        query = f"held {len(self.began)}"
        ticket = self.submit(session, query)
        wait_until(lambda: query in self.began, what="the recall to begin")
        return ticket

    def let_go(self):
        """Let what is held answer, and return when the thread has nothing to do."""
        self.free.set()
        wait_until(lambda: self.idle, what="an idle thread")

    def start_taking(self, session):
        """Take in another thread, and return when it waits for the answer."""
        taking = in_thread(lambda: self.take(session, wait_s=WAIT_S))
        wait_until(lambda: self.waiters == 1, what="the thread that takes to wait")
        return taking

    def wait_for_its_end(self):
        """Return when the prefetcher's thread has ended."""
        [thread] = self.threads
        thread.join(WAIT_S)
        assert not thread.is_alive()

    @property
    def idle(self):
        return all(ticket.done for ticket in self.tickets) and not self.running

    @property
    def waiters(self):
        """How many threads wait for a ticket, or for the end of the running recall."""
        run = self.prefetcher._run
        endings = [ticket._ending for ticket in self.tickets] + ([] if run is None else [run])
        return sum(len(ending._condition._waiters) for ending in endings)


def answer(query, *, model=None):
    return Recall(
        query=query, hits=(), head=Position(10), vectors_cover=None, legs=(), unavailable_legs={}, model=model
    )


@pytest.fixture
def desk():
    desk = Desk()
    yield desk
    desk.free.set()
    assert desk.close(timeout_s=WAIT_S)


def what(taken):
    """The query that was answered, or why none was."""
    assert (taken.recall is None) == (taken.reason is not None)
    return taken.reason if taken.recall is None else taken.recall.query


def test_one_thread_answers_each_prefetch_once_with_its_ticket(desk):
    """The first prefetch starts it. The ticket's stamp holds the question and its time."""
    before = set(threading.enumerate())
    assert in_thread(Desk().close).result() is True
    assert set(threading.enumerate()) <= before
    desk.generations["a"], desk.head, desk.model = 3, 77, "m1"
    first, second = desk.submit("a", "tea"), desk.submit("b", "milk")
    assert (first.id, second.id) == (1, 2)
    assert first.stamp.asked == StoreState(generation=3, head=Position(77), model="m1")
    assert (first.stamp.session, first.stamp.query, first.stamp.number) == ("a", "tea", 1)
    assert first.wait(WAIT_S)
    assert second.wait(WAIT_S)
    assert set(threading.enumerate()) - before == desk.threads
    [thread] = desk.threads
    assert thread.daemon
    assert "answered" in repr(first)
    taken = desk.take("a")
    assert (what(taken), taken.ticket, taken.error) == ("tea", first, None)
    assert (first.done, first.reason) == (True, None)
    again = desk.take("a")
    assert (what(again), again.ticket) == (PrefetchReason.NONE_ASKED, None)


def test_submitting_waits_for_nothing_and_taking_no_longer_than_its_timeout(desk):
    """What is not ready can be taken later. Who waits gets the answer to the newest question of the session."""
    running, waiting = desk.hold("a"), desk.submit("b", "tea")
    assert [ticket.done for ticket in (running, waiting)] == [False, False]
    assert (what(desk.take("a", wait_s=0.01)), what(desk.take("b"))) == (PrefetchReason.NOT_READY,) * 2
    assert desk.take("b").ticket is waiting
    assert not waiting.wait(0)
    taking = desk.start_taking("a")
    newer = desk.submit("a", "milk")
    desk.let_go()
    taken = taking.result()
    assert (what(taken), taken.ticket, running.reason) == ("milk", newer, PrefetchReason.REPLACED)
    assert what(desk.take("b")) == "tea"


@pytest.mark.parametrize("when", ["before it ran", "while it ran", "after it ran"])
def test_an_answer_from_before_a_switch_is_never_returned(desk, when):
    """However late: not the new session, not the old one, not the old one when the agent is back in it."""
    if when == "before it ran":
        desk.hold()
        late = desk.submit("old", "tea")
    else:
        late = desk.hold("old")
        if when == "after it ran":
            desk.let_go()
    desk.generations.update(("old", "new"))
    new = desk.submit("new", "milk")
    desk.let_go()
    assert late.wait(WAIT_S)
    assert new.wait(WAIT_S)
    assert what(desk.take("new")) == "milk"
    assert what(desk.take("new")) == PrefetchReason.NONE_ASKED
    assert what(desk.take("old")) == PrefetchReason.SWITCHED
    assert late.reason == PrefetchReason.SWITCHED
    assert what(desk.take("old")) == PrefetchReason.NONE_ASKED
    desk.generations.update(("old", "new"))
    assert what(desk.take("old")) == PrefetchReason.NONE_ASKED


def test_taking_after_a_switch_does_not_wait(desk):
    """The recall is still running, its answer is void already, and what waits is not run at all."""
    desk.hold("a")
    waiting = desk.submit("b", "tea")
    desk.generations.update(("a", "b"))
    assert what(desk.take("a", wait_s=WAIT_S)) == PrefetchReason.SWITCHED
    assert what(desk.take("b", wait_s=WAIT_S)) == PrefetchReason.SWITCHED
    assert waiting.reason == PrefetchReason.SWITCHED
    desk.let_go()
    assert desk.began == ["held 0"]
    assert what(desk.take("a")) == PrefetchReason.NONE_ASKED


@pytest.mark.parametrize("how", ["discarded", "cancelled"])
@pytest.mark.parametrize("state", ["waiting", "running", "answered", "failed", "fetched"])
def test_a_prefetch_that_is_given_up_is_never_answered(desk, state, how):
    """One that waits does not run, and a late answer is dropped. One that was fetched stays so; others keep theirs."""
    assert desk.submit("other", "milk").wait(WAIT_S)
    desk.errors["fails"] = ValueError("no")
    if state == "waiting":
        desk.hold()
    ticket = desk.hold("a") if state == "running" else desk.submit("a", "fails" if state == "failed" else "tea")
    if state not in ("waiting", "running"):
        assert ticket.wait(WAIT_S)
    if state == "fetched":
        assert what(desk.take("a")) == "tea"
    ticket.cancel() if how == "cancelled" else desk.discard("a")
    assert ticket.wait(0)
    assert ticket.reason == {"failed": PrefetchReason.FAILED, "fetched": None}.get(state, PrefetchReason.CANCELLED)
    if how == "cancelled" and state != "fetched":
        assert what(desk.take("a", wait_s=WAIT_S)) == ticket.reason
    desk.let_go()
    assert what(desk.take("a", wait_s=WAIT_S)) == PrefetchReason.NONE_ASKED
    assert "tea" not in desk.began or state != "waiting"
    assert what(desk.take("other")) == "milk"
    desk.discard("never asked")


def test_a_prefetch_that_replaces_a_queued_one_keeps_its_place(desk):
    """The older is never run. One that replaces the running one goes to the end of the queue."""
    desk.hold("busy")
    older, other = desk.submit("a", "a1"), desk.submit("b", "b1")
    newer, again = desk.submit("a", "a2"), desk.submit("busy", "again")
    assert (older.done, older.reason) == (True, PrefetchReason.REPLACED)
    assert not any(ticket.done for ticket in (newer, other, again))
    desk.let_go()
    assert desk.began == ["held 0", "a2", "b1", "again"]
    assert what(desk.take("a")) == "a2"


def test_beyond_the_limit_of_queued_sessions_the_oldest_is_cancelled(desk):
    """Its ticket says so, and so does taking; all others are answered."""
    desk.hold()
    waiting = [desk.submit(f"s{n}", f"q{n}") for n in range(WAITING_MAX)]
    assert not any(ticket.done for ticket in waiting)
    fresh = desk.submit("s0", "q0 again")
    one_more = desk.submit("one more", "tea")
    assert [ticket.id for ticket in waiting if ticket.done] == [waiting[0].id, waiting[1].id]
    assert waiting[1].reason == PrefetchReason.REPLACED
    assert what(desk.take("s1")) == PrefetchReason.REPLACED
    desk.let_go()
    assert [what(desk.take(f"s{n}")) for n in range(2, WAITING_MAX)] == [f"q{n}" for n in range(2, WAITING_MAX)]
    assert (what(desk.take("s0")), what(desk.take("one more"))) == ("q0 again", "tea")
    assert (fresh.reason, one_more.reason) == (None, None)


def test_beyond_the_limit_of_unfetched_answers_the_oldest_is_dropped(desk):
    """The first goes first; its ticket says so."""
    first = desk.submit("first", "tea")
    for n in range(REMEMBERED_MAX):
        assert desk.submit(f"s{n}").wait(WAIT_S)
    assert first.reason == PrefetchReason.REPLACED
    assert what(desk.take("first")) == PrefetchReason.NONE_ASKED
    assert what(desk.take("s0")) == "tea"


def test_an_answer_of_another_model_is_dropped(desk):
    """Asked with, answered with and in use: of those that are known, all are one."""
    answers = [
        ("m1", "m1", "m1", "tea"),
        ("m1", None, "m1", "tea"),  # A text answer.
        (None, "m1", "m1", "tea"),  # The model was loaded by the prefetch itself.
        (None, "m1", None, "tea"),
        (None, None, None, "tea"),
        ("m1", "m1", "m2", PrefetchReason.OTHER_MODEL),
        ("m1", None, "m2", PrefetchReason.OTHER_MODEL),
        (None, "m1", "m2", PrefetchReason.OTHER_MODEL),
        ("m1", "m2", "m2", PrefetchReason.OTHER_MODEL),
        ("m1", "m2", None, PrefetchReason.OTHER_MODEL),
    ]
    for stamped, answered, now, expected in answers:
        desk.model, desk.answers_with = stamped, answered
        assert desk.submit("a", "tea").wait(WAIT_S)
        desk.model = now
        assert what(desk.take("a")) == expected, (stamped, answered, now)
        assert what(desk.take("a")) == PrefetchReason.NONE_ASKED


def test_the_caller_limits_how_far_behind_an_answer_may_be(desk):
    """Counted in log positions since it was asked for."""
    behind = PrefetchReason.BEHIND
    for recorded, max_behind, expected in [
        (0, 0, "tea"),
        (1, 0, behind),
        (3, 3, "tea"),
        (4, 3, behind),
        (1_000, None, "tea"),
    ]:
        assert desk.submit("a", "tea").wait(WAIT_S)
        desk.head += recorded
        assert what(desk.take("a", max_behind=max_behind)) == expected
        assert what(desk.take("a")) == PrefetchReason.NONE_ASKED


class Unspeakable(Exception):
    """An error that cannot even be printed."""

    def __str__(self):
        raise ValueError


def test_the_error_of_a_recall_is_returned_by_take(desk):
    """Even after a switch. Nothing is raised in the background, and the thread continues."""
    for error in (ValueError("no such thing"), SystemExit(3), Interrupt("stop"), Unspeakable()):
        desk.errors["fails"] = error
        ticket = desk.submit("a", "fails")
        assert ticket.wait(WAIT_S)
        desk.generations["a"] += 1
        taken = desk.take("a")
        assert (what(taken), taken.ticket) == (PrefetchReason.FAILED, ticket)
        assert type(error).__name__ in taken.error
        assert taken.error == ticket.error
        if isinstance(error, ValueError):
            assert "no such thing" in taken.error
        assert what(desk.take("a")) == PrefetchReason.NONE_ASKED
    assert desk.submit("a", "tea").wait(WAIT_S)
    assert what(desk.take("a")) == "tea"
    assert len(desk.threads) == 1


def test_a_question_that_is_refused_loses_no_answer(desk):
    """Invalid, or the moment cannot be read: the caller gets the error at once, and may still take the answer."""
    assert desk.submit("a", "tea").wait(WAIT_S)
    for wrong in ({"query": " "}, {"query": "\n"}, {"k": 0}, {"k": 1_001}, {"options": {"mode": "both"}}):
        with pytest.raises(InvalidInput):
            desk.prefetcher.submit(Request(**{"session": "a", "query": "tea", **wrong}))
    moment, desk.moment = desk.moment, lambda session: {}[session]
    with pytest.raises(KeyError):
        desk.submit("a", "milk")
    with pytest.raises(KeyError):
        desk.take("a")
    desk.moment = moment
    assert what(desk.take("a")) == "tea"


def test_closing_drops_queued_prefetches_and_waits_for_the_running_one(desk):
    """As long as it may. Nothing more is run, asked for or handed out; the thread ends behind the recall."""
    running, waiting = desk.hold("a"), desk.submit("b", "tea")
    assert desk.close(timeout_s=0.01) is False
    closing = in_thread(lambda: desk.close(timeout_s=WAIT_S))
    assert running.wait(WAIT_S)
    assert waiting.wait(WAIT_S)
    with pytest.raises(StoreClosed):
        desk.submit("c", "late")
    assert closing.running
    desk.free.set()
    assert closing.result() is True
    desk.wait_for_its_end()
    assert desk.began == ["held 0"]
    assert (running.reason, waiting.reason) == (PrefetchReason.CLOSED, PrefetchReason.CLOSED)
    assert [what(desk.take(session)) for session in "abc"] == [PrefetchReason.CLOSED] * 3
    assert desk.close() is True


@pytest.mark.parametrize("call", ["cancel", "discard", "replace", "close"])
def test_a_ticket_that_is_given_up_ends_the_waiting(desk, call):
    """Threads that wait for it return at once, although the recall still runs; `take` has no answer."""
    ticket = desk.hold("a")
    waiting, taking = in_thread(lambda: ticket.wait(WAIT_S)), in_thread(lambda: desk.take("a", wait_s=WAIT_S))
    wait_until(lambda: desk.waiters == 2, what="the threads that wait")
    {
        "cancel": ticket.cancel,
        "discard": lambda: desk.discard("a"),
        "replace": lambda: desk.submit("a", "milk"),
        "close": lambda: desk.close(timeout_s=0),
    }[call]()
    assert waiting.result(5) is True
    assert not desk.free.is_set()
    desk.free.set()
    given_up = {
        "cancel": PrefetchReason.CANCELLED,
        "discard": PrefetchReason.NONE_ASKED,
        "close": PrefetchReason.CLOSED,
    }
    assert what(taking.result(5)) == given_up.get(call, "milk")


def test_a_prefetch_that_begins_while_the_store_closes_is_refused(desk):
    """It would never run."""
    moment, threads = desk.moment, set(threading.enumerate())
    desk.moment = lambda session: (desk.close(), moment(session))[1]
    with pytest.raises(StoreClosed):
        desk.submit("a", "tea")
    assert set(threading.enumerate()) <= threads


def test_a_recall_that_closes_the_store_does_not_wait_for_itself():
    """`close` returns False at once: the recall is still running."""
    closed, done = [], threading.Event()

    def recall(request):
        closed.append(prefetcher.close(timeout_s=WAIT_S))
        done.set()
        return answer(request.query)

    prefetcher = Prefetcher(recall, lambda _: StoreState(generation=0, head=Position(1)))
    prefetcher.submit(Request(session="a", query="tea"))
    assert done.wait(WAIT_S)
    assert closed == [False]
    assert prefetcher.close(timeout_s=WAIT_S)


def test_eight_threads_never_get_the_answer_of_another_session(rng):
    """Twenty sessions of five agents: what is handed out carries its own session and a generation of that time."""
    sessions, agents = [f"s{n}" for n in range(20)], Counter()
    agent = {session: n % 5 for n, session in enumerate(sessions)}
    switching = threading.Lock()
    prefetcher = Prefetcher(
        lambda request: answer(request.query), lambda s: StoreState(generation=agents[agent[s]], head=Position(1))
    )
    seeds = [rng.random() for _ in range(8)]

    def hammer(seed):
        random = type(rng)(seed)
        handed_out, reasons = [], Counter()
        for n in range(1_500):
            session = random.choice(sessions)
            match random.choices(["submit", "take", "wait", "discard", "switch", "cancel"], [40, 30, 10, 5, 10, 5])[0]:
                case "submit":
                    ticket = prefetcher.submit(Request(session=session, query=f"{session}|{seed}|{n}"))
                case "cancel":
                    prefetcher.submit(Request(session=session, query=f"{session}|{seed}|{n}")).cancel()
                case "take" | "wait" as how:
                    before = agents[agent[session]]
                    taken = prefetcher.take(session, wait_s=0.001 if how == "wait" else 0)
                    after = agents[agent[session]]
                    reasons[what(taken) if taken.recall is None else "answered"] += 1
                    if taken.recall is not None:
                        stamp = taken.ticket.stamp
                        assert taken.recall.query == stamp.query
                        assert stamp.query.split("|")[0] == session == stamp.session
                        assert before <= stamp.asked.generation <= after
                        handed_out.append(taken.ticket.id)
                case "discard":
                    prefetcher.discard(session)
                case "switch":
                    with switching:
                        agents[agent[session]] += 1
                    if random.random() < 0.5:  # Otherwise it was another process: nobody tells us.
                        prefetcher.discard(session)
        assert ticket.wait(WAIT_S)
        return handed_out, reasons

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        results = [outcome.result() for outcome in [in_thread(lambda seed=seed: hammer(seed)) for seed in seeds]]
    finally:
        sys.setswitchinterval(interval)
    numbers = [number for handed_out, _ in results for number in handed_out]
    reasons = sum((reasons for _, reasons in results), Counter())
    assert len(numbers) == len(set(numbers)) > 0
    assert {"answered", PrefetchReason.SWITCHED, PrefetchReason.NONE_ASKED, PrefetchReason.CANCELLED} <= set(reasons)
    assert prefetcher.close(timeout_s=WAIT_S)


def still_works(desk):
    """Whatever happened to another call: asking, waiting, taking and closing do not hang."""
    desk.free.set()
    assert in_thread(lambda: desk.submit("later", "next").wait(WAIT_S)).result(5)
    assert what(in_thread(lambda: desk.take("later")).result(5)) == "next"
    assert in_thread(lambda: desk.close(timeout_s=WAIT_S)).result(5)


def take_after_waiting(desk):
    """Take what is held, and have it let go once we wait for it (or have gone)."""
    gone = threading.Event()

    def let_go():
        wait_until(lambda: desk.waiters > 0 or gone.is_set(), what="the main thread to wait")
        desk.free.set()

    helping = in_thread(let_go)
    try:
        return desk.take("a", wait_s=WAIT_S)
    finally:
        gone.set()
        helping.result()


CALLS = {
    "the first prefetch": (lambda desk: None, lambda desk: desk.submit("a", "tea")),
    "replacing one that runs": (lambda desk: desk.hold("a"), lambda desk: desk.submit("a", "tea")),
    "taking": (lambda desk: desk.submit("a", "tea").wait(WAIT_S), lambda desk: desk.take("a")),
    "taking after waiting": (lambda desk: desk.hold("a"), take_after_waiting),
    "cancelling": (lambda desk: desk.hold("a"), lambda desk: desk.tickets[-1].cancel()),
    "discarding": (lambda desk: desk.hold("a"), lambda desk: desk.discard("a")),
    "closing": (lambda desk: desk.submit("a", "tea").wait(WAIT_S), lambda desk: desk.close()),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupt_at_any_line_leaves_a_prefetcher_that_works(call):
    """Wherever Ctrl-C hits: the next call is served, none hangs, and nothing is handed out twice."""
    prepare, do = CALLS[call]
    for interrupted in at_each_line(SOURCES, more_than=3):
        desk = Desk()
        prepare(desk)
        interrupted(lambda desk=desk: do(desk))
        desk.free.set()
        if call == "closing":
            assert in_thread(lambda desk=desk: desk.close(timeout_s=WAIT_S)).result(5)
        else:
            take = partial(desk.take, "a", wait_s=0.01)
            assert (
                in_thread(take).result(5).recall is None or what(in_thread(take).result(5)) == PrefetchReason.NONE_ASKED
            )
            still_works(desk)


BLOCKED = """
import os, sys, threading
from mnemolog.domain.errors import StoreForked
from mnemolog.domain.values import Position
from mnemolog.projections.recall.prefetch import Prefetcher
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import StoreState, Request

began, free = threading.Event(), threading.Event()

def recall(request):
    began.set()
    free.wait()
    return Recall(query=request.query, hits=(), head=0, vectors_cover=None, legs=(), unavailable_legs={}, model=None)

prefetcher = Prefetcher(recall, lambda session: StoreState(generation=0, head=Position(0)))
ticket = prefetcher.submit(Request(session="a", query="tea"))
began.wait()
"""

FORK = """
locked, unlock = threading.Event(), threading.Event()

def hold_the_lock():
    with prefetcher._lock:
        locked.set()
        unlock.wait()

threading.Thread(target=hold_the_lock).start()
locked.wait()

def outcome(call):
    try:
        return call()
    except StoreForked as error:
        return f"forked {error.opened_in == os.getppid()} {error.used_in == os.getpid()}"

child = os.fork()
if child == 0:
    unlock.set()
    print(outcome(lambda: prefetcher.submit(Request(session="a", query="milk"))), flush=True)
    print(outcome(lambda: prefetcher.take("a", wait_s=60)), flush=True)
    print(ticket.wait(60), ticket.reason, flush=True)
    ticket.cancel()
    prefetcher.discard("a")
    print(prefetcher.close(timeout_s=60), flush=True)
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
unlock.set()
free.set()
print(prefetcher.take("a", wait_s=60).recall.query)
"""


def run(script, *options):
    command = [sys.executable, *options, "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)


def test_a_process_ends_quietly_while_a_recall_is_blocked():
    """No error, no message, and the exit status that the program gave itself."""
    ran = run(BLOCKED + "prefetcher.submit(Request(session='b', query='milk')); print('done'); sys.exit(3)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "done\n", "")


def test_a_fork_cannot_prefetch_and_does_not_hang():
    """Even if the lock was held during the fork. The parent is not affected."""
    ran = run(BLOCKED + FORK, "-W", "ignore::DeprecationWarning")
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["forked True True"] * 2 + ["True closed", "True", "5", "tea"]


INTERRUPTED = """
def busy(request):
    began.set()
    try:
        while True:
            pass
    finally:
        print("put in order", flush=True)

began.clear()
free.set()
prefetcher = Prefetcher(busy, lambda session: StoreState(generation=0, head=Position(0)))
prefetcher.submit(Request(session="a", query="tea"))
began.wait()
"""


def test_a_recall_in_python_is_interrupted_when_the_process_ends():
    """Its `finally` block runs, and nothing is printed."""
    ran = run(BLOCKED + INTERRUPTED)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "put in order\n", "")
