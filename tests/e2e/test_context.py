"""A context for a prompt, of a store and of a session; and what a message calls to mind, prefetched or not."""

import pytest

from mnemolog import Context, InvalidInput, MemoryStore
from mnemolog.adapters.support.context import MESSAGE_CHARS_MAX, context_for, line_of
from mnemolog.adapters.support.framework_sessions import flag_pending_undo, rewind_to_transcript
from mnemolog.projections.context.answer import BlockKind, WhyLeftOut
from mnemolog.projections.recall.prefetch import PrefetchReason
from tests.counted_work import counted_calls
from tests.support import WAIT_S, HashEncoder, StuckEncoder


@pytest.fixture
def encoder():
    encoder = StuckEncoder()
    encoder.free.set()
    return encoder


@pytest.fixture
def store(store, encoder):
    """An empty store, which can be closed whatever the test has done to its model."""
    yield store
    encoder.free.set()


@pytest.fixture
def old(store):
    """An earlier session."""
    session = store.start_session("old", scope="acme/alice")
    session.record("user", "The red boat is in the harbour.")
    session.record("user", "The dog Nero barks.")
    return session


@pytest.fixture
def now(store, old):
    """The session that asks."""
    return store.start_session("now", scope="acme/alice")


def texts(session, message, **how):
    how = {"scope": "acme", "fresh": True, "wait_s": WAIT_S, **how}
    return [hit.text for hit in context_for(session, message, **how)]


@pytest.mark.local
def test_what_answers_the_message_is_called_to_mind_within_the_scope(store, now):
    """By default the scope of the session. Neither a word nor enough of the meaning calls nothing to mind."""
    assert texts(now, "zebra") == []
    assert len(texts(now, "zebra", similarity_min=-1)) == 2
    assert texts(now, "red boat harbour")[0] == "The red boat is in the harbour."
    assert texts(now, "red boat harbour", scope="acme/bob") == []
    assert texts(now, "red boat harbour", scope=None)[0] == "The red boat is in the harbour."


@pytest.mark.local
def test_a_stuck_model_delays_no_caller(now, encoder):
    """Words alone answer; where the question before is stuck still, at once."""
    encoder.free.clear()
    assert texts(now, "red boat", wait_s=0.05) == ["The red boat is in the harbour."]
    assert texts(now, "red boat", fresh=False, wait_s=WAIT_S * 10) == ["The red boat is in the harbour."]


@pytest.mark.local
def test_what_was_asked_for_meanwhile_comes_behind_the_answer_unless_all_is_to_be_fresh(store, now):
    """And no turn twice."""
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    boat, dog = "The red boat is in the harbour.", "The dog Nero barks."
    assert texts(now, "red boat harbour", fresh=False, k=2, similarity_min=0.5) == [boat, dog]
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    assert texts(now, "zebra", fresh=False) == [dog]
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    assert texts(now, "zebra") == []
    assert texts(now, "zebra", fresh=False) == []  # Handed out once.
    now.prefetch("the dog Nero", k=1, scope="acme").wait(WAIT_S)
    store.switch("now", reason="compress", session="now")
    assert texts(now, "zebra", fresh=False) == []  # Its stamp is broken.


@pytest.mark.local
def test_what_stands_in_the_context_is_left_out(store, now):
    """This session's turns behind a position; sessions that are named, unless this one goes on from them."""
    since = store.head().position
    now.record("user", "The red boat is mine.")
    both = {"The red boat is mine.", "The red boat is in the harbour."}
    assert both <= set(texts(now, "the red boat"))
    assert "The red boat is mine." not in texts(now, "the red boat", known_after=since)
    assert texts(now, "the red boat", without=["old"]) == ["The red boat is mine."]
    branch = store.switch("branch", reason="branch", session="old")
    assert "The red boat is in the harbour." in texts(branch, "the red boat", without=["old"])
    assert len(texts(now, "the red boat", k=1)) == 1


