"""Working memory against a model of plain dicts and lists, in random histories of several sessions.

The model copies everything on a checkpoint or branch and keeps the visible turns as a list of positions.
At the end a fold of the whole log from zero gives the same bytes, and folds of its beginnings what the
model was then.
"""

import copy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from mnemolog.domain import errors, session
from mnemolog.domain.session import decode_state, encode_state, rewind, session_of
from mnemolog.domain.working_memory import (
    MISSING,
    add_note,
    all_values,
    checkpoints,
    clear_notes,
    clear_values,
    create_checkpoint,
    delete_checkpoint,
    delete_value,
    keys,
    notes,
    restore_checkpoint,
    set_task,
    set_value,
    update_task,
    value_at,
)
from tests.memory_log import MemoryLog
from tests.session_states import fold_all, sees, state_digest

SECOND = 1_000_000
SESSIONS_MAX = 6
KEYS = st.sampled_from(["a", "b", "user/a", "user/b", "ç"])
VALUES = st.sampled_from([None, False, 0, 1, 1.0, "", "text", [], [None, {"b": 1, "a": 2}], {"x": None}])
SMALL = st.integers(0, 9)


class Model:
    """A session as a naive program would keep it."""

    def __init__(self, name, started):
        self.name, self.started, self.ended = name, started, False
        self.ancestors = []
        self.values, self.task, self.notes = {}, None, []
        self.checkpoints = {}
        self.visible = []

    def there(self, now):
        return {key: value for key, (value, ends) in self.values.items() if ends is None or now < ends}


