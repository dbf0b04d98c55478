"""Every case of the table of switches, and every refusal: nothing is written then."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog.domain import errors, session
from mnemolog.domain.events import (
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SessionSwitched,
    TurnsRewound,
)
from mnemolog.domain.switching import (
    SWITCH_REASONS,
    SwitchReason,
    SwitchRequest,
    agent_of,
    agent_stream,
    evolve_agent,
    left_by,
    parse_switch_reason,
    switch,
)
from tests.memory_log import MemoryLog

NEW, RESET, RESUME, BRANCH, COMPRESS, REWIND = SwitchReason
CURRENT = "<current>"


class AgentLog(MemoryLog):
    """A log of one agent that can switch."""

    def agent(self):
        state = None
        for recorded in self.events:
            if recorded.stream == "agent/assistant":
                state = evolve_agent(state, recorded)
        return state

    def switch(self, reason, to, *, from_=CURRENT, **fields):
        """Switch as the API will, and return what was appended as (stream, event)."""
        agent = self.agent()
        left = left_by(agent, reason=reason, to=to) if from_ == CURRENT else from_
        asked = SwitchRequest(agent="assistant", reason=reason, from_=left, to=to, **fields)
        decided = switch(
            asked,
            agent=agent,
            old=None if left is None else self.find(left),
            new=self.find(to),
            head=self.head,
            old_head=self.head_of(left) if left else 0,
        )
        for stream, event in decided:
            self.append(stream, event)
        return [(stream, event) for stream, event in decided]


def switched(from_, to, reason):
    return ("agent/assistant", SessionSwitched(from_=from_, to=to, reason=reason))


def started(name, *, reason, parent=None, at=None, scope=""):
    return SessionStarted(title=name, agent="assistant", scope=scope, reason=reason, parent=parent, branched_at=at)


@pytest.fixture
def log():
    """An agent in session `s`, which holds two turns at 3 and 4."""
    log = AgentLog()
    log.switch(NEW, "s", title="trip", scope="acme/alice")
    log.say("s")
    log.say("s")
    return log


def test_the_first_switch_of_an_agent_comes_from_nowhere():
    """No session is left; the new one has no title."""
    log = AgentLog()
    assert log.agent() is None
    assert log.switch(NEW, "s") == [("session/s", started("", reason="new")), switched(None, "s", "new")]
    assert (log.agent().current, log.agent().generation) == ("s", 1)


def test_new_starts_a_session_and_leaves_the_old_as_it_is(log):
    """Nothing is inherited but name and scope, where they are not given; and no name from another scope."""
    assert log.switch(NEW, "t", title="other") == [
        ("session/t", started("other", reason="new", scope="acme/alice")),
        switched("s", "t", "new"),
    ]
    assert not log["s"].ended
    assert log.switch(NEW, "u", scope="")[0] == ("session/u", started("", reason="new"))
    assert log.agent().generation == 3


def test_reset_ends_the_old_session(log):
    """Once: an ended one is only left."""
    assert log.switch(RESET, "t") == [
        ("session/t", started("trip", reason="reset", scope="acme/alice")),
        ("session/s", SessionEnded(reason="reset")),
        switched("s", "t", "reset"),
    ]
    assert log["t"].ancestors == ()
    log.do(session.end, "t", reason="done")
    assert [stream for stream, _ in log.switch(RESET, "u")] == ["session/u", "agent/assistant"]


def test_resume_goes_to_a_known_session_and_opens_it_if_it_had_ended(log):
    """From another one, from itself, from nowhere."""
    log.switch(RESET, "t")
    resumed = ("session/s", SessionResumed())
    assert log.switch(RESUME, "s") == [resumed, switched("t", "s", "resume")]
    assert not log["s"].ended
    assert log.switch(RESUME, "s") == [switched("s", "s", "resume")]
    log.do(session.end, "s", reason="done")
    assert log.switch(RESUME, "s") == [resumed, switched("s", "s", "resume")]
    assert log.switch(RESUME, "t", from_=None) == [switched(None, "t", "resume")]


def test_branch_starts_from_a_position_of_the_old_session(log):
    """By default the head of the log; the old one stays open."""
    first = log.switch(BRANCH, "b", at=3)
    assert first == [
        ("session/b", started("trip", reason="branch", parent="s", at=3, scope="acme/alice")),
        switched("s", "b", "branch"),
    ]
    assert log.turns_seen("b") == [3]
    with pytest.raises(errors.OutsideSession) as caught:
        log.switch(BRANCH, "c", at=4)
    assert (caught.value.first, caught.value.last) == (5, 6)
    head = log.head
    assert log.switch(BRANCH, "c", from_="s")[0][1].branched_at == head
    assert log.turns_seen("c") == [3, 4]
    assert not log["s"].ended
    log.do(session.end, "s", reason="done")
    log.switch(BRANCH, "d", from_="s")
    assert not log["d"].ended, "what an ended session held can still be built on"


def test_compress_in_place_only_counts_a_generation(log):
    """`to == from` is legal; the session goes on."""
    assert log.switch(COMPRESS, "s") == [switched("s", "s", "compress")]
    assert (log.agent().current, log.agent().generation) == ("s", 2)


def test_compress_into_a_new_session_inherits_all_and_ends_the_old(log):
    """The lineage shows where it came from."""
    head = log.head
    assert log.switch(COMPRESS, "t") == [
        ("session/t", started("trip", reason="compress", parent="s", at=head, scope="acme/alice")),
        ("session/s", SessionEnded(reason="compress")),
        switched("s", "t", "compress"),
    ]
    assert (log.turns_seen("t"), log["t"].ancestors) == ([3, 4], ("s",))


def test_rewind_in_place_hides_turns(log):
    """Where none is behind, the switch alone is recorded."""
    assert log.switch(REWIND, "s", at=3) == [("session/s", TurnsRewound(to=3)), switched("s", "s", "rewind")]
    assert log.turns_seen("s") == [3]
    assert log.switch(REWIND, "s", at=3) == [switched("s", "s", "rewind")]


def test_rewind_into_a_new_session_leaves_the_old_untouched(log):
    """It is a branch by another name."""
    assert log.switch(REWIND, "r", at=3) == [
        ("session/r", started("trip", reason="rewind", parent="s", at=3, scope="acme/alice")),
        switched("s", "r", "rewind"),
    ]
    assert (log.turns_seen("r"), log.turns_seen("s"), log["s"].ended) == ([3], [3, 4], False)


REFUSED = [
    # A position beyond the end of the log, before the start of the session that is left, or that is no whole number.
    *((reason, "b", {"at": 10**9}, errors.InvalidInput, "which ends at") for reason in (BRANCH, REWIND)),
    *((reason, "b", {"at": at}, errors.OutsideSession, None) for reason in (BRANCH, REWIND) for at in (0, 4)),
    *((REWIND, to, {"at": at}, errors.InvalidInput, None) for to in ("b", "u") for at in (-1, True, 2.0, "3")),
    # A position that means nothing, or none where one is needed.
    *((reason, "b", {"at": 5}, errors.SwitchRefused, "leave out `at`") for reason in (NEW, RESET, RESUME, COMPRESS)),
    *((REWIND, to, {}, errors.SwitchRefused, "pass the position as `at`") for to in ("u", "b")),
    # A session that has ended is resumed before it is changed in place.
    (COMPRESS, "ended", {"from_": "ended"}, errors.SessionAlreadyEnded, None),
    (REWIND, "ended", {"from_": "ended", "at": 7}, errors.SessionAlreadyEnded, None),
    # These cannot go to where they come from, and the error says what to ask for.
    *(
        (reason, "u", {}, errors.SwitchRefused, rf"'{reason}': 'u' is .* 'resume', 'compress' or 'rewind'")
        for reason in (NEW, RESET, BRANCH)
    ),
    # These need a session to end, to branch or to hide turns of.
    *((reason, "b", {"from_": None}, errors.SwitchRefused, "in no session") for reason in (RESET, BRANCH, COMPRESS)),
    (REWIND, "b", {"from_": None, "at": 1}, errors.SwitchRefused, "in no session"),
    # A session that was never started is neither left nor resumed.
    *((reason, "b", {"from_": "ghost"}, errors.UnknownSession, "ghost") for reason in SwitchReason if reason != REWIND),
    (REWIND, "b", {"from_": "ghost", "at": 3}, errors.UnknownSession, "ghost"),
    (COMPRESS, "ghost", {"from_": "ghost"}, errors.UnknownSession, "ghost"),
    (RESUME, "ghost", {}, errors.UnknownSession, "ghost"),
    # A session that must be new exists.
    *((reason, "s", {}, errors.SessionExists, None) for reason in (NEW, RESET, BRANCH, COMPRESS)),
    (REWIND, "s", {"at": 6}, errors.SessionExists, None),
    # Ids, names and scopes are checked like those of `start_session`.
    *((NEW, to, {}, errors.InvalidInput, None) for to in ("", "a\nb", 5)),
    *((NEW, "b", {"title": title}, errors.InvalidInput, None) for title in ("a\nb", "x" * 257)),
    (NEW, "b", {"scope": "/x"}, errors.InvalidInput, None),
]


@pytest.mark.parametrize(("reason", "to", "fields", "error", "why"), REFUSED)
def test_a_switch_that_cannot_be_is_refused_and_nothing_is_written(log, reason, to, fields, error, why):
    """The agent is in `u`, which starts at 5 and is entered at 6."""
    log.switch(NEW, "u")
    log.switch(NEW, "ended")
    log.do(session.end, "ended", reason="done")
    log.switch(RESUME, "u")
    before = len(log.events)
    with pytest.raises(error, match=why):
        log.switch(reason, to, **{"from_": "u"} | fields)
    assert len(log.events) == before


@pytest.mark.parametrize("reason", [NEW, RESET, BRANCH, COMPRESS, REWIND])
def test_an_exact_retry_counts_as_done(log, reason):
    """Although the head has moved, and the old session may have ended; another name is no retry."""
    at = 3 if reason is REWIND else None
    log.switch(reason, "t", from_="s", at=at)
    log.say("t")
    assert log.switch(reason, "t", from_="s", at=at) == []
    if reason in (NEW, RESET, BRANCH):
        assert log.switch(reason, "t") == []
    with pytest.raises(errors.SessionExists):
        log.switch(reason, "t", from_="s", at=at, title="else")
    log.switch(RESUME, "s")
    with pytest.raises(errors.SessionExists):
        log.switch(reason, "t", from_="s", at=at)


def test_reasons_are_a_closed_list():
    """Another word is an error that names them."""
    assert [parse_switch_reason(word) for word in SWITCH_REASONS] == list(SwitchReason)
    with pytest.raises(errors.InvalidInput, match="new, reset, resume, branch, compress, rewind"):
        parse_switch_reason("undo")


def test_streams_of_agents_have_a_prefix_of_their_own():
    """An agent and a session of the same name do not meet."""
    assert agent_of(agent_stream("a/b")) == "a/b"
    assert agent_of("session/a") is None


def test_an_agent_knows_when_it_last_left_or_entered_each_session(log):
    """What was asked for in a session before that is out of date; what another one asked for is not."""
    log.switch(NEW, "a")
    log.switch(NEW, "b")
    first = log.agent().touched
    assert first["a"] == first["b"] == log.head
    log.switch(NEW, "c")
    assert log.agent().touched["a"] == first["a"]
    assert log.agent().touched["b"] == log.agent().touched["c"] == log.head
    assert log.agent().generation == 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(SwitchReason)), st.sampled_from("abcde"), st.integers(0, 40)), max_size=25)
)
def test_no_sequence_of_switches_makes_a_cycle(steps):
    """Ancestors are older than their descendants, and a refused switch changes nothing."""
    log = AgentLog()
    for reason, to, at in steps:
        before = len(log.events)
        try:
            appended = log.switch(reason, to, at=at if reason is REWIND else None)
        except (errors.SessionError, errors.InvalidInput):
            assert len(log.events) == before
            continue
        if appended:
            assert appended[-1][0] == "agent/assistant"
            assert log.agent().current == to
            log.say(to) if not log[to].ended else None
    for name, state in log.histories.sessions.items():
        chain = (*state.ancestors, name)
        assert len(set(chain)) == len(chain)
        starts = [log[ancestor].started_position for ancestor in chain]
        assert starts == sorted(starts)