@pytest.mark.local
@pytest.mark.parametrize("where", ["here", "there"])
def test_what_was_hidden_is_left_out_here_and_where_it_was_said(store, old, now, where):
    """Store-wide recall finds it; a message does not. What a branch sees is not hidden from it."""
    branch = store.switch("branch", reason="branch", session="old", agent="b")
    (branch if where == "here" else old).rewind(turns=2)
    assert "The red boat is in the harbour." in [hit.text for hit in store.recall("red boat", mode="text").hits]
    assert texts(now, "the red boat") == (
        [] if where == "there" else ["The red boat is in the harbour.", "The dog Nero barks."]
    )
    assert ("The red boat is in the harbour." in texts(branch, "the red boat")) is (where == "there")


@pytest.mark.local
def test_nothing_that_a_session_sees_is_called_to_mind_while_it_is_open_what_was_undone(store, old, now):
    """Others are as they were, and so is it when that is settled."""
    now.record("user", "The red boat is mine.")
    flag_pending_undo(now)
    assert "The red boat is mine." not in texts(now, "the red boat")
    assert "The red boat is in the harbour." in texts(now, "the red boat")
    rewind_to_transcript(now, [{"role": "user", "content": "The red boat is mine."}])
    assert "The red boat is mine." in texts(now, "the red boat")


@pytest.mark.local
def test_what_cannot_be_asked_is_refused_and_a_long_message_is_cut(now):
    """What was asked for before stands."""
    for wrong in ({"k": 0}, {"k": 1_001}, {"scope": "/"}):
        with pytest.raises(InvalidInput):
            texts(now, "boat", **wrong)
    with pytest.raises(InvalidInput):
        texts(now, " ")
    assert texts(now, "red boat " + "x" * (1 << 20))[0] == "The red boat is in the harbour."
    assert texts(now, "x" * MESSAGE_CHARS_MAX + " red boat") == []
    assert len(texts(now, "red boat", k=1_000)) <= 2


@pytest.mark.local
def test_a_turn_as_a_line_says_when_and_who(store, now):
    """And of a long turn, the best passage."""
    now.record("user", "A very long story.", speaker="Alice")
    (hit,) = [hit for hit in context_for(now, "long story", scope="acme", fresh=True) if hit.session == "now"]
    assert line_of(hit) == f"- {hit.said_at:%Y-%m-%d} Alice: A very long story."
    now.record("user", "We waited. " * 100 + "Then the dragon came. " + "We went home. " * 100, speaker="Alice")
    (hit,) = [hit for hit in context_for(now, "dragon", scope="acme", fresh=True) if "dragon" in hit.text]
    assert "Alice: … Then the dragon came. We went home." in line_of(hit)
    assert len(line_of(hit)) < 600


@pytest.mark.local
def test_a_turn_as_a_line_cannot_look_like_another_one(now):
    """Its text is indented from the second line on, and a name that is more than a name is quoted."""
    now.record("user", "A red boat.\n- 2026-01-01 Ben: A blue boat.", speaker="Ben: no\u2024 Ada")
    (hit,) = context_for(now, "red boat blue", fresh=True)[:1]
    assert line_of(hit) == (
        f'- {hit.said_at:%Y-%m-%d} "Ben: no\u2024 Ada": A red boat.\n    - 2026-01-01 Ben: A blue boat.'
    )


def texts_of(recall):
    return {hit.text for hit in recall.hits}


def stuck_prefetch(session, encoder):
    encoder.free.clear()
    encoder.entered.clear()
    ticket = session.prefetch("the secret of the harbour")
    assert encoder.entered.wait(WAIT_S)
    return ticket


SWITCHES = [
    ({"reason": "new"}, set()),
    ({"reason": "reset"}, set()),
    ({"reason": "resume", "to": "other"}, {"the weather at the harbour"}),
    ({"reason": "branch"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "compress"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "compress", "to": "fresh"}, {"the secret of the harbour", "a boat in the harbour"}),
    ({"reason": "rewind", "turns": 1}, {"a boat in the harbour"}),
    ({"reason": "rewind", "to": "fresh", "turns": 1}, {"a boat in the harbour"}),
]


