"""What is distrusted is in no answer, and what a turn led to is listed: all of it, and nothing else.

A recall says what it was for, and what a turn led to is followed to the answers that were given. Judgements: which
hits of an answer were good, said by somebody who knows, kept in the log.
"""

import csv
import random

import pytest

from mnemolog import InvalidInput, MemoryStore, UnknownSession, Weights, acting_as, errors
from mnemolog.adapters.support.store_access import trusted, visible_of
from mnemolog.audit.effects import FORMULA
from mnemolog.domain.events import RecallJudged
from mnemolog.domain.scope import covered
from mnemolog.projections.maintenance.tables import compare
from mnemolog.projections.recall.prefetch import PrefetchReason
from tests.support import FakeClock, HashEncoder, blocks_of, projections_of

SCOPES = ("", "acme", "acme/a", "acme/ab")
ACTORS = ("ada", "crawler", "importer")
MAKERS = ("", "extractor/1", "extractor/2")
EVERYTHING = {"min_relevance": 0, "asked": "keep", "weights": Weights(distinct=False)}
FILTERS = (
    *({}, {"scope": "acme"}, {"roles": ["user"]}, {"speakers": ["Ada"]}, {"metadata": {"n": 1}}),
    *({"order": "time"}, {"superseded": "drop"}, {"until": "2100-01-01"}, {"since": "2000-01-01", "by": "recorded"}),
)


class World:
    """A store, and beside it what was said, asserted and distrusted, in lists."""

    def __init__(self, store, rng):
        self.store, self.rng = store, rng
        self.sessions, self.turns, self.facts, self.distrusts = [], {}, {}, {}

    def go_on(self):
        """Do one thing that a store may be asked to do."""
        step = self.rng.choices((self.start, self.say, self.assert_, self.distrust, self.trust), (1, 8, 3, 2, 1))[0]
        self.actor = self.rng.choice((*ACTORS, "nobody"))
        with acting_as(self.actor):
            (self.start if not self.sessions else step)()

    def start(self):
        if self.sessions and self.rng.random() < 0.4:
            self.sessions.append(self.rng.choice(self.sessions).branch())
        else:
            self.sessions.append(self.store.start_session(scope=self.rng.choice(SCOPES)))

    def say(self):
        session, n = self.rng.choice(self.sessions), self.rng.randrange(3)
        role, speaker = self.rng.choice((("user", "Ada"), ("user", None), ("assistant", None)))
        standing = "Always answer in metric. " if self.rng.random() < 0.2 else ""
        text = "tea word1?" if self.rng.random() < 0.1 else f"{standing}tea word{n} {len(self.turns)}"
        turn = session.record(role, text, speaker=speaker, metadata={"n": n})
        self.turns[turn.position] = turn, self.actor
        if self.rng.random() < 0.1:
            session.rewind(turns=1)

    def assert_(self):
        because = self.rng.sample(sorted(self.turns), min(len(self.turns), self.rng.randrange(3)))
        session, value = self.rng.choice(self.sessions), self.rng.randrange(3)
        key, maker = f"key/{self.rng.randrange(3)}", self.rng.choice(MAKERS)
        fact = session.assert_fact(key, value, because=because, maker=maker, valid_from=f"2023-0{value + 1}")
        self.facts[fact.position] = fact

    def distrust(self):
        sources = {
            "positions": self.rng.sample(sorted(self.turns), min(len(self.turns), 3)),
            "session": [self.rng.choice(self.sessions)],
            "actor": self.rng.choice(ACTORS),
            "maker": self.rng.choice(MAKERS[1:]),
        }
        chosen = {name: sources[name] for name in self.rng.sample(sorted(sources), 1)}
        if chosen != {"positions": []}:
            within = self.rng.choice(("", "acme")) if {"actor", "maker"} & chosen.keys() else ""
            made = (self.store.within(within) if within else self.store).distrust(**chosen, reason="a test")
            self.distrusts[made.position] = made

    def trust(self):
        if self.distrusts:
            made = self.store.trust_again(self.rng.choice(sorted(self.distrusts)))
            self.distrusts[made.position] = made

    def gone(self, upto):
        """The turns and facts that no answer may show as of a position."""
        made = self.distrusts.values()
        lasting = [item.source for item in made if item.position <= upto < (item.undone or upto + 1)]
        named = [(turn, actor, None) for turn, actor in self.turns.values()]
        named += [(fact, fact.actor, fact.maker) for fact in self.facts.values()]
        gone = {
            item.position
            for item, actor, maker in named
            for source in lasting
            if covered(tuple(source.scopes), item.scope)
            and (
                item.position in source.turns
                or item.session in source.sessions
                or actor == source.appended_by != ""
                or maker == source.maker != ""
            )
        }
        return gone | {at for at, fact in self.facts.items() if fact.because and gone.issuperset(fact.because)}


