"""What a line of a transcript means for sessions: decided without a store or a file."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from mnemolog.adapters.importers.entry import Compacted, Entry, Undone
from mnemolog.adapters.importers.keys import KeyMaker
from mnemolog.adapters.importers.transcripts.interpreter import TranscriptInterpreter, scope_of
from mnemolog.adapters.importers.transcripts.steps import AlreadyThere, Branch, ReadState, Say, Settle, Start, Switch
from mnemolog.adapters.importers.turn import SaidTurn, TurnMaker
from mnemolog.domain.limits import SCOPE_BYTES_MAX

HUGE = 1 << 60


class Log:
    """What a log would know: turns by session, where sessions left others, what is hidden, switches by key."""

    def __init__(self):
        self.said, self.parents, self.hidden, self.switches = {}, {}, {}, {}
        self.positions = count(1)
        self.last = 0

    def take(self, step):
        """Do what was decided, as a store would."""
        match step:
            case Say(name, turns):
                for turn in (turn for turn in turns if turn.key not in self.said[name]):
                    self.last = next(self.positions)
                    self.said[name][turn.key] = (self.last, turn.role)
            case Start():
                self.begin(step.session)
            case Branch():
                self.begin(step.session, step.left, step.at)
            case Switch():
                self.last = next(self.positions)
                self.switches[step.key] = self.last
                if step.to is not None:
                    self.begin(step.to, step.left, step.at or self.last if step.left else None)
                elif step.reason == "rewind":
                    self.hidden.setdefault(step.left, []).append((step.at, self.last))

    def begin(self, name, left=None, at=None):
        self.said[name] = {}
        if left is not None:
            self.parents[name] = (left, at)

    def head(self):
        return self.last

    def of(self, session):
        return [name for name in self.said if name == session or name.startswith(f"{session}~")]

    def ancestors(self, session):
        parent = self.parents.get(session)
        return () if parent is None else (*self.ancestors(parent[0]), parent[0])

    def at(self, session, key):
        return self.said.get(session, {}).get(key, (None,))[0]

    def anywhere(self, key):
        return next((name for name, turns in self.said.items() if key in turns), None)

    def inherited(self, session, key):
        parent, upto = self.parents.get(session, (None, 0))
        while parent is not None:
            found = self.at(parent, key)
            if found is not None and found <= upto:
                return parent
            parent, left_at = self.parents.get(parent, (None, 0))
            upto = min(upto, left_at)
        return None

    def reached(self, session, key):
        return self.at(self.inherited(session, key) or session, key)

    def end_of_line(self, anchor):
        return anchor.at or self.at(anchor.session, anchor.key)

    def seen(self, session, upto=HUGE):
        parent, left_at = self.parents.get(session, (None, 0))
        before = self.seen(parent, min(upto, left_at)) if parent else []
        own = [(position, session, key, role) for key, (position, role) in self.said[session].items()]
        spans = [span for span in self.hidden.get(session, []) if span[1] <= upto]
        everything = before + [turn for turn in own if turn[0] <= upto]
        return [turn for turn in everything if not any(after < turn[0] < made for after, made in spans)]

    def sees(self, session, other, position):
        return any((at, name) == (position, other) for at, name, _, _ in self.seen(session))

    def user_spoke_after(self, session, position):
        return any(at > position and role == "user" for at, _, _, role in self.seen(session))

    def is_end(self, session, position):
        return not any(at > position for at, _, _, _ in self.seen(session))

    def turns(self, session, after):
        for name in (*self.ancestors(session), session):
            for key, (position, _) in self.said[name].items():
                if position > after:
                    yield SimpleNamespace(session=name, key=key, position=position)

    def switched(self, agent, key):
        return self.switches.get(key)


def turn(key, session, role):
    return TurnMaker(Path("t.jsonl"), KeyMaker()).turn(SaidTurn(session=session, role=role, text=key, key=key), 1)


class Talk:
    """Lines of one transcript, decided on and done."""

    def __init__(self, log, **options):
        self.log, self.state, self.links = log, ReadState(), {}
        self.interpreter = TranscriptInterpreter(log, self.state, self.links, agent="coder", **options)
        self.last = None

    def line(self, name, *, session="s", follows="", role=None, **fields):
        """Take in a line. Return what was decided, but for what only waits."""
        turns = [] if role is None else [turn(name, session, role)]
        after = self.last if follows == "" else follows
        entry = Entry(session=session, turns=turns, name=name, follows=after, asks=role == "user", **fields)
        self.last = name
        done = []
        for step in self.interpreter.interpret(entry):
            self.log.take(step)
            done += [] if isinstance(step, Settle) else [step]
        return done

    def ask(self, name, **fields):
        return self.line(name, role="user", **fields)

    def answer(self, name, **fields):
        return self.line(name, role="assistant", **fields)


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def talk(log):
    """Two questions and their answers."""
    talk = Talk(log)
    talk.ask("q1")
    talk.answer("a1")
    talk.ask("q2")
    talk.answer("a2")
    return talk


def said_in(steps):
    """Return the session in which the last step says something, and the keys."""
    return steps[-1].session, [turn.key for turn in steps[-1].turns]


def test_the_first_line_starts_its_session(log):
    """In the working folder, unless a scope is given."""
    new, say = Talk(log).ask("q1", folder="/home/ada/kettle")
    assert (new.reason, new.to, new.left, new.scope) == ("new", "s", None, "home/ada/kettle")
    assert isinstance(say, Say)
    new, _ = Talk(log, scope="ada").ask("q2", session="t", folder="/home/ada/kettle")
    assert new.scope == "ada"


def test_a_line_that_continues_the_one_before_needs_no_lookup(talk):
    """Nearly all lines do, so their turns can be recorded in batches."""
    talk.interpreter._lookup = None
    assert said_in(talk.answer("a3")) == ("s", ["a3"])


def test_turns_in_the_log_stay_in_their_sessions(log, talk):
    """A second read from the beginning changes no decision."""
    again = Talk(log)
    assert said_in(again.ask("q1")) == ("s", ["q1"])
    assert again.log.of("s") == ["s"]


def test_a_question_in_place_of_an_earlier_one_is_a_rewind(log, talk):
    """It has a key, so it is made once."""
    rewind, say = talk.ask("q3", follows="a1")
    assert rewind == Switch(reason="rewind", left="s", at=log.at("s", "a1"), key="s/q3")
    assert said_in([say]) == ("s", ["q3"])


def test_an_answer_beside_another_one_is_not_a_rewind(talk):
    """Results of parallel tool calls continue the same line."""
    assert said_in(talk.answer("a3", follows="q2")) == ("s", ["a3"])


def test_a_line_that_continues_a_hidden_one_is_a_branch(log, talk):
    """Its name is derived from its first turn; later lines follow."""
    left = log.at("s", "a2")
    talk.ask("q3", follows="a1")
    branch, say = talk.answer("a3", follows="a2")
    assert (branch.reason, branch.to, branch.left, branch.at) == ("branch", "s~a3", "s", left)
    assert said_in([say]) == ("s~a3", ["a3"])
    assert said_in(talk.answer("a4")) == ("s~a3", ["a4"])


def test_a_line_that_is_written_again_is_already_there(talk):
    """Whichever line the copy names as its parent."""
    assert talk.answer("a1", follows="q1") == [AlreadyThere(1)]


def test_copies_start_no_session_until_something_new_is_said(log, talk):
    """Then it is a branch from where the copies end."""
    fork = Talk(log)
    assert fork.ask("q1", session="f", follows=None) == [AlreadyThere(1)]
    assert fork.answer("a1", session="f") == [AlreadyThere(1)]
    branch, say = fork.ask("q9", session="f")
    assert (branch.reason, branch.to, branch.left, branch.at) == ("branch", "f", "s", log.at("s", "a1"))
    assert said_in([say]) == ("f", ["q9"])


@pytest.mark.parametrize("follows", ["gone", None])
def test_a_fork_that_continues_an_unknown_line_is_a_branch(log, talk, follows):
    """It begins with copies: the branch starts where they end."""
    fork = Talk(log)
    fork.ask("q1", session="f", follows=None)
    fork.answer("a1", session="f")
    branch, _ = fork.ask("q9", session="f", follows=follows)
    assert (branch.reason, branch.to, branch.left, branch.at) == ("branch", "f", "s", log.at("s", "a1"))


def test_an_edit_in_a_fork_refers_to_the_session_it_was_copied_from(log, talk):
    """Another session has the continued line as well, and would be found first."""
    fork = Talk(log)
    fork.ask("q1", session="t")
    fork.answer("a1", session="t")
    fork.ask("q5", session="t")
    log.said = {"other": dict(log.said["s"]), **log.said}
    (rewind, say) = fork.ask("q6", session="t", follows="a1")
    assert (rewind.reason, rewind.left, rewind.at, say.session) == ("rewind", "t", log.at("s", "a1"), "t")


def test_the_result_of_a_copied_call_comes_after_all_copies(log, talk):
    """Of two parallel calls, both copied, the result of the first continues the first."""
    talk.answer("c1")
    talk.answer("c2")
    fork = Talk(log)
    for name in ("q1", "a1", "q2", "a2", "c1", "c2"):
        fork.line(name, session="t", role="user" if name in ("q1", "q2") else "assistant")
    (branch, say) = fork.line("r1", session="t", role="tool", follows="c1")
    assert (branch.reason, branch.left, branch.at, say.session) == ("branch", "s", log.at("s", "c2"), "t")
    assert fork.line("r2", session="t", role="tool", follows="c2")[-1].session == "t"


def test_a_copy_with_a_derived_key_has_to_be_in_the_same_place(log, talk):
    """The same words elsewhere are a new turn."""
    fork = Talk(log)
    how = {"session": "f", "follows": None, "copied_from": "s", "recounted": True}
    assert fork.ask("q1", **how) == [AlreadyThere(1)]
    assert fork.ask("q2", **how)[-1].session == "f"


def test_a_compaction_is_recorded_with_the_turn_after_it(log, talk):
    """That turn shows which session it belongs to. Reading it again records nothing."""
    assert talk.line("c1", move=Compacted("c1")) == []
    compress, say = talk.ask("q3", follows="c1")
    assert compress == Switch(reason="compress", left="s", key="s/c1")
    assert said_in([say]) == ("s", ["q3"])
    again = Talk(log)
    again.ask("q1", follows=None)
    for name in ("a1", "q2", "a2"):
        again.answer(name)
    again.line("c1", move=Compacted("c1"))
    assert said_in(again.ask("q3", follows="c1")) == ("s", ["q3"])


def test_a_compaction_that_continues_elsewhere_ends_the_old_session(log, talk):
    """The first turn after it belongs to another session."""
    talk.line("c1", move=Compacted("c1"))
    compress, _ = talk.ask("q3", session="t", follows="c1")
    assert (compress.reason, compress.to, compress.left, compress.key) == ("compress", "t", "s", "s/c1")


def test_undone_turns_are_hidden_once(log, talk):
    """From the first turn that was undone."""
    undone = Undone("u1", "q2")
    assert talk.line(None, move=undone) == [Switch(reason="rewind", left="s", at=log.at("s", "q2") - 1, key="s/u1")]
    assert talk.line(None, move=undone) == []


def test_a_subagent_is_started_below_its_parent(log, talk):
    """The parent is started too, if it is unknown."""
    start, _ = Talk(log).ask("b1", session="s/7", follows=None, works_for="s")
    assert (start.session, start.parent) == ("s/7", "s")
    other, start, _ = Talk(log).ask("b2", session="x/1", follows=None, works_for="x")
    assert (other.session, other.parent, start.session, start.parent) == ("x", None, "x/1", "x")


def test_lines_without_turns_stand_for_the_turn_that_they_continue(log, talk):
    """An edit may continue such a line."""
    talk.line("h1", follows="a1")
    rewind, _ = talk.ask("q3", follows="h1")
    assert rewind.at == log.at("s", "a1")


def test_a_line_that_continues_an_unknown_one_continues_the_session(talk):
    """In doubt nothing is hidden."""
    assert said_in(talk.ask("q3", follows="gone")) == ("s", ["q3"])


def test_a_refused_step_leaves_no_trace_of_its_line(log):
    """The next line is interpreted as if that one were missing."""
    talk = Talk(log)
    steps = talk.interpreter.interpret(Entry(session="s", turns=[turn("q1", "s", "user")], name="q1", asks=True))
    assert isinstance(next(steps), Settle)
    assert next(steps).reason == "new"
    steps.close()
    assert talk.state.cursors == {}
    new, _ = talk.ask("q2", follows=None)
    assert new.to == "s"


@pytest.mark.parametrize(
    ("folder", "scope"),
    [
        ("/home/ada/kettle", "home/ada/kettle"),
        ("C:\\Users\\ada", "C:/Users/ada"),
        ("/a/../*/b\n", "a/b_"),
        ("", ""),
        ("/" + "x" * SCOPE_BYTES_MAX + "/end", "end"),
    ],
)
def test_a_folder_is_cut_to_a_scope(folder, scope):
    """As much of its end as fits."""
    assert scope_of(folder) == scope