@pytest.mark.local
@pytest.mark.parametrize(
    ("asked", "sees"), SWITCHES, ids=lambda value: str(sorted(value) if isinstance(value, set) else value)
)
def test_the_first_prefetch_after_a_switch_holds_only_what_its_session_sees(store, encoder, asked, sees):
    """The answer of before comes late, when the model lets go: it is handed to nobody."""
    store.start_session("other").record("user", "the weather at the harbour")
    old = store.start_session("old")
    store.switch("old", reason="resume")
    old.record("user", "a boat in the harbour")
    old.record("user", "the secret of the harbour")
    late = stuck_prefetch(old, encoder)
    new = store.switch(**asked)
    asked_anew = new.prefetch("a secret of the harbour")
    assert new.prefetch_result().reason is PrefetchReason.NOT_READY
    encoder.free.set()
    assert asked_anew.wait(WAIT_S)
    taken = new.prefetch_result()
    assert taken.recall is not None
    assert texts_of(taken.recall) == sees
    assert taken.ticket.stamp.session == new.id
    assert late.wait(WAIT_S)
    assert late.reason in {PrefetchReason.CANCELLED, PrefetchReason.REPLACED}
    assert old.prefetch_result().recall is None


@pytest.mark.local
@pytest.mark.parametrize("change", ["rewind", "restore", "switched by another handle", "recorded"])
def test_what_changed_since_is_not_handed_out(store, tmp_path, encoder, change):
    """A rewind, a restore and a switch in another process break the stamp; a new turn does if so asked."""
    session = store.start_session("s", agent="bot")
    session.checkpoint("begin")
    session.record("user", "the secret of the harbour")
    assert session.prefetch("harbour").wait(WAIT_S)
    expected = PrefetchReason.SWITCHED
    if change == "rewind":
        assert session.rewind(turns=1) == 1
    elif change == "restore":
        session.restore("begin")
    elif change == "recorded":
        session.record("user", "one more")
        expected = PrefetchReason.BEHIND
    else:
        with MemoryStore.open(tmp_path / "memory", model=None) as other:
            other.switch(reason="new", session="s")
    taken = session.prefetch_result(max_behind=0)
    assert (taken.recall, taken.reason) == (None, expected)


@pytest.mark.local
def test_an_answer_is_handed_out_once_and_newer_turns_are_allowed(session):
    """By default what was recorded meanwhile does not matter."""
    session.record("user", "the secret of the harbour")
    assert session.prefetch("harbour").wait(WAIT_S)
    session.record("user", "one more")
    taken = session.prefetch_result()
    assert taken.recall is not None
    assert texts_of(taken.recall) == {"the secret of the harbour"}
    assert session.prefetch_result().reason is PrefetchReason.NONE_ASKED


@pytest.mark.local
def test_with_a_scope_every_session_in_it_is_searched_for_the_answer_to_one(store):
    """The root scope is all there is; a switch breaks the stamp as of any other prefetch."""
    for number, scope in enumerate(("acme/alice", "acme/bob")):
        store.start_session(str(number), title=scope, scope=scope).record("user", f"{scope} saw the harbour")
    session = store.start_session("s")
    for scope, expected in (("acme/alice", {"0"}), ("acme", {"0", "1"}), ("", {"0", "1"}), (None, set())):
        assert session.prefetch("harbour", scope=scope).wait(WAIT_S)
        taken = session.prefetch_result()
        assert {hit.session for hit in taken.recall.hits} == expected
        assert store.session("0").prefetch_result().reason is PrefetchReason.NONE_ASKED
    assert session.prefetch("harbour", scope="acme").wait(WAIT_S)
    store.switch(reason="new", session=session)
    assert session.prefetch_result().recall is None
    with pytest.raises(InvalidInput):
        session.prefetch("harbour", scope="/acme")


@pytest.mark.local
def test_agents_that_do_not_know_one_another_do_not_disturb(store):
    """Another session's switches leave a prefetch alone, even those of the same agent."""
    session = store.start_session("s", agent="bot")
    session.record("user", "the secret of the harbour")
    assert session.prefetch("harbour").wait(WAIT_S)
    store.switch(reason="new", agent="bot")
    store.switch(reason="new", agent="other")
    assert session.prefetch_result().recall is not None