def shown_by(recall):
    """Every turn that a recall shows or names."""
    found = {turn.position for hit in recall.hits for turn in (hit, *hit.others)}
    named = {at for hit in recall.hits for at in (*hit.repeated, hit.superseded_by) if at is not None}
    return found | named | set(recall.skipped)


def in_context(context):
    """Every turn and fact that a context shows or names."""
    named = {item.position for item in context.left_out} | {block.fact for block in context.blocks} - {None}
    newer = {passage.newer for block in context.blocks for passage in block.passages if passage.newer is not None}
    return named | newer | set(context.positions)


def answers(world, **when):
    """Yield what each path of an answer shows, as positions."""
    store, more = world.store, {"context_turns": 3, "exchange": True}
    for filters in FILTERS:
        for mode in ("text", "hybrid", "vector"):
            yield shown_by(store.recall("tea word1", 50, mode=mode, **filters, **more, **EVERYTHING, **when))
        yield in_context(store.context("tea word1", 5_000, **filters, **when))
    yield shown_by(store.recall("tea word1?", 50, min_relevance=0, **when))
    page = store.recall("tea", 4, **EVERYTHING, **when)
    while page.next is not None:
        yield shown_by(page)
        page = store.recall("tea", 4, after=page.next, **EVERYTHING, **when)
    yield shown_by(page)
    yield {at for fact in store.facts(**when) for at in fact.assertions}
    yield {said.position for said in store.standing(**when)}
    there = {
        item.session for item in store.sessions() if item.started_position <= when.get("as_of", item.last_position)
    }
    for session in (item for item in world.sessions if item.id in there):
        for how in ({}, {"lineage": True}, {"lineage": True, "hidden": True}):
            yield shown_by(session.recall("tea word2", 50, **how, **more, **EVERYTHING, **when))
        yield in_context(session.context("tea", 5_000, **when))


@pytest.mark.local
@pytest.mark.parametrize("seed", range(3))
def test_nothing_distrusted_is_in_any_answer(tmp_path, seed):
    """On no path, as of now and as of then; trusted again it is back. What rests on it alone is not believed."""
    rng = random.Random(seed)
    with (
        blocks_of(32),
        MemoryStore.open(
            tmp_path / "memory", model=HashEncoder(dimension=16), clock=FakeClock(), background=False
        ) as store,
    ):
        world = World(store, rng)
        for _ in range(3):
            for _ in range(40):
                world.go_on()
            head = store.head().position
            gone = world.gone(head)
            assert all(not found & gone for found in answers(world))
            for session in world.sessions:
                said = {message["content"] for message in session.messages()}
                assert said == {turn.text for turn in session.turns() if turn.position not in gone}
            everything = store.recall("tea", 1_000, mode="text", **EVERYTHING)
            assert {hit.position for hit in everything} == set(world.turns) - gone
            assert {turn.position for turn in store.find("tea", hidden=True)} == set(world.turns), "all are found"
            marked = {turn.position for turn in store.find("tea", hidden=True) if turn.distrusted is not None}
            assert marked == gone & set(world.turns)
            held = {at for key in range(3) for scope in SCOPES for at in believed(world, f"key/{key}", scope, gone)}
            assert {fact.position for fact in store.facts()} == held
            ends = [item.undone - 1 for item in world.distrusts.values() if item.undone]
            then = rng.choice([rng.randrange(1, head), *ends])
            before = store.recall("tea", 1_000, mode="text", as_of=then, **EVERYTHING)
            assert {hit.position for hit in before} == {at for at in world.turns if at <= then} - world.gone(then)
            assert all(not found & world.gone(then) for found in answers(world, as_of=then))
            with projections_of(store).current_views().database.reading() as connection:
                assert str(compare(connection, store.parts.log, upto=store.head().position)) == ""
        for position in world.distrusts:
            store.trust_again(position)
        assert {hit.position for hit in store.recall("tea", 1_000, mode="text", **EVERYTHING)} == set(world.turns)


