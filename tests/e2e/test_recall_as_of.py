"""What is recalled as of an offset is what was recalled when the log ended there: random histories.

Whoever asks, after every step the answers are kept. At the end each is asked for again as of its offset, by the
store that was there all the time and by one that has nothing but the log.
"""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mnemolog import MemoryStore
from tests.support import FakeClock, HalfEncoder

SESSIONS_MAX = 5
WHICH = st.integers(0, 1_000)
WORDS = ("tea", "teas", "ferry", "dog", "moved", "the", "snake_case", "日本語", "lisbon!")
FILL = [f"word{n}" for n in range(30)]
TEXTS = st.lists(st.sampled_from([*WORDS, *FILL]), min_size=1, max_size=12).map(" ".join)
QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
EVERYTHING = 1_000


class Histories(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.base = Path(tempfile.mkdtemp())
        self.clock = FakeClock()
        self.encoders = [HalfEncoder(0, dimension=32), HalfEncoder(1, dimension=32)]
        self.store = self.open("memory")
        self.sessions, self.checkpoints, self.kept = [], [], []
        self.query = "tea"

    def open(self, name):
        first, second = self.encoders
        return MemoryStore.open(
            self.base / name,
            model=first,
            models=[second],
            clock=self.clock,
            synchronous="NORMAL",
            background=False,
        )

    def pick(self, which):
        return self.store.session(self.sessions[which % len(self.sessions)])

    @initialize()
    def first(self):
        self.start(0)

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(which=WHICH)
    def start(self, which):
        name = f"s{len(self.sessions)}"
        self.store.start_session(name, scope=("acme", "acme/a", "other")[which % 3])
        self.sessions.append(name)

    @rule(which=WHICH, texts=st.lists(TEXTS, min_size=1, max_size=10), speaker=st.sampled_from([None, "Ada", "Tea"]))
    def record(self, which, texts, speaker):
        for text in texts:
            self.pick(which).record("user", text, speaker=speaker)

    @rule(which=WHICH, turns=st.integers(1, 4))
    def rewind(self, which, turns):
        self.pick(which).rewind(turns=turns)

    @rule(which=WHICH)
    def checkpoint(self, which):
        session = self.pick(which)
        self.checkpoints.append((session.id, session.checkpoint(f"c{len(self.checkpoints)}").id))

    @precondition(lambda self: self.checkpoints)
    @rule(which=WHICH)
    def restore(self, which):
        name, checkpoint = self.checkpoints[which % len(self.checkpoints)]
        self.store.session(name).restore(checkpoint)

    @precondition(lambda self: len(self.sessions) < SESSIONS_MAX)
    @rule(which=WHICH)
    def branch(self, which):
        name = f"s{len(self.sessions)}"
        self.pick(which).branch(name)
        self.sessions.append(name)

    @rule(which=WHICH)
    def switch(self, which):
        self.store.switch(self.sessions[which % len(self.sessions)], reason="resume")

    @rule(which=st.integers(0, 1))
    def change_the_model(self, which):
        self.store.models.add(self.encoders[which])
        self.store.models.activate(self.encoders[which])

    @rule(query=QUERIES)
    def ask_something_else(self, query):
        self.query = query

    @rule(mode=st.sampled_from(["hybrid", "vector", "text"]), k=st.sampled_from([2, EVERYTHING]))
    def ask(self, mode, k):
        for asked in self.asked():
            options = {"k": k, "mode": mode, "context_turns": 2}
            answer = self.answer(self.store, asked, options)
            assert answer.vectors_cover in (None, answer.head)
            assert len({hit.position for hit in answer.hits}) == len(answer.hits)
            self.kept.append((self.query, asked, options, answer))

    def asked(self):
        yield from ({}, {"scope": "acme"}, {"speakers": ["Ada"]})
        for name in self.sessions:
            yield from ({"of": name}, {"of": name, "hidden": True}, {"session": name})

    def answer(self, store, asked, options, query=None):
        asked = dict(asked)
        face = store.session(asked.pop("of")) if "of" in asked else store
        return face.recall(self.query if query is None else query, **asked, **options)

    def check(self, store):
        for query, asked, options, then in self.kept:
            now = self.answer(store, asked, options | {"as_of": then.head}, query)
            assert now.as_of == then.head
            for field in ("hits", "head", "vectors_cover", "legs", "unavailable_legs", "model"):
                assert getattr(now, field) == getattr(then, field), (query, asked, options, then.head, field)

    def teardown(self):
        try:
            self.check(self.store)
            self.store.close()
            shutil.rmtree(self.base / "memory" / "projections", ignore_errors=True)
            self.store = self.open("memory")
            self.check(self.store)
        finally:
            self.store.close()
            shutil.rmtree(self.base)


QUICK = settings(max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck))
Histories.TestCase.settings = QUICK
TestHistories = Histories.TestCase
