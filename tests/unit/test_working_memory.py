"""Working memory against a model of plain dicts and lists, in random histories of several sessions.

The model copies everything on a checkpoint or branch and keeps the visible turns as a list of positions. At the end
a fold of the whole log from zero gives the same bytes, and folds of its beginnings what the model was then. Values
of working memory: what may be stored, for how long, how much, and how it is read. Task and scratchpad of a session,
and what every decision about one refuses.
"""

import copy
import math
from datetime import timedelta
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from mnemolog.domain import errors, session
from mnemolog.domain.events import SessionResumed, ValueDeleted, ValuesCleared, ValueSet
from mnemolog.domain.session import decode_state, encode_state, rewind, session_of
from mnemolog.domain.values import TASK_BYTES_MAX, VALUE_BYTES_MAX, MemoryLimits
from mnemolog.domain.working_memory import (
    MISSING,
    add_note,
    all_values,
    checked_expiry,
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
from mnemolog.infra.log.event_codec import decode, encode
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


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


def put(log, key, value, **options):
    return log.do(set_value, "s", key, value, now=log.now, **options)


def get(log, key):
    return value_at(log["s"], key, log.now)


def test_a_stored_none_is_not_a_missing_value(log):
    """The difference survives the log: the event of None holds it."""
    put(log, "a", None)
    assert get(log, "a") is None
    assert get(log, "b") is MISSING
    assert keys(log["s"], log.now) == ["a"]
    assert decode("value.set.v1", encode(ValueSet(key="a", value=None)), position=1).value is None
    with pytest.raises(errors.UndecodableEvent):
        decode("value.set.v1", b"\x81\xa3key\xa1a", position=1)


@given(value=JSON)
def test_any_json_value_comes_back_as_it_was(value):
    """Integers stay integers, floats floats, and every kind of text is text."""
    log = MemoryLog()
    log.start("s")
    put(log, "a", value)
    found = get(log, "a")
    assert found == value
    assert repr(found) == repr(value) or isinstance(value, dict | list)


def test_a_stored_value_cannot_be_changed_in_place(log):
    """Neither who stored it nor who read it."""
    mine = {"list": [1]}
    events = set_value("s", log["s"], "a", mine, now=log.now)
    mine["list"].append(2)
    log.append("session/s", events[0])
    get(log, "a")["list"].append(3)
    assert get(log, "a") == {"list": [1]}


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [-math.inf], {1: 2}, {"a": {3}}, b"x", object(), 2**64, "\ud800", {"\ud800": 1}]
)
def test_what_is_no_json_is_refused(log, value):
    """NaN above all: it would be another value on the way back, or none."""
    with pytest.raises(errors.InvalidInput):
        put(log, "a", value)


def test_a_value_has_a_limit_in_bytes(log):
    """256 KiB of msgpack: at the limit it is stored, one byte more is refused."""
    put(log, "a", "x" * (VALUE_BYTES_MAX - 5))
    assert len(log["s"].values["a"].encoded) == VALUE_BYTES_MAX
    with pytest.raises(errors.LimitExceeded):
        put(log, "a", "x" * (VALUE_BYTES_MAX - 4))


@pytest.mark.parametrize("key", ["", " ", "a\nb", "a\x00b", "\ud800", "x" * 513, "é" * 257, "mnemolog.x", 7, None])
def test_what_is_no_key_is_refused_everywhere(log, key):
    """Setting, deleting and reading go through one check; the library's own keys are out of reach."""
    for call in (
        lambda: put(log, key, 1),
        lambda: log.do(delete_value, "s", key),
        lambda: value_at(log["s"], key, log.now),
    ):
        with pytest.raises(errors.InvalidInput) as caught:
            call()
        assert caught.value.field == "key"


@pytest.mark.parametrize("key", ["x" * 512, "user/ação ☕", "mnemolog", "Mnemolog.x"])
def test_other_keys_are_fine(log, key):
    """512 bytes, any printable text."""
    put(log, key, 1)
    assert get(log, key) == 1