def believed(world, key, scope, gone):
    """The assertion that decides what a key has."""
    live = [fact for at, fact in world.facts.items() if (fact.key, fact.scope) == (key, scope) and at not in gone]
    return [max(live, key=lambda fact: (fact.valid_from, fact.position)).position] if live else []


class Observer:
    """What a store was asked, and what each answer showed, as those who asked saw it."""

    def __init__(self, store, rng):
        self.store, self.rng = store, rng
        self.sessions = [store.start_session(scope="acme") for _ in range(10)]
        self.bad, self.shown, self.rests, self.had = [], {}, {}, {}

    def say(self, *, bad):
        session = self.rng.choice(self.sessions)
        with acting_as("crawler" if bad else "ada"):
            turn = session.record(
                "user", f"{'The ferry is free' if bad else 'The ferry is late'}, word{self.rng.randrange(9)}"
            )
        self.had[session.id, turn.position] = turn.position
        if bad:
            self.bad.append(turn.position)

    def ask(self):
        session, how = self.rng.choice(self.sessions), self.rng.choice(({}, {"context_turns": 1}, {"exchange": True}))
        word = f"ferry word{self.rng.randrange(9)}"
        if self.rng.random() < 0.5:
            answer, kind = session.recall(word, 3, **how), "recall"
            turns = {turn.position for hit in answer.hits for turn in (hit, *hit.others)}
        else:
            answer, kind = session.context(word, 300), "context"
            turns = {*answer.positions, *(block.fact for block in answer.blocks if block.fact is not None)}
        self.shown[answer.receipt] = kind, turns
        for at in turns:
            for turn in self.rests.get(at, [at]):
                self.had.setdefault((session.id, turn), answer.receipt)

    def prefetch(self):
        session = self.rng.choice(self.sessions)
        assert session.prefetch("ferry", k=3).wait(60)
        assert session.prefetch_result().recall.receipt is None

    def assert_(self):
        because = self.rng.sample(self.bad, min(2, len(self.bad)))
        fact = self.rng.choice(self.sessions).assert_fact(f"ferry/{self.rng.randrange(9)}", "free", because=because)
        self.rests[fact.position] = because

    def branch(self):
        made = self.rng.choice(self.sessions).branch()
        started = made.at(self.store.head().position)
        self.had |= {(made.id, turn.position): started.position for turn in started.turns()}
        self.sessions.append(made)


