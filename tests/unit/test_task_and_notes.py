"""Task and scratchpad of a session, and what every decision about one refuses."""

import math
from functools import partial

import pytest

from mnemolog.domain import errors, session
from mnemolog.domain.events import SessionResumed
from mnemolog.domain.session import rewind
from mnemolog.domain.values import TASK_BYTES_MAX, MemoryLimits
from mnemolog.domain.working_memory import (
    add_note,
    clear_notes,
    clear_values,
    create_checkpoint,
    delete_checkpoint,
    delete_value,
    notes,
    restore_checkpoint,
    set_task,
    set_value,
    update_task,
)


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