@pytest.mark.parametrize(
    ("ttl", "micros"),
    [
        (1, SECOND),
        (0.5, SECOND // 2),
        (1.1, 1_100_000),
        (1e-9, 1),
        (timedelta(milliseconds=3), 3_000),
        (timedelta(days=365_000), 365_000 * 86_400 * SECOND),
    ],
)
def test_a_time_to_live_becomes_an_absolute_expiry(ttl, micros):
    """Seconds of either kind, or a timedelta; to the microsecond."""
    assert checked_expiry(ttl, now=1_000) == 1_000 + micros


@pytest.mark.parametrize(
    "ttl",
    [
        *(0, -1, 0.0, -0.0, -1e-9, True, False, math.nan, math.inf, -math.inf, 1e300, 3e11, "5", [5]),
        *(timedelta(0), timedelta(microseconds=-1), timedelta.max),
        pytest.param(10**5_000, id="huge"),
    ],
)
def test_other_times_to_live_are_refused(log, ttl):
    """Zero and bool are mistakes, and infinity is said by leaving it out."""
    with pytest.raises(errors.InvalidInput) as caught:
        put(log, "a", 1, ttl=ttl)
    assert caught.value.field == "ttl"


def test_a_value_is_there_until_its_expiry_and_not_at_it(log):
    """`now < expires_at`, for every way of reading."""
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    log.now += SECOND - 1
    assert (get(log, "a"), keys(log["s"], log.now), all_values(log["s"], log.now)) == (1, ["a", "b"], {"a": 1, "b": 2})
    log.now += 1
    assert (get(log, "a"), keys(log["s"], log.now), all_values(log["s"], log.now)) == (MISSING, ["b"], {"b": 2})


def test_a_pattern_chooses_keys(log):
    """A glob: case matters, `*` crosses slashes, sets in brackets work."""
    for key in ("user/name", "user/city", "User/name", "a[1]"):
        put(log, key, 1)
    assert keys(log["s"], log.now, pattern="user/*") == ["user/city", "user/name"]
    assert keys(log["s"], log.now, pattern="?ser/[n]ame") == ["User/name", "user/name"]
    assert keys(log["s"], log.now, pattern="a[[]1]") == ["a[1]"]
    with pytest.raises(errors.InvalidInput):
        keys(log["s"], log.now, pattern="")


def test_deleting_and_clearing_write_only_what_changes(log):
    """What is not there needs no event; an expired value is there to be deleted."""
    assert log.do(delete_value, "s", "a") == []
    assert log.do(clear_values, "s") == []
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    log.now += 2 * SECOND
    assert log.do(delete_value, "s", "a") == [ValueDeleted(key="a")]
    assert log.do(clear_values, "s") == [ValuesCleared()]
    assert (log["s"].values_bytes, len(log["s"].values)) == (0, 0)


def test_the_number_of_values_has_a_limit_and_nothing_is_dropped(log):
    """A key that is there already may be set again; a new one is refused."""
    limits = MemoryLimits(values_max=2)
    put(log, "a", 1, limits=limits)
    put(log, "b", 1, limits=limits)
    put(log, "a", 2, limits=limits)
    with pytest.raises(errors.MemoryFull) as caught:
        put(log, "c", 3, limits=limits)
    assert (caught.value.limit, caught.value.actual) == (2, 3)
    assert "nothing was written" in caught.value.hint
    assert all_values(log["s"], log.now) == {"a": 2, "b": 1}


def test_the_bytes_of_all_values_have_a_limit(log):
    """Keys count; a value that is replaced does not count twice."""
    limits = MemoryLimits(values_bytes_max=30)
    put(log, "key", "x" * 25, limits=limits)  # 3 bytes of key, 26 of value
    put(log, "key", "y" * 26, limits=limits)
    assert log["s"].values_bytes == 30
    with pytest.raises(errors.MemoryFull):
        put(log, "key", "x" * 27, limits=limits)
    with pytest.raises(errors.MemoryFull):
        put(log, "b", None, limits=limits)


def test_a_limit_lowered_later_lets_values_shrink(log):
    """Otherwise one could not get back below it by setting."""
    put(log, "a", "x" * 30)
    put(log, "a", "x" * 20, limits=MemoryLimits(values_bytes_max=10))
    assert get(log, "a") == "x" * 20


def test_expired_values_make_room_where_it_is_needed(log):
    """Only what has expired is deleted, only when there is no room, and by events."""
    limits = MemoryLimits(values_max=2)
    put(log, "a", 1, ttl=1)
    put(log, "b", 2)
    with pytest.raises(errors.MemoryFull):
        put(log, "c", 3, limits=limits)
    log.now += SECOND
    assert [event.topic for event in put(log, "b", 3, limits=limits)] == ["value.set.v1"]
    assert put(log, "c", 3, limits=limits) == [ValueDeleted(key="a"), ValueSet(key="c", value=3)]
    assert all_values(log["s"], log.now) == {"b": 3, "c": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("step", value) for value in (-1, True, 1.0, "1", 2**63)),
        *(("total", value) for value in (-1, False, math.nan)),
        *(("percent", value) for value in (-0.1, 100.1, math.nan, math.inf, True, "5")),
        pytest.param("percent", 10**400, id="percent-huge"),
        *(("status", value) for value in ("", "a\nb", 7, "x" * 257)),
    ],
)
def test_fields_of_a_task_are_checked_in_both_calls(log, field, value):
    """The error names the field."""
    with pytest.raises(errors.InvalidInput) as caught:
        log.do(set_task, "s", "Book", **{field: value})
    assert caught.value.field == field
    log.do(set_task, "s", "Book")
    with pytest.raises(errors.InvalidInput):
        log.do(update_task, "s", **{field: value})