@pytest.mark.local
def test_every_effect_of_a_hundred_bad_turns_is_listed_and_none_is_false(tmp_path):
    """Recalls, contexts and facts exactly; what came after in the sessions that had it. Distrusted, none is shown."""
    rng = random.Random(40)
    with MemoryStore.open(tmp_path / "memory", model=None, receipts=True, background=False) as store:
        world = Observer(store, rng)
        for _ in range(100):
            world.say(bad=True)
            for step in rng.choices((world.ask, world.assert_, world.branch, world.prefetch), (8, 3, 1, 1), k=3):
                step()
            world.say(bad=False)
        for bad in world.bad:
            found = store.audit.effects(bad)
            facts = [fact for fact, because in world.rests.items() if bad in because]
            shown = {
                (at, kind, None if bad in turns else min(turns.intersection(facts)))
                for at, (kind, turns) in world.shown.items()
                if turns.intersection([bad, *facts])
            }
            assert {(item.position, item.kind, item.fact) for item in found.shown_in} == shown
            assert [fact.position for fact in found.rests_on] == facts
            had = {session: at for (session, turn), at in world.had.items() if turn == bad}
            later = {session: [turn.position for turn in store.turns(session, after=at)] for session, at in had.items()}
            came_after = {item.session: list(item.turns) for item in found.came_after}
            assert came_after == {session: turns for session, turns in later.items() if turns}
        assert found.receipts_since == store.audit.event(min(world.shown)).at
        tickets = [session.prefetch("ferry") for session in world.sessions[:10]]
        assert all(ticket.wait(60) for ticket in tickets)
        store.distrust(actor="crawler", reason="a forged timetable")
        reasons = {session.prefetch_result().reason for session in world.sessions[:10]}
        assert reasons == {PrefetchReason.DISTRUSTED}
        gone = set(world.bad) | set(world.rests)
        for session in world.sessions:
            session.prefetch("ferry free", k=50)
            prefetched = session.prefetch_result(wait_s=60).recall
            for found in (prefetched, session.recall("ferry free", 300, context_turns=2, exchange=True, **EVERYTHING)):
                assert not shown_by(found) & gone
            assert not in_context(session.context("ferry free", 5_000)) & gone
        assert store.facts() == []


