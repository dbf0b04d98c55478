"""States of sessions: the table of switches with every refusal, what a session sees, and the bytes of a state.

Checkpoints hold nothing; restoring one brings back values, task and notes by one event.
"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemolog.domain import errors, session
from mnemolog.domain.events import (
    CheckpointDeleted,
    CheckpointRestored,
    SessionEnded,
    SessionResumed,
    SessionStarted,
    SessionSwitched,
    TurnsRewound,
)
from mnemolog.domain.session import SessionState, Span, cut, decode_state, encode_state, rewind
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
from mnemolog.domain.values import MemoryLimits
from mnemolog.domain.working_memory import (
    add_note,
    all_values,
    clear_values,
    create_checkpoint,
    delete_checkpoint,
    delete_value,
    find_checkpoint,
    restore_checkpoint,
    set_task,
    set_value,
)
from mnemolog.infra.log.event_codec import encode
from tests.memory_log import MemoryLog
from tests.session_states import sees, state_digest

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
def agents():
    """An agent in session `s`, which holds two turns at 3 and 4."""
    agents = AgentLog()
    agents.switch(NEW, "s", title="trip", scope="acme/alice")
    agents.say("s")
    agents.say("s")
    return agents


def test_the_first_switch_of_an_agent_comes_from_nowhere():
    """No session is left; the new one has no title."""
    agents = AgentLog()
    assert agents.agent() is None
    assert agents.switch(NEW, "s") == [("session/s", started("", reason="new")), switched(None, "s", "new")]
    assert (agents.agent().current, agents.agent().generation) == ("s", 1)


def test_new_starts_a_session_and_leaves_the_old_as_it_is(agents):
    """Nothing is inherited but name and scope, where they are not given; and no name from another scope."""
    assert agents.switch(NEW, "t", title="other") == [
        ("session/t", started("other", reason="new", scope="acme/alice")),
        switched("s", "t", "new"),
    ]
    assert not agents["s"].ended
    assert agents.switch(NEW, "u", scope="")[0] == ("session/u", started("", reason="new"))
    assert agents.agent().generation == 3


def test_reset_ends_the_old_session(agents):
    """Once: an ended one is only left."""
    assert agents.switch(RESET, "t") == [
        ("session/t", started("trip", reason="reset", scope="acme/alice")),
        ("session/s", SessionEnded(reason="reset")),
        switched("s", "t", "reset"),
    ]
    assert agents["t"].ancestors == ()
    agents.do(session.end, "t", reason="done")
    assert [stream for stream, _ in agents.switch(RESET, "u")] == ["session/u", "agent/assistant"]


def test_resume_goes_to_a_known_session_and_opens_it_if_it_had_ended(agents):
    """From another one, from itself, from nowhere."""
    agents.switch(RESET, "t")
    resumed = ("session/s", SessionResumed())
    assert agents.switch(RESUME, "s") == [resumed, switched("t", "s", "resume")]
    assert not agents["s"].ended
    assert agents.switch(RESUME, "s") == [switched("s", "s", "resume")]
    agents.do(session.end, "s", reason="done")
    assert agents.switch(RESUME, "s") == [resumed, switched("s", "s", "resume")]
    assert agents.switch(RESUME, "t", from_=None) == [switched(None, "t", "resume")]


def test_branch_starts_from_a_position_of_the_old_session(agents):
    """By default the head of the log; the old one stays open."""
    first = agents.switch(BRANCH, "b", at=3)
    assert first == [
        ("session/b", started("trip", reason="branch", parent="s", at=3, scope="acme/alice")),
        switched("s", "b", "branch"),
    ]
    assert agents.turns_seen("b") == [3]
    with pytest.raises(errors.OutsideSession) as caught:
        agents.switch(BRANCH, "c", at=4)
    assert (caught.value.first, caught.value.last) == (5, 6)
    head = agents.head
    assert agents.switch(BRANCH, "c", from_="s")[0][1].branched_at == head
    assert agents.turns_seen("c") == [3, 4]
    assert not agents["s"].ended
    agents.do(session.end, "s", reason="done")
    agents.switch(BRANCH, "d", from_="s")
    assert not agents["d"].ended, "what an ended session held can still be built on"


def test_compress_in_place_only_counts_a_generation(agents):
    """`to == from` is legal; the session goes on."""
    assert agents.switch(COMPRESS, "s") == [switched("s", "s", "compress")]
    assert (agents.agent().current, agents.agent().generation) == ("s", 2)


def test_compress_into_a_new_session_inherits_all_and_ends_the_old(agents):
    """The lineage shows where it came from."""
    head = agents.head
    assert agents.switch(COMPRESS, "t") == [
        ("session/t", started("trip", reason="compress", parent="s", at=head, scope="acme/alice")),
        ("session/s", SessionEnded(reason="compress")),
        switched("s", "t", "compress"),
    ]
    assert (agents.turns_seen("t"), agents["t"].ancestors) == ([3, 4], ("s",))


def test_rewind_in_place_hides_turns(agents):
    """Where none is behind, the switch alone is recorded."""
    assert agents.switch(REWIND, "s", at=3) == [("session/s", TurnsRewound(to=3)), switched("s", "s", "rewind")]
    assert agents.turns_seen("s") == [3]
    assert agents.switch(REWIND, "s", at=3) == [switched("s", "s", "rewind")]


def test_rewind_into_a_new_session_leaves_the_old_untouched(agents):
    """It is a branch by another name."""
    assert agents.switch(REWIND, "r", at=3) == [
        ("session/r", started("trip", reason="rewind", parent="s", at=3, scope="acme/alice")),
        switched("s", "r", "rewind"),
    ]
    assert (agents.turns_seen("r"), agents.turns_seen("s"), agents["s"].ended) == ([3], [3, 4], False)


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
def test_a_switch_that_cannot_be_is_refused_and_nothing_is_written(agents, reason, to, fields, error, why):
    """The agent is in `u`, which starts at 5 and is entered at 6."""
    agents.switch(NEW, "u")
    agents.switch(NEW, "ended")
    agents.do(session.end, "ended", reason="done")
    agents.switch(RESUME, "u")
    before = len(agents.events)
    with pytest.raises(error, match=why):
        agents.switch(reason, to, **{"from_": "u"} | fields)
    assert len(agents.events) == before


@pytest.mark.parametrize("reason", [NEW, RESET, BRANCH, COMPRESS, REWIND])
def test_an_exact_retry_counts_as_done(agents, reason):
    """Although the head has moved, and the old session may have ended; another name is no retry."""
    at = 3 if reason is REWIND else None
    agents.switch(reason, "t", from_="s", at=at)
    agents.say("t")
    assert agents.switch(reason, "t", from_="s", at=at) == []
    if reason in (NEW, RESET, BRANCH):
        assert agents.switch(reason, "t") == []
    with pytest.raises(errors.SessionExists):
        agents.switch(reason, "t", from_="s", at=at, title="else")
    agents.switch(RESUME, "s")
    with pytest.raises(errors.SessionExists):
        agents.switch(reason, "t", from_="s", at=at)


def test_reasons_are_a_closed_list():
    """Another word is an error that names them."""
    assert [parse_switch_reason(word) for word in SWITCH_REASONS] == list(SwitchReason)
    with pytest.raises(errors.InvalidInput, match="new, reset, resume, branch, compress, rewind"):
        parse_switch_reason("undo")


def test_streams_of_agents_have_a_prefix_of_their_own():
    """An agent and a session of the same name do not meet."""
    assert agent_of(agent_stream("a/b")) == "a/b"
    assert agent_of("session/a") is None


def test_an_agent_knows_when_it_last_left_or_entered_each_session(agents):
    """What was asked for in a session before that is out of date; what another one asked for is not."""
    agents.switch(NEW, "a")
    agents.switch(NEW, "b")
    first = agents.agent().touched
    assert first["a"] == first["b"] == agents.head
    agents.switch(NEW, "c")
    assert agents.agent().touched["a"] == first["a"]
    assert agents.agent().touched["b"] == agents.agent().touched["c"] == agents.head
    assert agents.agent().generation == 4


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(list(SwitchReason)), st.sampled_from("abcde"), st.integers(0, 40)), max_size=25)
)
def test_no_sequence_of_switches_makes_a_cycle(steps):
    """Ancestors are older than their descendants, and a refused switch changes nothing."""
    agents = AgentLog()
    for reason, to, at in steps:
        before = len(agents.events)
        try:
            appended = agents.switch(reason, to, at=at if reason is REWIND else None)
        except (errors.SessionError, errors.InvalidInput):
            assert len(agents.events) == before
            continue
        if appended:
            assert appended[-1][0] == "agent/assistant"
            assert agents.agent().current == to
            agents.say(to) if not agents[to].ended else None
    for name, state in agents.histories.sessions.items():
        chain = (*state.ancestors, name)
        assert len(set(chain)) == len(chain)
        starts = [agents[ancestor].started_position for ancestor in chain]
        assert starts == sorted(starts)


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


@pytest.fixture
def branched():
    """A branch that has one of everything."""
    branched = MemoryLog()
    branched.start("s")
    branched.do(set_value, "s", "b", {"z": None, "a": [1, 2.5, "é"]}, now=branched.now, ttl=5)
    branched.do(create_checkpoint, "s", checkpoint_id="c", name="first", description="one")
    branched.say("s")
    branched.start("t", parent="s", at=branched.head)
    branched.do(set_value, "t", "a", None, now=branched.now)
    branched.do(set_task, "t", "Book", step=1, total=2, percent=50)
    branched.do(add_note, "t", "ação")
    branched.do(create_checkpoint, "t", checkpoint_id="b", name="second")
    turn = branched.say("t")
    branched.say("t")
    branched.do(rewind, "t", to=turn, head=branched.head)
    branched.do(session.end, "t", reason="done")
    return branched


def test_the_bytes_do_not_depend_on_how_a_state_came_about(branched):
    """Insertion order, deleted keys and the order of an object's keys leave no trace."""
    one, two = MemoryLog(), MemoryLog()
    keys = [f"k{n}" for n in range(200)]
    for branched, order in ((one, keys), (two, keys[::-1])):
        branched.start("s")
        for key in order:
            branched.do(set_value, "s", key, dict.fromkeys((order[0], order[-1]), key), now=branched.now)
        for n in range(50):
            branched.do(set_value, "s", f"gone{n}" if branched is two else "k0", n, now=branched.now)
        for n in range(50):
            branched.do(delete_value, "s", f"gone{n}")
        branched.do(set_value, "s", "k0", None, now=branched.now)
    for key in (keys[0], keys[-1]):
        assert one["s"].values[key] == two["s"].values[key]
    assert encode_state(one["s"]) == encode_state(two["s"])
    # In one process equal maps happen to list their keys alike; another process hashes them otherwise.
    assert [key for key, _ in msgspec.msgpack.decode(encode_state(one["s"]))["values"]] == sorted(keys)