@pytest.mark.local
def test_closing_abandons_a_prefetch_that_is_stuck(tmp_path, encoder):
    """The store closes; the late answer finds nobody."""
    store = MemoryStore.open(tmp_path / "memory", model=encoder, background=False)
    session = store.start_session("s")
    session.record("user", "the secret of the harbour")
    ticket = stuck_prefetch(session, encoder)
    store.close()
    assert ticket.reason is PrefetchReason.CLOSED
    encoder.free.set()


@pytest.mark.local
def test_unfetched_answers_take_no_more_than_their_room(store, monkeypatch):
    """The oldest go first; the newest is kept, however large it is."""
    monkeypatch.setattr("mnemolog.projections.recall.prefetch.REMEMBERED_CHARACTERS_MAX", 250)
    sessions = [store.session(name) for name in "abc"]
    for session in sessions:
        session.record("user", "tea " * 50)
        assert session.prefetch("tea").wait(WAIT_S)
    a, b, c = (session.prefetch_result() for session in sessions)
    assert (a.reason, b.reason) == (PrefetchReason.NONE_ASKED, None)
    assert texts_of(b.recall) == texts_of(c.recall) == {"tea " * 50}


TALK = [
    ("user", "We could take the ferry to Porto.", "Ada", "2026-03-16T10:00Z"),
    ("assistant", "The ferry leaves at nine.", None, "2026-03-16T10:01Z"),
    ("user", "I am allergic to peanuts.", "Ada", "2026-03-16T10:02Z"),
    ("assistant", "Noted.", None, "2026-03-16T10:03Z"),
    ("user", "The ferry is booked for Friday.", "Ada", "2026-03-18T08:00Z"),
]


@pytest.fixture
def ferries(folder, clock):
    with MemoryStore.open(folder, model=None, clock=clock) as opened:
        trip = opened.session("trip", scope="acme/ada", title="Porto trip")
        for role, text, speaker, said_at in TALK:
            trip.record(role, text, speaker=speaker, said_at=said_at)
        yield opened


@pytest.fixture
def trip(ferries):
    return ferries.session("trip")


def test_a_context_is_a_text_for_a_prompt_with_who_when_and_where(ferries):
    """Passages in order of time, under the day and the title of their session, each with speaker and position."""
    context = ferries.context("When does the ferry leave?")
    assert isinstance(context, Context)
    assert str(context) == context.text
    assert context.text.splitlines()[1:] == [
        "2026-03-16, Porto trip:",
        "@2 user Ada: We could take the ferry to Porto.",
        "@3 assistant: The ferry leaves at nine.",
        "2026-03-18, Porto trip:",
        "@6 user Ada: The ferry is booked for Friday.",
    ]
    assert (context.positions, context.head, context.budget) == ((2, 3, 6), 6, 1_500)
    first = context.blocks[0].passages[0]
    assert (first.speaker, first.session, first.position, first.whole) == ("Ada", "trip", 2, True)
    assert {first.position: first.relevance}.items() <= {
        hit.position: hit.relevance for hit in ferries.recall("When does the ferry leave?", k=10)
    }.items()


def test_the_same_question_at_the_same_head_gives_the_same_bytes(ferries, trip):
    """Also with what was recorded later, as of that head."""
    first = trip.context("ferry")
    assert trip.context("ferry").text == first.text
    trip.record("user", "Another ferry.")
    trip.set("colour", "red")
    assert trip.context("ferry").text != first.text
    assert trip.context("ferry", as_of=first.head).text == first.text


def test_a_session_adds_its_task_values_and_notes_before_the_passages(ferries, trip, clock):
    """As of the same position; a value that has expired does not appear."""
    trip.set_task("Book the ferry", step=2, total=5)
    trip.set("travellers", 3)
    trip.set("code", "4711", ttl=60)
    trip.note("ask Ada")
    before = trip.context("ferry")
    kinds = [block.kind for block in before.blocks]
    assert kinds[:4] == [BlockKind.TASK, BlockKind.VALUE, BlockKind.VALUE, BlockKind.NOTE]
    assert before.text.splitlines()[1:8] == [
        *("Task:", "  (active, step 2 of 5) Book the ferry"),
        *("Values:", '  code: "4711"', "  travellers: 3"),
        *("Notes:", "  - ask Ada"),
    ]
    clock.advance(seconds=61)
    trip.set("travellers", 4)
    after = trip.context("ferry")
    assert "4711" not in after.text
    assert "travellers: 4" in after.text
    assert trip.context("ferry", as_of=before.head).text == before.text
    assert {block.kind for block in ferries.context("ferry")} == {BlockKind.PASSAGE}, "the store is no session"


