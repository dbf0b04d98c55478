"""The whole store against a plain Python model: random histories through two handles, reopened and stripped.

The model copies everything on a checkpoint or branch and keeps what a session sees as a list of turns. After
each step the store says the same; at the end it does so for earlier positions, from zero and from snapshots.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mnemolog import MemoryStore, projector
from mnemolog.domain import errors
from mnemolog.domain.codec import state_digest
from mnemolog.domain.fold import Histories, fold_all
from mnemolog.projections import states
from tests.support import FakeClock, HashEncoder, decided_on, read_all

SECOND = 1_000_000
SESSIONS_MAX = 7
KEYS = st.sampled_from(["a", "b", "user/a"])
VALUES = st.sampled_from([None, False, 0, 1.5, "", "text", [], {"x": [None, 1]}])
WHICH = st.integers(0, 1_000)
EVERYTHING = 10_000


class Model:
    """A session as a naive program would keep it."""

    def __init__(self, name, started):
        self.name, self.started, self.ended = name, started, False
        self.lineage = [name]
        self.values, self.task, self.notes, self.checkpoints = {}, None, [], {}
        self.visible, self.ever = [], []

    def branched(self, name, started, *, at):
        new = copy.deepcopy(self)
        new.name, new.started, new.ended = name, started, False
        new.lineage = [*self.lineage, name]
        new.ever = [turn for turn in self.ever if turn[0] <= at]
        return new

    def memory(self):
        return copy.deepcopy((self.values, self.task, self.notes))


class WholeStore(RuleBasedStateMachine):
    model: HashEncoder | None = None
    """What the stores are opened with. With one, projectors follow the log and die with each handle."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, small in (("SNAPSHOT_EVERY", 3), ("SESSIONS_KEPT_MAX", 2), ("CHECKPOINTS_KEPT_MAX", 2)):
            self.patch.setattr(states, name, small)
        self.base = Path(tempfile.mkdtemp())
        self.clock = FakeClock(step=0)
        self.stores = []
        self.open()
        self.models: dict[str, Model] = {}
        self.past: list[dict[str, Model]] = [{}]
        self.events = []
        self.agent = None
        self.generation = self.made = 0
        self.touched = None

    def open(self):
        for store in self.stores:
            store.close()
        self.stores = [
            MemoryStore.open(self.base / "memory", model=self.model, clock=self.clock, synchronous="NORMAL")
            for _ in range(2)
        ]
        self.turn = 0

    @property
    def store(self):
        """One handle for a few calls, then the other: each goes on from what it knows, or learns what is new."""
        self.turn += 1
        return self.stores[self.turn // 7 % 2]

    def pick(self, which, *, among=None):
        names = sorted(self.models if among is None else among)
        self.touched = names[which % len(names)]
        return self.models[self.touched], self.store.session(self.touched)

    def now(self):
        return self.clock.now()

    def remember(self, *, behind=0):
        """Keep the model as of every new position but the last few, as the log does."""
        self.events += read_all(self.stores[0]._log, after=len(self.events))
        while len(self.past) <= len(self.events) - behind:
            self.past.append(copy.deepcopy(self.models))

    def new_name(self, prefix):
        self.made += 1
        return f"{prefix}{self.made}"

    def do(self, model, call):
        """Call, unless the session has ended, which refuses every change. Whether it was done."""
        if model.ended:
            head = self.stores[0].head()
            with pytest.raises(errors.SessionEnded):
                call()
            assert self.stores[0].head() == head
            return False
        call()
        return True

    # What a session does.

    @initialize()
    def first(self):
        self.start()

    @precondition(lambda self: len(self.models) < SESSIONS_MAX)
    @rule()
    def start(self):
        name = self.new_name("s")
        self.store.start_session(name, session_id=name)
        self.models[name] = Model(name, self.stores[0].head().position)
        self.remember()

    @rule(which=WHICH, count=st.integers(1, 3))
    def record(self, which, count):
        model, session = self.pick(which)
        for _ in range(count):
            text = self.new_name("word number")
            if self.do(model, lambda text=text: session.record("user", text)):
                turn = (self.stores[0].head().position, text)
                model.visible.append(turn)
                model.ever.append(turn)
                self.remember()

    @rule(which=WHICH, left_out=WHICH, new=st.integers(0, 2))
    def reconcile(self, which, left_out, new):
        model, session = self.pick(which)
        texts = [text for _, text in model.visible]
        if texts:
            del texts[left_out % len(texts)]
        added = [self.new_name("word number") for _ in range(new)]
        if model.ended and added:
            with pytest.raises(errors.SessionEnded):
                session.reconcile([{"role": "user", "text": text} for text in [*texts, *added]])
            return
        turns = session.reconcile([{"role": "user", "text": text} for text in [*texts, *added]])
        assert [turn.text for turn in turns] == added
        for turn in turns:
            model.visible.append((turn.position, turn.text))
            model.ever.append((turn.position, turn.text))
            self.remember(behind=turns[-1].position - turn.position)
        self.remember()

    @rule(which=WHICH, key=KEYS, value=VALUES, ttl=st.none() | st.sampled_from([0.5, 3, 10]))
    def set(self, which, key, value, ttl):
        model, session = self.pick(which)
        if self.do(model, lambda: session.set(key, value, ttl=ttl)):
            model.values[key] = (copy.deepcopy(value), None if ttl is None else self.now() + round(ttl * SECOND))
        self.remember()

    @rule(which=WHICH, key=KEYS)
    def delete(self, which, key):
        model, session = self.pick(which)
        there = key in self.there(model)
        found = []
        if self.do(model, lambda: found.append(session.delete(key))):
            assert found == [there]
            model.values.pop(key, None)
        self.remember()

    @rule(which=WHICH, what=st.sampled_from(["values", "notes"]))
    def clear(self, which, what):
        model, session = self.pick(which)
        if self.do(model, session.clear if what == "values" else session.clear_notes):
            getattr(model, what).clear()
        self.remember()

    @rule(which=WHICH, step=st.integers(0, 5), update=st.booleans())
    def task(self, which, step, update):
        model, session = self.pick(which)
        if update and model.task is None and not model.ended:
            with pytest.raises(errors.NoTask):
                session.update_task(step=step)
        elif update:
            if self.do(model, lambda: session.update_task(step=step)) and model.task[1] != step:
                model.task = [model.task[0], step, self.now()]
        elif self.do(model, lambda: session.set_task(f"task {step}", step=step)):
            model.task = [f"task {step}", step, self.now()]
        self.remember()

    @rule(which=WHICH)
    def note(self, which):
        model, session = self.pick(which)
        text = self.new_name("note ")
        if self.do(model, lambda: session.note(text)):
            model.notes.append((text, self.now()))
        self.remember()

    @rule(which=WHICH)
    def checkpoint(self, which):
        model, session = self.pick(which)
        name, made = self.new_name("c"), []
        if self.do(model, lambda: made.append(session.checkpoint(name))):
            assert made[0].position == self.stores[0].head().position
            model.checkpoints[name] = (made[0].position, model.memory())
        self.remember()

    @precondition(lambda self: any(model.checkpoints for model in self.models.values()))
    @rule(which=WHICH, what=WHICH, delete=st.sampled_from([False, False, False, True]))
    def restore(self, which, what, delete):
        model, session = self.pick(which, among=[name for name, found in self.models.items() if found.checkpoints])
        name = sorted(model.checkpoints)[what % len(model.checkpoints)]
        if delete:
            if self.do(model, lambda: session.delete_checkpoint(name)):
                del model.checkpoints[name]
        elif self.do(model, lambda: session.restore(name)):
            position, (model.values, model.task, model.notes) = copy.deepcopy(model.checkpoints[name])
            model.visible = [turn for turn in model.visible if turn[0] <= position]
        self.remember()

    @rule(which=WHICH, turns=st.integers(1, 4))
    def rewind(self, which, turns):
        model, session = self.pick(which)
        found = []
        if self.do(model, lambda: found.append(session.rewind(turns=turns))):
            assert found == [len(model.visible[-turns:])]
            del model.visible[-turns:]
        self.remember()

    @rule(which=WHICH)
    def end(self, which):
        model, session = self.pick(which)
        session.end()
        model.ended = True
        self.remember()

    @precondition(lambda self: len(self.models) < SESSIONS_MAX)
    @rule(which=WHICH, where=WHICH, at=st.sampled_from(["head", "position", "checkpoint"]))
    def branch(self, which, where, at):
        model, session = self.pick(which)
        name, head = self.new_name("b"), len(self.events)
        position = model.started + where % (head + 1 - model.started)
        if at == "checkpoint" and model.checkpoints:
            called = sorted(model.checkpoints)[where % len(model.checkpoints)]
            position = model.checkpoints[called][0]
            if position < model.started:
                with pytest.raises(errors.OutsideSession):
                    session.branch(name, at=called)
                return
            session.branch(name, at=called)
        elif at == "position":
            session.branch(name, at=position)
        else:
            position = head
            session.branch(name)
        self.models[name] = self.past[position][model.name].branched(name, head + 1, at=position)
        self.remember()

    # What the agent does.

    def switch(self, **asked):
        self.touched = self.store.switch(**asked).id
        return self.touched

    def switched(self, to):
        self.agent, self.generation = to, self.generation + 1
        self.remember()

    @rule(which=WHICH)
    def resume(self, which):
        name = sorted(self.models)[which % len(self.models)]
        was_ended = self.models[name].ended
        self.switch(to=name, reason="resume")
        self.models[name].ended = False
        assert len(read_all(self.stores[0]._log, after=len(self.events))) == 1 + was_ended
        self.switched(name)

    @precondition(lambda self: len(self.models) < SESSIONS_MAX)
    @rule(reason=st.sampled_from(["new", "reset", "branch", "compress"]))
    def switch_to_a_new_session(self, reason):
        name, head, old = self.new_name("s"), len(self.events), self.agent
        if old is None and reason != "new":
            with pytest.raises(errors.SwitchRefused):
                self.store.switch(name, reason=reason)
            return
        self.switch(to=name, reason=reason)
        if reason in ("branch", "compress"):
            self.models[name] = self.models[old].branched(name, head + 1, at=head)
        else:
            self.models[name] = Model(name, head + 1)
        if reason in ("reset", "compress") and not self.models[old].ended:
            self.remember(behind=2)
            self.models[old].ended = True
        self.switched(name)

    @rule(turns=st.integers(1, 3), reason=st.sampled_from(["compress", "rewind"]))
    def switch_in_place(self, turns, reason):
        asked = {"reason": reason} | ({"turns": turns} if reason == "rewind" else {})
        refused = errors.SwitchRefused if self.agent is None else errors.SessionEnded
        if self.agent is None or self.models[self.agent].ended:
            with pytest.raises(refused):
                self.store.switch(**asked)
            return
        assert self.switch(**asked) == self.agent
        if reason == "rewind":
            del self.models[self.agent].visible[-turns:]
        self.switched(self.agent)

    @precondition(lambda self: self.agent is not None and len(self.models) < SESSIONS_MAX)
    @rule(turns=st.integers(1, 3))
    def rewind_to_a_new_session(self, turns):
        name, head, old = self.new_name("r"), len(self.events), self.models[self.agent]
        hidden = old.visible[-turns:]
        last = max(event.position for event in self.events if event.stream == f"session/{old.name}")
        at = hidden[0][0] - 1 if hidden else last
        if at < old.started:
            with pytest.raises(errors.OutsideSession):
                self.store.switch(name, reason="rewind", turns=turns)
            return
        self.switch(to=name, reason="rewind", turns=turns)
        self.models[name] = self.past[at][old.name].branched(name, head + 1, at=at)
        self.switched(name)

    # What happens to the store.

    @rule(seconds=st.sampled_from([0.25, 1, 5, 3600, -1, -5, -3600, 3e8, -3e8]))
    def move_the_clock(self, seconds):
        self.clock.advance(seconds=seconds)

    @rule(strip=st.booleans())
    def open_again(self, strip):
        for store in self.stores:
            store.close()
        if strip:
            shutil.rmtree(self.base / "memory" / "projections", ignore_errors=True)
        self.open()

    @rule()
    def look_under_the_write_lock(self):
        histories, ever = Histories(), {}
        for event in self.events:
            histories.apply(event)
            for name, state in histories.sessions.items():
                ever.setdefault(name, []).append(state_digest(state))
        *known, now = decided_on(self.store, *ever)
        assert now == {name: digests[-1] for name, digests in ever.items()}
        # What a writer knows may be old, if the other handle wrote since; never what was at no time.
        assert all(digest in ever[name] for found in known for name, digest in found.items())

    # What must hold.

    def there(self, model, now=None):
        now = self.now() if now is None else now
        return {key: value for key, (value, ends) in model.values.items() if ends is None or now < ends}

    def compare(self, view, model, now=None):
        there = self.there(model, now)
        assert repr(view.all()) == repr({key: there[key] for key in sorted(there)})
        task = view.task()
        assert (None if task is None else [task.description, task.step, micros(task.changed_at)]) == model.task
        assert [(note.text, micros(note.added_at)) for note in view.notes(with_times=True)] == model.notes
        assert {found.name: found.position for found in view.checkpoints()} == {
            name: position for name, (position, _) in model.checkpoints.items()
        }
        assert view.lineage() == model.lineage

    def compare_turns(self, session, model):
        assert [(turn.position, turn.text) for turn in session.turns(limit=EVERYTHING)] == model.visible
        assert [turn.position for turn in session.turns(limit=EVERYTHING, hidden=True)] == [p for p, _ in model.ever]
        for hidden, expected in ((False, model.visible), (True, model.ever)):
            hits = session.recall("word", k=1_000, mode="text", hidden=hidden).hits
            assert sorted(hit.position for hit in hits) == [position for position, _ in expected]

    @invariant()
    def the_store_says_what_the_model_says(self):
        store = self.store
        for name, model in self.models.items():
            self.compare(store.session(name), model)
            assert store._sessions.state(name).ended == model.ended
        if self.touched is not None:
            self.compare_turns(store.session(self.touched), self.models[self.touched])
            self.touched = None
        current = store.current()
        assert (current.id if current else None) == self.agent
        if self.agent is not None:
            assert store._sessions.agent("agent").generation == self.generation

    def teardown(self):
        try:
            self.check_from_zero()
        finally:
            for store in self.stores:
                store.close()
            shutil.rmtree(self.base)
            self.patch.undo()

    def check_from_zero(self):
        if not self.events:
            return
        digests = {name: state_digest(state) for name, state in fold_all(self.events).items()}
        assert digests.keys() == self.models.keys()
        for _ in ("as it is", "from snapshots"):
            assert {name: state_digest(self.store._sessions.state(name)) for name in digests} == digests
            for position in range(1, len(self.events) + 1, 1 + len(self.events) // 6):
                for name, model in self.past[position].items():
                    then = self.store.session(name).at(position)
                    self.compare(then, model, self.events[position - 1].recorded_at)
                    assert then.ended == model.ended
                    assert [(turn.position, turn.text) for turn in then.turns(limit=EVERYTHING)] == model.visible
            self.open()
        for name, model in self.models.items():
            self.compare_turns(self.store.session(name), model)
        assert self.store.verify().sound


def micros(moment):
    return round(moment.timestamp() * SECOND)


WholeStore.TestCase.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWholeStore = WholeStore.TestCase


class WholeStoreWithProjectors(WholeStore):
    model = HashEncoder(dimension=16)

    def open(self):
        self.patch.setattr(projector, "START_DELAY_S", 0.0)
        super().open()


WholeStoreWithProjectors.TestCase.settings = settings(WholeStore.TestCase.settings, max_examples=6)
TestWholeStoreWithProjectors = WholeStoreWithProjectors.TestCase