@pytest.mark.local
def test_what_distrust_refuses(store):
    """A reason and a source are required; turns only; a page that began before is refused; a retry changes nothing."""
    session = store.session("trip", scope="acme")
    turns = [session.record("user", f"tea {number}") for number in range(12)]
    page = store.recall("tea", 4, **EVERYTHING)
    for wrong, why in (
        ({"positions": 2, "reason": " "}, "reason: empty"),
        ({"reason": "x"}, "say what to distrust"),
        ({"positions": 1, "reason": "x"}, "position 1 is no turn"),
        ({"positions": 99, "reason": "x"}, "position 99 is no turn"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.distrust(**wrong)
    tried = store.distrust(session="trip", reason="x", dry_run=True)
    assert (tried.position, tried.covers, store.distrusts()) == (None, 12, [])
    made = store.distrust(positions=turns[0].position, reason="forged")
    with pytest.raises(InvalidInput, match="begin with the first page"):
        store.recall("tea", 4, after=page.next, **EVERYTHING)
    assert [turn.distrusted for turn in session.turns(last=12)] == [made.position] + [None] * 11
    _call, result, other = [session.record("tool", "x", metadata={"call_id": call}) for call in ("a", "a", "b")]
    again = store.distrust(positions=result.position, reason="forged")
    seen = [turn.position for turn in trusted(store, visible_of(store).seen("trip"))]
    assert seen == [turn.position for turn in (*turns[1:], other)], "as adapters do: no call without its result"
    store.trust_again(again.position)
    ended = store.trust_again(made.position)
    head = store.head().position
    assert store.trust_again(made.position) == ended == store.distrusts()[0]
    assert (ended.undone, store.head().position) == (head, head), "a retry appends nothing"
    with pytest.raises(InvalidInput, match="distrusts nothing"):
        store.trust_again(head)
    with pytest.raises(InvalidInput, match="no turn"):
        store.audit.effects(made.position)
    assert store.within("acme").distrusts() == [], "it was made for the whole store"


@pytest.mark.local
def test_a_distrusted_fact_supersedes_nothing_and_is_told_in_the_history_and_in_a_diff(store):
    """A turn that it rests on is evidence of nothing then; the fact that was true before it holds."""
    session = store.session("trip")
    said = session.record("user", "I live in Porto.")
    porto = session.assert_fact("user/city", "Porto", because=[said], maker="extractor/1", valid_from="2023-01")
    lisbon = session.assert_fact("user/city", "Lisbon", maker="extractor/2", valid_from="2023-02")
    assert store.recall("Porto")[0].superseded_by == lisbon.position
    made = store.distrust(maker="extractor/2", reason="a bad prompt")
    assert store.recall("Porto")[0].superseded_by is None
    assert store.fact("user/city").value == "Porto"
    assert [fact.state for fact in store.fact_history("user/city")] == ["holds", "distrusted"]
    (change,) = store.audit.diff(made.position - 1).facts
    assert (change.change, change.position) == ("changed", porto.position)
    both = store.distrust(positions=said.position, reason="forged")
    (change,) = store.audit.diff(both.position - 1).facts
    assert (change.change, change.before, change.after, change.position) == ("distrusted", "Porto", None, both.position)
    store.trust_again(made.position)
    assert store.fact("user/city").value == "Lisbon"
    assert said.position not in [hit.position for hit in store.recall("Porto")]
    store.trust_again(both.position)
    store.distrust(maker="extractor/1", reason="a bad prompt")
    assert store.recall("Porto")[0].superseded_by is None, "what was found wrongly was not superseded"


@pytest.fixture
def call(store):
    """A session with a turn, beside one of another scope."""
    store.session("other", scope="acme/b").record("user", "ferry two")
    call = store.session("call", scope="acme/a")
    call.record("user", "ferry one")
    return call


def asked(store):
    return [(item.kind, item.asked_in, item.asked_for) for item in store.audit.receipts().receipts]


@pytest.mark.local
def test_a_receipt_says_which_session_asked_and_for_which_turn(store, call):
    """By itself where a session asks, by arguments where the store is asked; the answer and its pages stay the same."""
    call.recall("ferry", receipt=True)
    found = store.recall("ferry", 1, asked_in=call, asked_for=4, receipt=True)
    call.context("ferry", 100, asked_for=4, receipt=True)
    store.context("ferry", 100, asked_in="call", receipt=True)
    store.recall("ferry", session=call, receipt=True)
    kinds = ("recall", "recall", "context", "context", "recall")
    assert asked(store) == list(zip(kinds, ("call",) * 4 + (None,), (None, 4, 4, None, None), strict=True))
    assert store.recall("ferry", 1, after=found.next).hits == store.recall("ferry", 2).hits[1:]
    for ask, to in ((call.recall, 2), (call.context, 3), (store.recall, 4)):
        with pytest.raises(InvalidInput, match="no turn of the session that asks"):
            ask("ferry", asked_for=to)
    with pytest.raises(UnknownSession):
        store.within("acme/b").recall("ferry", asked_in="call")


@pytest.mark.local
def test_who_asked_is_told_within_the_scope_alone_and_goes_with_the_session(store, call):
    """A store for another scope sees the receipt of a question about it, without the session; forgetting takes it."""
    store.recall("ferry", scope="acme/b", asked_in=call, asked_for=4, receipt=True)
    assert asked(store.within("acme/b")) == [("recall", None, None)]
    store.forget(session=call)
    assert asked(store) == []


@pytest.mark.local
def test_effects_lead_to_the_answer_that_came_next_as_of_a_position_and_as_rows(store, call):
    """The answer is that of the session that asked, not the next of the log. No cell of the CSV is a formula."""
    bad = call.record("tool", "=The window is 90 days.").position
    store.recall("window", asked_in=call, receipt=True)
    store.session("other").record("assistant", "something else")
    before = store.head().position
    answer, *_ = [call.record("assistant", text) for text in ("Yes, 90 days.", "more")]
    call.assert_fact("=window", 90, because=[bad])
    found, then = store.audit.effects(bad), store.audit.effects(bad, as_of=before)
    assert [item.answer for item in (*found.shown_in, *then.shown_in)] == [answer, None]
    assert (then.came_after, then.rests_on) == ((), ())
    with pytest.raises(InvalidInput, match="no turn"):
        store.audit.effects(bad, as_of=bad - 1)
    rows = list(csv.reader(found.to_csv().splitlines()))
    assert [row[0] for row in rows[:5]] == ["what", "turn", "recall", "answer", "fact"]
    assert [row[5][:5] for row in (rows[1], rows[4])] == ["'=The", "'=win"]
    assert not any(cell.startswith(FORMULA) for row in rows for cell in row)


@pytest.fixture
def talk(store):
    """Three turns about tea, and one about a ferry."""
    session = store.session("talk", scope="acme")
    for text in ("We bought green tea.", "The tea is gone.", "More tea, please.", "The ferry leaves at nine."):
        session.record("user", text)
    return session


def test_a_judgement_says_which_turns_were_good_and_which_were_bad(store, talk):
    """It is an event that names its receipt and turns by position."""
    answer = store.recall("tea", k=3, receipt=True)
    best, second, third = (hit.position for hit in answer)
    made = store.audit.judge(answer.receipt, good=[third, second], bad=[best], by="Ada")
    assert (made.receipt, made.query, made.by) == (answer.receipt, "tea", "Ada")
    assert (made.good, made.bad, made.nothing) == (tuple(sorted((second, third))), (best,), False)
    assert store.audit.judgements() == [made]
    recorded = list(store.events())[-1]
    assert (recorded.position, recorded.stream) == (made.position, "recalls")
    assert isinstance(recorded.event, RecallJudged)
    assert [str(moment.what) for moment in store.audit.timeline(after=made.position - 1)] == [
        f"recall {answer.receipt} judged by Ada: good {made.good[0]}, {made.good[1]}; bad {best}"
    ]


def test_a_later_judgement_of_the_same_receipt_replaces_the_earlier_one(store, talk):
    """Both stay in the log; the last one counts."""
    first, second = (store.recall(query, receipt=True) for query in ("tea", "ferry"))
    store.audit.judge(second.receipt, good=[second[0].position])
    store.audit.judge(first.receipt, bad=[first[0].position])
    store.audit.judge(first.receipt, good=[first[0].position])
    found = store.audit.judgements()
    assert [(item.receipt, item.good, item.bad) for item in found] == [
        (first.receipt, (first[0].position,), ()),
        (second.receipt, (second[0].position,), ()),
    ]
    assert sum(isinstance(recorded.event, RecallJudged) for recorded in store.events()) == 3


def test_a_turn_that_was_not_found_can_be_good(store, talk):
    """If it was there when the recall was made."""
    answer = store.recall("when does the boat go?", k=1, mode="text", speakers=["Bob"], receipt=True)
    assert not answer
    ferry = talk.turns()[-1].position
    assert store.audit.judge(answer.receipt, good=[ferry]).good == (ferry,)
    later = talk.record("user", "The boat goes at ten.").position
    with pytest.raises(InvalidInput, match="recorded after the recall"):
        store.audit.judge(answer.receipt, good=[later])


def test_a_question_that_nothing_answers_is_judged_so(store, talk):
    """Whatever was found for it."""
    answer = store.recall("tea in a submarine", receipt=True)
    made = store.audit.judge(answer.receipt, bad=[answer[0].position], nothing=True)
    assert (made.nothing, made.good) == (True, ())
    assert store.audit.judgements()[0].nothing


@pytest.mark.local
def test_a_judgement_that_makes_no_sense_is_refused_and_nothing_is_written(store, talk):
    """With the reason."""
    answer = store.recall("tea", k=2, receipt=True)
    (good, bad), head = (hit.position for hit in answer), store.head()
    ferry = talk.turns()[-1].position
    for receipt, judged, why in (
        (2, {"nothing": True}, "no receipt is at position 2"),
        (0, {"nothing": True}, "no receipt is at position 0"),
        (999, {"nothing": True}, "position 999 is not in this log"),
        ("2", {"nothing": True}, "expected a position"),
        (answer.receipt, {}, "give turns that are good or bad"),
        (answer.receipt, {"bad": [ferry]}, f"position {ferry} is not in the answer"),
        (answer.receipt, {"good": [1]}, "position 1 is not a turn"),
        (answer.receipt, {"good": [answer.receipt]}, "is not a turn"),
        (answer.receipt, {"good": [good], "bad": [good, bad]}, "both good and bad"),
        (answer.receipt, {"good": [good], "nothing": True}, "says that no turn answers"),
        (answer.receipt, {"nothing": True, "by": "two\nlines"}, "control character"),
    ):
        with pytest.raises(InvalidInput, match=why):
            store.audit.judge(receipt, **judged)
    assert store.head() == head
    assert store.audit.judgements() == []


def test_a_judgement_changes_no_recall_and_no_audit(store, talk):
    """It is no turn and no receipt."""
    answer = store.recall("tea", receipt=True)
    before = store.recall("tea good judged", k=50).hits
    store.audit.judge(answer.receipt, good=[answer[0].position], by="tea")
    assert store.recall("tea good judged", k=50).hits == before
    audit = store.audit.receipts()
    assert (len(audit.receipts), audit.reproduced) == (1, 1)
    assert store.verify().sound


def test_a_judgement_of_a_forgotten_question_says_that_it_has_lost_its_use(store, talk):
    """So does one whose right answer was forgotten; neither shows what was forgotten."""
    asked, other = (store.recall(query, k=1, receipt=True) for query in ("tea", "ferry"))
    store.audit.judge(asked.receipt, good=[asked[0].position])
    right = next(turn.position for turn in talk.turns() if turn.position not in {hit.position for hit in other})
    store.audit.judge(other.receipt, good=[right])
    store.forget(positions=[asked.receipt, right], questions=False)
    lost, answerless = store.audit.judgements()
    assert (lost.receipt, lost.query, lost.unusable) == (asked.receipt, "", "its question was forgotten")
    assert answerless.unusable == f"right answers were forgotten: {right}"
    with pytest.raises(InvalidInput, match="was forgotten"):
        store.audit.judge(asked.receipt, nothing=True)
    with pytest.raises(InvalidInput, match="a turn that was forgotten"):
        store.audit.judge(other.receipt, good=[right])


@pytest.mark.local
def test_a_context_can_be_judged_too(store, talk):
    """By the receipt that it left: its question, and the turns that its recall found."""
    context = talk.context("When does the ferry leave?", receipt=True)
    ferry = talk.turns()[-1].position
    assert ferry in context.positions
    made = store.audit.judge(context.receipt, good=[ferry])
    assert (made.query, made.good) == ("When does the ferry leave?", (ferry,))
    store.forget(positions=[context.receipt])
    assert store.audit.judgements()[0].unusable == "its question was forgotten"
    with pytest.raises(InvalidInput, match="was forgotten"):
        store.audit.judge(context.receipt, nothing=True)


def test_a_store_that_is_only_read_takes_no_judgement(store, talk, folder):
    """Nothing is written."""
    receipt = store.recall("tea", receipt=True).receipt
    with MemoryStore.open(folder, model=None, read_only=True) as read, pytest.raises(errors.StoreNotWritable):
        read.audit.judge(receipt, nothing=True)
    assert store.audit.judgements() == []


def test_the_command_judges_hits_by_their_numbers(run, folder):
    """From 1, as `mnemolog recall` prints them; turns that were not found by their positions."""
    with MemoryStore.open(folder, model=None) as store:
        session = store.session("talk")
        for text in ("Green tea and more tea.", "The tea is gone.", "The ferry leaves at nine."):
            session.record("user", text)
        answer, context = store.recall("tea", receipt=True), store.context("tea", receipt=True).receipt
    first, second = (hit.position for hit in answer)
    receipt = answer.receipt
    shown = run("judge", folder, receipt, "--good", 2, "--bad", 1, "--good-turn", 4, "--by", "Ada")
    assert shown.stdout == f"receipt @{receipt} judged by Ada: good @{second}, @4; bad @{first}\n   tea\n"
    assert run("judge", folder, context, "--good-turn", 3).stdout == f"receipt @{context} judged: good @3\n   tea\n"
    found = run("judge", folder, receipt, "--nothing", "--json").json
    assert (found["receipt"], found["nothing"], found["good"]) == (receipt, True, [])
    for arguments, why in (
        ((context, "--good", 1), "--good: the turns of a context have no numbers: name one by --good-turn POSITION"),
        ((receipt, "--good", 3), "--good: there is no hit 3: the answer has 2"),
        ((2, "--good", 1), "RECEIPT: no receipt is at position 2"),
        ((receipt,), "--good: give turns that are good or bad"),
    ):
        assert why in run("judge", folder, *arguments).exited(2).stderr
    with MemoryStore.open(folder, model=None) as store:
        store.forget(positions=[receipt])
    assert "was forgotten" in run("judge", folder, receipt, "--nothing").exited(2).stderr