def test_another_state_has_another_digest(branched):
    """Each change shows, the smallest included: 1 is not 1.0, None is not missing."""
    digests = {state_digest(branched["s"])}
    changes = [("a", None), ("a", 1), ("a", 1.0), ("a", True), ("a", "1")]
    for n, (key, value) in enumerate(changes):
        branched.do(set_value, "s", key, value, now=branched.now)
        digests.add(state_digest(branched["s"]))
        assert len(digests) == n + 2
    branched.do(add_note, "s", "x")
    digests.add(state_digest(branched["s"]))
    branched.do(restore_checkpoint, "s", "c")
    digests.add(state_digest(branched["s"]))
    assert len(digests) == len(changes) + 3


def test_the_bytes_are_pinned(branched):
    """A change of the format shows here, and must raise STATE_FORMAT."""
    assert state_digest(branched["t"]) == "e19bc8fd4268e11b8307d6327239fd54163f2396ffb2af78c0be3e6fb9bbebca"


@pytest.mark.parametrize("stored", [b"", b"\x00", b"\x80", b"\xc1" * 9, b"not a state"])
def test_other_bytes_are_refused(stored):
    """A damaged snapshot is an error, so that the state is folded anew."""
    with pytest.raises(errors.InvalidInput):
        decode_state(stored)