def test_a_repeated_statement_is_shown_once_the_newest_marked_as_newer(ferries, trip):
    """With the days of the earlier ones, which are left out as repetitions."""
    again = trip.record("user", "The ferry is booked for Friday!", speaker="Ada", said_at="2026-03-20T08:00Z")
    context = ferries.context("Is the ferry booked?")
    assert f"@{again.position} user Ada (newest; also said 2026-03-18): The ferry is booked for Friday!" in context.text
    assert context.text.count("booked for Friday") == 1
    (repeated,) = [item for item in context.left_out if item.why is WhyLeftOut.REPETITION]
    assert (repeated.position, repeated.newer) == (6, again.position)


def test_statements_that_differ_or_come_from_others_are_all_shown(ferries, trip):
    """Which of them holds is not guessed. Scopes keep users apart."""
    for text, speaker in (
        ("The ferry is booked for Monday.", "Ada"),
        ("The ferry is not booked for Friday.", "Ada"),
        ("The ferry isn't booked for Friday.", "Ada"),
        ("The ferry is booked for Friday at 9.", "Ada"),
        ("The ferry is booked for Friday.", "Bob"),
        ("The ferry is booked for Friday.", None),
    ):
        turn = trip.record("user", text, speaker=speaker)
        assert {6, turn.position} <= set(ferries.context("Is the ferry booked?", 5_000).positions), text
    hers = ferries.session("hers", scope="acme/bob").record("user", "The ferry is booked for Friday.", speaker="Ada")
    assert {6, hers.position} <= set(ferries.context("Is the ferry booked?", 5_000).positions)


def test_a_long_turn_repeats_only_an_equal_one(ferries, trip):
    """Of long answers each may add something."""
    answer = "The ferry leaves at nine. " * 50
    first = trip.record("assistant", answer).position
    again = trip.record("assistant", answer).position
    other = trip.record("assistant", f"{answer} Sharp.").position
    context = ferries.context("ferry", 5_000)
    assert {again, other} <= set(context.positions)
    assert first not in context.positions


def test_what_is_left_out_says_why(ferries):
    """No room, or not relevant enough."""
    small = ferries.context("ferry", 45)
    assert small.tokens <= 45
    assert {item.why for item in small.left_out} == {WhyLeftOut.NO_ROOM}
    assert {item.position for item in small.left_out} | set(small.positions) == {2, 3, 6}
    strict = ferries.context("ferry", min_relevance=1.0)
    assert not strict
    assert strict.text == ""
    assert {(item.position, item.why.value) for item in strict.left_out} == {
        (position, "below-min-relevance") for position in (2, 3, 6)
    }


@pytest.mark.local
def test_the_callers_tokenizer_counts(ferries):
    """Its name is in the answer; a wrong one is refused, as any argument that is wrong."""

    def words(text):
        return len(text.split())

    context = ferries.context("ferry", 40, tokenizer=words)
    assert context.tokens == words(context.text) <= 40
    assert "words" in context.counted_by
    for name, wrong in {
        "query": [""],
        "tokenizer": ["gpt-4"],
        "tokens": [-1, 1.5, True, "many"],
        "min_relevance": [-0.1, 1.1, float("nan"), "high"],
    }.items():
        for value in wrong:
            with pytest.raises(InvalidInput, match=name):
                ferries.context(**{"query": "ferry", name: value})


def test_a_long_turn_is_shown_in_part_and_says_so(ferries, trip):
    """With `…` where something is cut off, and offsets in the turn's text."""
    filler = "Nothing was decided at the meeting. " * 30
    turn = trip.record("assistant", f"{filler}The tram to the ferry costs 4 euros. {filler}")
    context = ferries.context("What does the tram cost?", 300)
    (passage,) = [item for block in context for item in block.passages if item.position == turn.position]
    assert not passage.whole
    assert turn.text[passage.start : passage.end] == passage.text
    assert "The tram to the ferry costs 4 euros." in passage.text
    assert f"…{passage.text}…" in context.text