def test_a_step_lies_within_the_total_also_after_merging(log):
    """Either order of telling them."""
    with pytest.raises(errors.InvalidInput):
        log.do(set_task, "s", "Book", step=6, total=5)
    log.do(set_task, "s", "Book", step=5, total=5)
    with pytest.raises(errors.InvalidInput):
        log.do(update_task, "s", step=6)
    with pytest.raises(errors.InvalidInput):
        log.do(update_task, "s", total=4)
    log.do(update_task, "s", step=6, total=6)


@pytest.mark.parametrize("description", ["", " \n", "a\x00", "\ud800", "x" * (TASK_BYTES_MAX + 1), None])
def test_a_description_is_text_within_its_limit(log, description):
    """Several lines are fine, nothing is not."""
    log.do(set_task, "s", "two\nlines" + "x" * (TASK_BYTES_MAX - 9))
    with pytest.raises(errors.InvalidInput):
        log.do(set_task, "s", description)


def test_minus_zero_percent_is_zero(log):
    """So that equal states have equal bytes."""
    log.do(set_task, "s", "Book", percent=-0.0)
    assert math.copysign(1, log["s"].task.percent) == 1


def test_the_scratchpad_has_limits_and_drops_nothing(log):
    """In number, in bytes a note and in bytes altogether."""
    limits = MemoryLimits(notes_max=2, note_bytes_max=5, notes_bytes_max=8)
    log.do(add_note, "s", "é" * 2, limits=limits)
    with pytest.raises(errors.LimitExceeded):
        log.do(add_note, "s", "é" * 3, limits=limits)
    with pytest.raises(errors.MemoryFull):
        log.do(add_note, "s", "12345", limits=limits)
    log.do(add_note, "s", "1234", limits=limits)
    with pytest.raises(errors.MemoryFull) as caught:
        log.do(add_note, "s", "x", limits=limits)
    assert caught.value.limit == 2
    assert [note.text for note in notes(log["s"])] == ["éé", "1234"]


@pytest.mark.parametrize("text", ["", "\t", "a\x00", "\ud800", 5])
def test_a_note_is_text(log, text):
    """An empty note says nothing."""
    with pytest.raises(errors.InvalidInput):
        log.do(add_note, "s", text)


DECISIONS = {
    set_task: ("Book",),
    update_task: (),
    add_note: ("x",),
    clear_notes: (),
    partial(set_value, now=1): ("a", 1),
    delete_value: ("a",),
    clear_values: (),
    partial(create_checkpoint, checkpoint_id="i", name="n"): (),
    restore_checkpoint: ("c",),
    delete_checkpoint: ("c",),
    partial(rewind, to=1, head=1): (),
}


@pytest.mark.parametrize("decide", DECISIONS, ids=lambda decide: getattr(decide, "func", decide).__name__)
def test_unknown_and_ended_sessions_are_refused(log, decide):
    """Every decision but to end and to resume, even where nothing would change. A resumed session takes them."""
    log.do(set_task, "s", "Book")
    log.do(create_checkpoint, "s", checkpoint_id="c", name="c")
    with pytest.raises(errors.UnknownSession):
        decide("s", None, *DECISIONS[decide])
    log.do(session.end, "s", reason="done")
    with pytest.raises(errors.SessionAlreadyEnded):
        decide("s", log["s"], *DECISIONS[decide])
    log.do(session.resume, "s")
    decide("s", log["s"], *DECISIONS[decide])


def test_an_ended_session_can_be_resumed_and_ended_again(log):
    """Each of them once; whoever repeats it changes nothing."""
    assert log.do(session.resume, "s") == []
    log.do(session.end, "s", reason="done")
    assert log.do(session.end, "s", reason="again") == []
    assert log["s"].ended
    assert log.do(session.resume, "s", reason="back") == [SessionResumed(reason="back")]
    assert not log["s"].ended
    log.do(session.end, "s", reason="done")
    assert log["s"].ended
    with pytest.raises(errors.UnknownSession):
        log.do(session.resume, "nobody")
    with pytest.raises(errors.UnknownSession):
        log.do(session.end, "nobody", reason="done")
