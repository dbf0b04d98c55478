"""What a session sees: its ancestors up to the branch point and itself, without what was rewound."""

import pytest

from mnemolog.domain import errors
from mnemolog.domain.events import TurnsRewound
from mnemolog.domain.session import Span, cut, rewind
from tests.session_states import sees


def back(log, name, to):
    return log.do(rewind, name, to=to, head=log.head_of(name))


def test_a_fresh_session_sees_only_itself(log):
    """Events of several sessions alternate in the log."""
    log.start("other")
    mine = [log.say("s"), log.say("other"), log.say("s")]
    assert log["s"].spans == (Span("s", 1),)
    assert log.turns_seen("s") == [mine[0], mine[2]]
    assert sees(log["s"], "s", mine[0])
    assert not sees(log["s"], "other", mine[1])
    assert log["s"].ancestors == ()


def test_a_rewind_with_nothing_behind_writes_nothing(log):
    """The head, a retry, and a session that has no turns."""
    assert back(log, "s", 1) == []
    one = log.say("s")
    assert back(log, "s", one) == []
    log.say("s")
    assert len(back(log, "s", one)) == 1
    assert back(log, "s", one) == []
    assert back(log, "s", log.head) == []
    assert len(back(log, "s", 1)) == 1
    assert back(log, "s", 1) == []
    assert log.turns_seen("s") == []


def test_a_rewind_to_where_the_session_sees_nothing_is_refused(log):
    """Before its beginning, not written yet, or hidden."""
    log.start("x")
    log.start("late")
    one, two = log.say("late"), log.say("late")
    back(log, "late", one)
    three = log.say("late")
    for to in (0, 1, 2, two, three + 1, 10**6):
        with pytest.raises(errors.OutsideSession) as caught:
            back(log, "late", to)
        assert (caught.value.position, caught.value.first, caught.value.last) == (to, 3, three)
    for to in (-1, True, 1.0, None, 2**63):
        with pytest.raises(errors.InvalidInput):
            back(log, "late", to)
    assert log.turns_seen("late") == [one, three]


def test_cutting_leaves_no_empty_and_no_open_span():
    """A span whose start is at the cut is gone."""
    pieces = (Span("a", 1, 5), Span("b", 5, 9), Span("b", 12))
    assert cut(pieces, upto=20) == (Span("a", 1, 5), Span("b", 5, 9), Span("b", 12, 20))
    assert cut(pieces, upto=7) == (Span("a", 1, 5), Span("b", 5, 7))
    assert cut(pieces, upto=5) == (Span("a", 1, 5),)
    assert cut(pieces, upto=1) == ()


def test_a_fold_passes_over_what_is_not_of_a_started_session(log):
    """Streams of agents, turns, a second start and events before the first."""
    before = log["s"]
    log.say("s")
    log.start("s")
    log.append("agent/assistant", TurnsRewound(to=1))
    log.append("session/never", TurnsRewound(to=1))
    assert log["s"] is before
    assert log.find("never") is None