def test_every_cut_of_a_stored_state_is_refused(branched):
    """No half of a state is ever taken for one."""
    stored = encode_state(branched["t"])
    for length in range(len(stored)):
        with pytest.raises(errors.InvalidInput):
            decode_state(stored[:length])


def test_another_format_is_refused(branched):
    """A snapshot of a newer version is not guessed at."""
    stored = encode_state(branched["t"])
    at = stored.index(b"format\x01")
    with pytest.raises(errors.InvalidInput, match="format 2"):
        decode_state(stored[:at] + b"format\x02" + stored[at + 7 :])


SECOND = 1_000_000


def put(log, key, value, *, to="s", **options):
    return log.do(set_value, to, key, value, now=log.now, **options)


def mark(log, name, *, of="s"):
    """Create a checkpoint whose id is its name with a `#`; return its position."""
    log.do(create_checkpoint, of, checkpoint_id=f"#{name}", name=name)
    return log.head


def memory_of(state: SessionState):
    return (state.values, state.values_bytes, state.task, state.notes, state.notes_bytes)


def test_an_event_of_a_checkpoint_does_not_grow_with_the_memory(log):
    """Peers that copy their state into each checkpoint grow to 2^n."""
    sizes = []
    for n in range(20):
        put(log, f"k{n}", "x" * 10_000)
        created = create_checkpoint("s", log["s"], checkpoint_id=f"id{n:02}", name=f"c{n:02}")
        log.append("session/s", created[0])
        restored = log.do(restore_checkpoint, "s", f"c{n:02}")
        sizes.append(len(encode(created[0])) + len(encode(restored[0])))
    assert max(sizes) - min(sizes) <= 2
    assert len(log["s"].values) == 20