class WorkingMemory(RuleBasedStateMachine):
    sessions = Bundle("sessions")

    def __init__(self):
        super().__init__()
        self.log = MemoryLog()
        self.models: dict[str, Model] = {}
        self.past: list[dict[str, Model]] = [{}]
        self.names = 0

    def new_name(self):
        self.names += 1
        return f"n{self.names}"

    def do(self, decision, name, /, *args, **options):
        """Decide and append, unless the session has ended, which refuses every decision."""
        if self.models[name].ended:
            before = len(self.log.events)
            with pytest.raises(errors.SessionAlreadyEnded):
                self.log.do(decision, name, *args, **options)
            assert len(self.log.events) == before
            return None
        return self.log.do(decision, name, *args, **options)

    def remember(self):
        """Keep the model as of every position, as the log does."""
        while len(self.past) <= self.log.head:
            self.past.append(copy.deepcopy(self.models))

    @initialize(target=sessions)
    def first(self):
        return self.fresh()

    @precondition(lambda self: len(self.models) < SESSIONS_MAX)
    @rule(target=sessions)
    def fresh(self):
        name = f"s{len(self.models)}"
        self.models[name] = Model(name, self.log.start(name))
        self.remember()
        return name

    @precondition(lambda self: 0 < len(self.models) < SESSIONS_MAX)
    @rule(target=sessions, parent=sessions, data=st.data())
    def branch(self, parent, data):
        at = data.draw(st.integers(self.models[parent].started, self.log.head), label="at")
        name = f"s{len(self.models)}"
        model = copy.deepcopy(self.past[at][parent])
        model.ancestors.append(parent)
        model.name, model.ended = name, False
        model.started = self.log.start(name, parent=parent, at=at)
        self.models[name] = model
        self.remember()
        return name

    @rule(name=sessions, key=KEYS, value=VALUES, ttl=st.none() | st.sampled_from([0.5, 1, 3, 10]))
    def set_value(self, name, key, value, ttl):
        if self.do(set_value, name, key, value, now=self.log.now, ttl=ttl) is not None:
            ends = None if ttl is None else self.log.now + round(ttl * SECOND)
            self.models[name].values[key] = (copy.deepcopy(value), ends)
        self.remember()

    @rule(name=sessions, key=KEYS)
    def delete_value(self, name, key):
        was_there = key in self.models[name].values
        events = self.do(delete_value, name, key)
        if events is not None:
            assert bool(events) == was_there
            self.models[name].values.pop(key, None)
        self.remember()

    @rule(name=sessions)
    def clear_values(self, name):
        if self.do(clear_values, name) is not None:
            self.models[name].values = {}
        self.remember()

    @rule(seconds=st.sampled_from([0.25, 1, 5, 20, -2, -10]))
    def move_the_clock(self, seconds):
        self.log.now += round(seconds * SECOND)

    @rule(name=sessions, step=SMALL, more=SMALL)
    def set_task(self, name, step, more):
        if self.do(set_task, name, f"task {step}", step=step, total=step + more) is not None:
            self.models[name].task = [f"task {step}", step, step + more, None, "active", self.log.now]
        self.remember()

    @rule(name=sessions, percent=st.none() | st.integers(0, 100), status=st.sampled_from([None, "active", "done"]))
    def update_task(self, name, percent, status):
        model = self.models[name]
        if model.task is None and not model.ended:
            with pytest.raises(errors.NoTask):
                self.log.do(update_task, name, percent=percent, status=status)
            return
        if self.do(update_task, name, percent=percent, status=status):
            task = model.task
            task[3] = task[3] if percent is None else percent
            task[4] = task[4] if status is None else status
            task[5] = self.log.now
        self.remember()

    @rule(name=sessions, text=st.sampled_from(["x", "ação", "two\nlines"]))
    def add_note(self, name, text):
        if self.do(add_note, name, text) is not None:
            self.models[name].notes.append((text, self.log.now))
        self.remember()

    @rule(name=sessions)
    def clear_notes(self, name):
        if self.do(clear_notes, name) is not None:
            self.models[name].notes = []
        self.remember()

    @rule(name=sessions)
    def say(self, name):
        if not self.models[name].ended:
            self.models[name].visible.append(self.log.say(name))
        self.remember()

    @rule(name=sessions)
    def create_checkpoint(self, name):
        new, model = self.new_name(), self.models[name]
        if self.do(create_checkpoint, name, checkpoint_id=f"#{new}", name=new) is not None:
            model.checkpoints[new] = (self.log.head, copy.deepcopy((model.values, model.task, model.notes)))
        self.remember()

    @precondition(lambda self: any(model.checkpoints for model in self.models.values()))
    @rule(data=st.data(), delete=st.sampled_from([False, False, False, True]), by_id=st.booleans())
    def restore_or_delete_a_checkpoint(self, data, delete, by_id):
        name = data.draw(st.sampled_from([n for n, model in self.models.items() if model.checkpoints]), label="session")
        model = self.models[name]
        checkpoint = data.draw(st.sampled_from(sorted(model.checkpoints)), label="checkpoint")
        called = f"#{checkpoint}" if by_id else checkpoint
        position, memory = model.checkpoints[checkpoint]
        if delete:
            if self.do(delete_checkpoint, name, called) is not None:
                del model.checkpoints[checkpoint]
        elif (events := self.do(restore_checkpoint, name, called)) is not None:
            assert len(events) == 1
            model.values, model.task, model.notes = copy.deepcopy(memory)
            model.visible = [turn for turn in model.visible if turn <= position]
        self.remember()

    @rule(name=sessions, data=st.data())
    def rewind(self, name, data):
        model, head = self.models[name], self.log.head_of(name)
        to = data.draw(st.integers(0, self.log.head + 1), label="to")
        left = [turn for turn in model.visible if turn <= to]
        before = len(self.log.events)
        try:
            self.do(rewind, name, to=to, head=head)
        except errors.OutsideSession:
            # Never for a turn that is seen, and never without something to hide or to be missed.
            assert to not in model.visible
            assert len(self.log.events) == before
        else:
            if not model.ended:
                model.visible = left
        self.remember()

    @rule(name=sessions, end=st.booleans())
    def end_or_resume(self, name, end):
        if end:
            self.log.do(session.end, name, reason="done")
        else:
            self.log.do(session.resume, name)
        self.models[name].ended = end
        self.remember()

    @rule(name=sessions)
    def reload_a_snapshot(self, name):
        self.log.histories.sessions[name] = decode_state(encode_state(self.log[name]))

    @invariant()
    def the_memory_is_what_the_model_says(self):
        for model in self.models.values():
            compare(self.log[model.name], model, self.log.now, self.log.events)

    def teardown(self):
        folded = fold_all(self.log.events)
        assert {name: state_digest(state) for name, state in folded.items()} == {
            name: state_digest(state) for name, state in self.log.histories.sessions.items()
        }
        for upto in range(0, len(self.log.events), 1 + len(self.log.events) // 4):
            then = fold_all(self.log.events[:upto])
            assert set(then) == set(self.past[upto])
            for name, state in then.items():
                compare(state, self.past[upto][name], self.log.now, self.log.events[:upto])
                assert state_digest(self.log.histories.past(name, upto)) == state_digest(state)


def compare(state, model, now, events):
    """Check that a state says what the model says, in every way of reading."""
    there = model.there(now)
    assert decode_state(encode_state(state)) == state  # The totals of bytes as well, which decoding counts anew.
    assert (state.session, state.ended, list(state.ancestors)) == (model.name, model.ended, model.ancestors)
    assert repr(all_values(state, now)) == repr({key: sort_keys(there[key]) for key in sorted(there)})
    assert keys(state, now, pattern="user/*") == sorted(key for key in there if key.startswith("user/"))
    assert all((value_at(state, key, now) is MISSING) == (key not in there) for key in ("a", "b", "ç"))
    assert set(state.values) == set(model.values)
    task = state.task
    assert (
        task and [task.description, task.step, task.total, task.percent, task.status, task.changed_at]
    ) == model.task
    assert [(note.text, note.added_at) for note in notes(state)] == model.notes
    assert {found.name: found.position for found in checkpoints(state)} == {
        name: position for name, (position, _) in model.checkpoints.items()
    }
    turns = [event for event in events if event.event.topic == "turn.recorded.v1"]
    assert [t.position for t in turns if sees(state, session_of(t.stream), t.position)] == model.visible
    assert all(span.upto is not None and span.after < span.upto for span in state.spans[:-1])
    assert all(one.upto <= two.after for one, two in zip(state.spans, state.spans[1:], strict=False))


def sort_keys(value):
    """The value as JSON gives it back: objects have no order of their own, so theirs is that of the keys."""
    match value:
        case dict():
            return {key: sort_keys(value[key]) for key in sorted(value)}
        case list():
            return [sort_keys(item) for item in value]
        case _:
            return value


WorkingMemory.TestCase.settings = settings(
    max_examples=25, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWorkingMemory = WorkingMemory.TestCase