def test_what_is_left_of_a_large_budget_holds_the_other_side_of_exchanges(ferries, trip):
    """The reply to a turn that is shown, or its question; not below 1,000 tokens, and not where roles are chosen."""
    asked = trip.record("user", "Which hotel is near the river?").position
    reply = trip.record("assistant", "Take the Ribeira House.").position
    small, large = ferries.context("river", 999), ferries.context("river", 1_000)
    assert (small.positions, large.positions) == ((asked,), (asked, reply))
    (block,) = large.blocks
    assert [passage.relevance is None for passage in block.passages] == [False, True]
    assert trip.context("Ribeira").positions == (6, asked, reply), "all that the user said before it"
    assert ferries.context("river", roles=["user"]).positions == (asked,)
    assert trip.context("river", as_of=asked).positions == (asked,)
    assert not ferries.context("river Ribeira", min_relevance=1.0)


@pytest.mark.local
@pytest.mark.parametrize("budget", [500, 1_500, 6_000])
def test_a_context_is_read_from_one_snapshot_however_much_it_shows(folder, clock, budget):
    """It catches up once, and needs no more connections and questions to the log for more turns, sessions or facts."""
    with MemoryStore.open(folder / "many", model=None, clock=clock, background=False) as store:
        for n in range(12):
            chat = store.session(f"chat {n}", scope="acme/ada")
            for i in range(12):
                chat.record(("user", "assistant")[i % 2], f"The ferry number {n}-{i} leaves at {i} from pier {n}.")
            chat.assert_fact(f"pier/{n}", n)
        store.context("Which ferry leaves?", scope="acme/ada")
        made = []
        calls = counted_calls(lambda: made.append(store.context("ferry at 4", budget, scope="acme/ada")))
    assert len({passage.session for block in made[0] for passage in block.passages}) > 6
    assert calls["engine/base.py:connect"] <= 6
    assert calls["log/event_log.py:reading"] <= 3
    assert calls["log/event_log.py:head"] == calls["sql/database.py:catch_up"] == 1


@pytest.mark.local
def test_parts_of_a_context_are_of_one_moment(ferries, trip):
    """What is recorded while it is packed is in none of them: no reply, no mark, no fact, no value."""
    old = trip.record("user", "Which pier is it? Pier nine, I think.")
    trip.assert_fact("pier", 9, because=[old])
    reply = trip.record("assistant", "Look at the timetable.")
    meanwhile = []

    def tokenizer(text):
        if not meanwhile:
            meanwhile.append(trip.record("assistant", "It is pier seven."))
            trip.assert_fact("pier", 7, because=[meanwhile[0]])
            trip.set("pier", 7)
            trip.rewind(turns=3)
            assert ferries.recall("pier").hits[0].superseded_by is not None, "another reader has read it"
        return len(text) // 4

    during = trip.context("Which pier?", 2_000, tokenizer=tokenizer)
    assert {old.position, reply.position} <= set(during.positions)
    assert meanwhile[0].position not in during.positions
    assert "no longer holds" not in during.text
    assert "pier: 7" not in during.text
    assert trip.context("Which pier?", 2_000, tokenizer=tokenizer, as_of=during.head).text == during.text
    assert "no longer holds" in ferries.context("Which pier?", 2_000, tokenizer=tokenizer).text


@pytest.mark.local
def test_a_turn_that_belongs_to_two_others_is_shown_once(folder):
    """It was said later about one hit, and is what another one answers."""
    with MemoryStore.open(folder / "twice", model=HashEncoder(dimension=64), background=False) as store:
        chat = store.session("chat")
        chat.record("user", "I live in Vienna with my sister.")
        chat.record("assistant", "That is a nice town.")
        chat.record("user", "I live in Graz with my sister now.")
        chat.record("assistant", "Vienna will miss you.")
        store.rebuild("vectors")
        assert store.context("Vienna", 3_000, min_relevance=0.3).positions == (2, 3, 4, 5)