def test_a_restore_revives_nothing_expired_and_prolongs_no_life(log):
    """What is still alive keeps its end."""
    put(log, "short", 1, ttl=10)
    put(log, "long", 2, ttl=100)
    mark(log, "c")
    log.do(clear_values, "s")
    log.now += 10 * SECOND
    log.do(restore_checkpoint, "s", "c")
    assert all_values(log["s"], log.now) == {"long": 2}
    log.now += 90 * SECOND
    assert all_values(log["s"], log.now) == {}


def test_a_deleted_checkpoint_stays_deleted_after_a_restore(log):
    """Checkpoints are not part of what is restored; a free name may be used again."""
    mark(log, "one")
    mark(log, "two")
    assert log.do(delete_checkpoint, "s", "one") == [CheckpointDeleted(id="#one")]
    log.do(restore_checkpoint, "s", "two")
    for call in (restore_checkpoint, delete_checkpoint):
        for name in ("one", "#one", "never"):
            with pytest.raises(errors.UnknownCheckpoint) as caught:
                log.do(call, "s", name)
            assert caught.value.checkpoint == name
            assert str(caught.value).endswith(f"no checkpoint {name!r}; it has 'two'")
    position = mark(log, "one")
    assert find_checkpoint(log["s"], "one").position == position


def test_a_checkpoint_is_found_by_id_or_name_and_neither_can_mean_two(log):
    """A name that is another's id, or an id that is another's name, is taken."""
    position = mark(log, "c")
    assert find_checkpoint(log["s"], "#c") == find_checkpoint(log["s"], "c")
    assert find_checkpoint(log["s"], "c").position == position
    for checkpoint_id, name in [("new", "c"), ("#c", "new"), ("new", "#c"), ("c", "new")]:
        with pytest.raises(errors.CheckpointExists):
            log.do(create_checkpoint, "s", checkpoint_id=checkpoint_id, name=name)


@pytest.mark.parametrize(
    "fields", [{"name": ""}, {"name": "a\nb"}, {"checkpoint_id": "x" * 257}, {"description": "x" * 5_000}, {"name": 5}]
)
def test_labels_of_a_checkpoint_are_checked(log, fields):
    """One line each; the description may be longer, and left out."""
    log.do(create_checkpoint, "s", checkpoint_id="i", name="n", description="two\nlines")
    assert find_checkpoint(log["s"], "n").description == "two\nlines"
    with pytest.raises(errors.InvalidInput):
        log.do(create_checkpoint, "s", **({"checkpoint_id": "i2", "name": "n2"} | fields))


def test_the_number_of_checkpoints_has_a_limit(log):
    """Deleting one makes room; none is dropped."""
    limits = MemoryLimits(checkpoints_max=1)
    log.do(create_checkpoint, "s", checkpoint_id="1", name="a", limits=limits)
    with pytest.raises(errors.MemoryFull):
        log.do(create_checkpoint, "s", checkpoint_id="2", name="b", limits=limits)
    log.do(delete_checkpoint, "s", "a")
    log.do(create_checkpoint, "s", checkpoint_id="2", name="b", limits=limits)


def test_an_inherited_checkpoint_is_restored_from_the_ancestors_stream(log):
    """Over two generations; in the branch and in the parent alike; and apart from one another."""
    put(log, "a", 1)
    position = mark(log, "c")
    put(log, "a", 2)
    log.start("b", parent="s", at=log.head)
    put(log, "a", 3, to="b")
    log.start("g", parent="b", at=log.head)
    put(log, "a", 4, to="g")
    assert find_checkpoint(log["g"], "c").session == "s"
    assert log.do(restore_checkpoint, "g", "c") == [CheckpointRestored(id="#c", position=position)]
    assert [all_values(log[name], log.now) for name in "sbg"] == [{"a": 2}, {"a": 3}, {"a": 1}]
    log.do(delete_checkpoint, "g", "c")
    log.do(restore_checkpoint, "b", "c")
    assert all_values(log["b"], log.now) == {"a": 1}


def test_a_session_without_a_branch_point_inherits_nothing(log):
    """A parent alone says where it came from, not what to take along."""
    put(log, "a", 1)
    log.start("b", parent="s")
    log.start("fresh")
    assert (memory_of(log["b"]), log["b"].ancestors) == (memory_of(log["fresh"]), ())


def test_a_restore_of_a_checkpoint_that_is_not_there_changes_nothing(log):
    """No decision writes it: another program did."""
    mark(log, "c")
    before = log["s"]
    for event in (CheckpointRestored(id="x", position=1), CheckpointRestored(id="#c", position=1)):
        log.append("session/s", event)
        assert log["s"] == before
