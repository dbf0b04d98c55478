"""What sessions and agents do. Each number of a step is taken modulo what there is, so every step always fits."""

from __future__ import annotations

import functools
from typing import Any

from mnemolog import MISSING, NewTurn
from mnemolog.adapters.support.framework_sessions import reconcile
from mnemolog.domain import errors
from tests.faults.simulation.model import SECOND, SessionThen
from tests.faults.simulation.world import SCOPES, SESSIONS_MAX, Mismatch, World, agree

VALUE_KEYS = ("a", "b", "user/a")
VALUES: tuple[Any, ...] = (None, False, 0, 1.5, "", "text", [], {"x": [None, 1]})
TTLS = (None, None, 0.5, 3, 10)
BATCH_MAX = 5

do = functools.partial


class Conversations(World):
    """Steps of sessions, their memory, and the agent."""

    def _room(self) -> bool:
        return len(self.model.sessions) < SESSIONS_MAX

    def start(self, which: int, *_: int) -> str | None:
        if not self._room():
            return None
        name, scope = self.new_name("s"), SCOPES[which % len(SCOPES)]
        self.append(
            lambda: self.store.session(name, scope=scope, title=name),
            do(self.model.started, name, scope=scope),
        )
        return name

    def record(self, which: int, what: int, *_: int) -> str:
        then, session = self.pick(which)
        text = f"{self.words(what)} {self.new_name('n')}"
        turn = self.change(then, lambda: session.record("user", text), do(self.model.said, then.name, text))
        if turn is not None:
            agree((turn.position, turn.text), (self.model.head, text), "the turn recorded")
        return then.name

    def record_keyed(self, which: int, what: int, again: int, *_: int) -> str:
        """With a key, then again with it: the same turn, and another text refused."""
        then, session = self.pick(which)
        key = f"k{again % 6}"
        if (then.name, key) in self.model.lost_keys:
            self.refused(errors.ContentForgotten, lambda: session.record("user", "again", key=key))
            return then.name
        found = self.model.keys.get((then.name, key))
        if found is None:
            text = f"{self.words(what)} {self.new_name('n')}"
            fact = do(self.model.said, then.name, text, key=key)
            self.change(then, lambda: session.record("user", text, key=key), fact)
            found = self.model.keys.get((then.name, key))
            if found is None:
                return then.name
        turn = self.append(lambda: session.record("user", found.text, key=key))
        if turn is not None:
            agree((turn.position, turn.text), found[:2], "the turn of a retry")
        self.refused(errors.DuplicateKey, lambda: session.record("user", "other", key=key))
        return then.name

    def batch(self, which: int, what: int, count: int, bad: int) -> str | None:
        """Turns of several sessions in one append; one of an ended session refuses them all."""
        names = list(self.model.sessions)
        chosen = [names[(which + n * bad) % len(names)] for n in range(1 + count % BATCH_MAX)]
        texts = [f"{self.words(what + n)} {self.new_name('n')}" for n in range(len(chosen))]
        turns = [NewTurn(session=name, role="user", text=text) for name, text in zip(chosen, texts, strict=True)]

        def call() -> Any:
            return self.store.record_many(turns)

        if any(self.model.sessions[name].ended for name in chosen):
            self.refused(errors.SessionAlreadyEnded, call)
        else:
            facts = [do(self.model.said, name, text) for name, text in zip(chosen, texts, strict=True)]
            found = self.append(call, *facts)
            if found is not None:
                agree([turn.text for turn in found], texts, "the batch recorded")
        return chosen[0]

    def reconcile(self, which: int, left_out: int, new: int, *_: int) -> str:
        then, session = self.pick(which)
        if any(said.position <= self.model.adopted for said in then.visible):
            return then.name  # Who said them is nothing that the model knows.
        texts = [said.text for said in then.visible]
        if texts:
            del texts[left_out % len(texts)]
        added = [f"{self.words(new + n)} {self.new_name('n')}" for n in range(new % 3)]
        messages = [{"role": "user", "text": text} for text in [*texts, *added]]
        if added:
            facts = [do(self.model.said, then.name, text) for text in added]
            self.change(then, lambda: reconcile(session, messages), *facts)
        else:
            self.append(lambda: reconcile(session, messages))
        return then.name

    def set(self, which: int, key: int, value: int, ttl: int) -> str:
        then, session = self.pick(which)
        name, stored, lasts = VALUE_KEYS[key % 3], VALUES[value % len(VALUES)], TTLS[ttl % len(TTLS)]
        ends = None if lasts is None else self.clock.now() + round(lasts * SECOND)
        fact = do(self.model.value_set, then.name, name, stored, ends=ends)
        self.change(then, lambda: session.set(name, stored, ttl=lasts), fact, maybe=True)
        return then.name

    def delete(self, which: int, key: int, *_: int) -> str:
        then, session = self.pick(which)
        name = VALUE_KEYS[key % 3]
        there = name in then.values_at(self.clock.now())
        found = self.change(
            then, lambda: session.delete(name), do(self.model.value_deleted, then.name, name), maybe=True
        )
        if found is not None:
            agree(found, there, f"whether {name} was there")
        return then.name

    def clear(self, which: int, what: int, *_: int) -> str:
        then, session = self.pick(which)
        if what % 2:
            self.change(then, session.clear, do(self.model.values_cleared, then.name), maybe=True)
        else:
            self.change(then, session.clear_notes, do(self.model.notes_cleared, then.name), maybe=True)
        return then.name

    def look_up(self, which: int, key: int, *_: int) -> str:
        """One value, which may be None, missing or expired."""
        then, session = self.pick(which)
        name = VALUE_KEYS[key % 3]
        agree(session.get(name, MISSING), then.values_at(self.clock.now()).get(name, MISSING), f"{name} of {then.name}")
        return then.name

    def task(self, which: int, step: int, update: int, *_: int) -> str:
        then, session = self.pick(which)
        name, step = then.name, step % 4  # No task of an old store has more of them.
        if update % 2 == 0:
            fact = do(self.model.task_changed, name, f"task {step}", step)
            self.change(then, lambda: session.set_task(f"task {step}", step=step), fact)
        elif then.memory.task is None and not then.ended:
            self.refused(errors.NoTask, lambda: session.update_task(step=step))
        else:
            before = then.memory.task
            changes = before is not None and before.step != step
            facts = [do(self.model.task_changed, name, before.description, step)] if before and changes else []
            self.change(then, lambda: session.update_task(step=step), *facts)
        return name

    def note(self, which: int, *_: int) -> str:
        then, session = self.pick(which)
        text = self.new_name("note ")
        self.change(then, lambda: session.note(text), do(self.model.noted, then.name, text))
        return then.name

    def checkpoint(self, which: int, *_: int) -> str:
        then, session = self.pick(which)
        called = self.new_name("c")
        made = self.change(then, lambda: session.checkpoint(called), do(self.model.checkpointed, then.name, called))
        if made is not None:
            agree(made.position, self.model.head, "position of a checkpoint")
        return then.name

    def restore(self, which: int, what: int, delete: int, *_: int) -> str | None:
        names = [name for name, then in self.model.sessions.items() if then.checkpoints]
        if not names:
            return None
        then, session = self.model.sessions[names[which % len(names)]], None
        session = self.store.session(then.name)
        called = then.checkpoints[what % len(then.checkpoints)][0]
        if delete % 4 == 0:
            fact = do(self.model.checkpoint_deleted, then.name, called)
            self.change(then, lambda: session.delete_checkpoint(called), fact)
        else:
            self.change(then, lambda: session.restore(called), do(self.model.restored, then.name, called))
        return then.name

    def rewind(self, which: int, turns: int, *_: int) -> str:
        then, session = self.pick(which)
        count = 1 + turns % 4
        hidden = len(then.visible[-count:])
        fact = do(self.model.rewound, then.name, to=self._before(then, count))
        found = self.change(then, lambda: session.rewind(turns=count), fact, maybe=True)
        if found is not None:
            agree(found, hidden, "turns that were hidden")
        return then.name

    def end(self, which: int, *_: int) -> str:
        then, session = self.pick(which)
        facts = [] if then.ended else [do(self.model.ended, then.name)]
        self.append(session.end, *facts)
        return then.name

    def branch(self, which: int, where: int, at: int, *_: int) -> str | None:
        if not self._room():
            return None
        then, session = self.pick(which)
        name, head = self.new_name("b"), self.model.head
        if at % 3 == 0 and then.checkpoints:
            called, position, _memory = then.checkpoints[where % len(then.checkpoints)]
            if position < then.started:
                self.refused(errors.OutsideSession, lambda: session.branch(name, at=called, title=name))
                return then.name
            asked: str | int | None = called
        elif at % 3 == 1:
            asked = position = then.started + where % (head + 1 - then.started)
        else:
            asked, position = None, head
        fact = do(self.model.branched, name, parent=then.name, at=position)
        self.append(lambda: session.branch(name, at=asked, title=name), fact)
        return name if name in self.model.sessions else then.name

    # What the agent does.

    def resume(self, which: int, *_: int) -> str:
        then, _session = self.pick(which)
        facts = [do(self.model.resumed, then.name)] if then.ended else []
        self.append(
            lambda: self.store.switch(to=then.name, reason="resume"), *facts, do(self.model.switched, then.name)
        )
        return then.name

    def switch(self, reason: int, *_: int) -> str | None:
        """To a session that is new."""
        if not self._room():
            return None
        name, head, old = self.new_name("s"), self.model.head, self.model.now.agent
        why = ("new", "reset", "branch", "compress")[reason % 4]

        def call() -> Any:
            return self.store.switch(name, reason=why, title=name, scope="" if old is None else None)

        if old is None and why != "new":
            self.refused(errors.SwitchRefused, call)
            return None
        facts = [do(self.model.started, name, scope=self.model.sessions[old].scope if old else "")]
        if why in ("branch", "compress"):
            assert old is not None
            facts = [do(self.model.branched, name, parent=old, at=head)]
        if why in ("reset", "compress") and old is not None and not self.model.sessions[old].ended:
            facts.append(do(self.model.ended, old))
        self.append(call, *facts, do(self.model.switched, name))
        return self.model.now.agent

    def switch_in_place(self, turns: int, reason: int, *_: int) -> str | None:
        old, count = self.model.now.agent, 1 + turns % 3
        why = ("compress", "rewind")[reason % 2]
        asked = {"turns": count} if why == "rewind" else {}

        def call() -> Any:
            return self.store.switch(reason=why, **asked)  # type: ignore[arg-type]

        if old is None or self.model.sessions[old].ended:
            self.refused(errors.SwitchRefused if old is None else errors.SessionAlreadyEnded, call)
            return old
        then = self.model.sessions[old]
        rewinds = why == "rewind" and then.visible
        facts = [do(self.model.rewound, old, to=self._before(then, count))] if rewinds else []
        self.append(call, *facts, do(self.model.switched, old))
        return old

    def rewind_to_a_new_session(self, turns: int, *_: int) -> str | None:
        old = self.model.now.agent
        if old is None or not self._room():
            return None
        then, count, name = self.model.sessions[old], 1 + turns % 3, self.new_name("r")
        at = self._before(then, count)

        def call() -> Any:
            return self.store.switch(name, reason="rewind", turns=count, title=name)

        if at < then.started:
            self.refused(errors.OutsideSession, call)
            return old
        self.append(call, do(self.model.branched, name, parent=old, at=at), do(self.model.switched, name))
        return self.model.now.agent

    def _before(self, then: SessionThen, count: int) -> int:
        """The position behind which lie the last turns that a session sees."""
        hidden = then.visible[-count:]
        return hidden[0].position - 1 if hidden else self._last_position_of(then.name)

    def _last_position_of(self, name: str) -> int:
        """The position of the last event in a session's stream: where what the model has of it changed last."""
        past = self.model.past
        for position in range(self.model.head, 0, -1):
            if past[position].sessions.get(name) is not past[position - 1].sessions.get(name):
                return position
        raise Mismatch(f"{name} was never started")