def test_hidden_and_forgotten_turns_never_appear(ferries, trip):
    """A rewind hides them from the session; forgetting removes them for good, as of any position too.

    A branch sees working memory and turns of its parent up to the branch point.
    """
    trip.set("travellers", 3)
    branch = trip.branch("branch")
    head = ferries.head().position
    trip.rewind(turns=1)
    assert trip.context("ferry").positions == (2, 3)
    assert trip.context("ferry", hidden=True).positions == (2, 3, 6)
    ferries.forget(positions=[3])
    assert ferries.context("ferry", 500).positions == (2, 6)
    assert 3 not in ferries.context("ferry").positions
    assert "nine" not in ferries.context("ferry", as_of=head).text
    trip.record("user", "A later ferry.")
    assert branch.context("ferry", 500).positions == (2, 6)
    assert "travellers: 3" in branch.context("ferry").text


def test_the_command_prints_the_text_and_notes_what_was_left_out(folder, ferries, trip, run):
    """Text on stdout, so that it can be piped into a prompt; the rest on stderr."""
    trip.set("travellers", 3)
    expected = trip.context("ferry", mode="text")
    ran = run("context", folder, "ferry", "--session", "trip", "--model", "none")
    assert ran.stdout == f"{expected.text}\n"
    assert f"note: {expected.tokens} of 1,500 tokens (estimate/1)" in ran.stderr
    small = run("context", folder, "ferry", "--tokens", "45", "--model", "none")
    assert small.stdout == f"{ferries.context('ferry', 45).text}\n"
    assert "did not fit" in small.stderr
    found = run("context", folder, "ferry", "--speaker", "Ada", "--model", "none", "--json").json
    assert [position for block in found["blocks"] for position in block["positions"]] == [2, 6]
    nothing = run("context", folder, "ferry", "--min-relevance", "1", "--model", "none")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "3 not relevant enough" in nothing.stderr


def test_the_command_keeps_receipts_and_audits_them(folder, ferries, trip, run):
    """Exit status 0 where all reproduce."""
    assert "receipt @" in run("context", folder, "ferry", "--receipt", "--model", "none").stderr
    trip.record("user", "One more ferry.")
    audited = run("audit", folder, "--model", "none").exited()
    assert "reproduces ferry" in audited.stdout
    assert "would differ today: @" in audited.stdout
    assert run("audit", folder, "--model", "none", "--json").json["changed_today"] == 1


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    """A store with vectors of the real model."""
    folder = tmp_path_factory.mktemp("minilm") / "memory"
    with MemoryStore.open(folder, background=False) as store:
        for number, (question, reply) in enumerate(
            [
                (
                    "Can you recommend a place for my parents? They are vegetarians.",
                    "Try the Green Door, it has no meat.",
                ),
                (
                    "How do I sort a list in Python?",
                    "Call sorted(items, key=...).\n    sorted(items)\nIt returns a new list.",
                ),
                ("My dentist appointment is on May 4.", "I will remind you the day before."),
            ]
        ):
            session = store.session(f"chat-{number}")
            session.record("user", question)
            session.record("assistant", reply)
        yield store


def test_with_the_real_model_a_context_has_what_is_meant_within_its_budget(minilm):
    """The question shares no word with the turn; the estimate is close to the count of the model's tokenizer."""
    from tokenizers import Tokenizer

    from mnemolog.infra.embedding.model_files import MINILM, resolve_model

    tokenizer = Tokenizer.from_file(str(resolve_model(MINILM) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokens(text):
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    context = minilm.context("Which restaurants suit mum and dad?", 60)
    assert context.positions[0] == 2
    assert context.tokens <= 60
    assert 0.8 < context.tokens / tokens(context.text) < 1.3
    exact = minilm.context("Which restaurants suit mum and dad?", 60, tokenizer=tokens)
    assert exact.tokens == tokens(exact.text) <= 60
    assert "May 4" in minilm.context("When must I go to the dentist?", 200, receipt=True).text
    audit = minilm.audit.receipts()
    assert [item.verdict.value for item in audit.receipts] == ["reproduces"]
