"""Sessions of a store, their working memory, and sessions as they were at a position."""

from __future__ import annotations

import json
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Unpack, overload

from mnemolog.application import commands
from mnemolog.application.facts import FactHow, Facts
from mnemolog.application.session_service import Decision, Sessions, Switches
from mnemolog.application.visible_events import VisibleEvents, gated, gives_back
from mnemolog.domain import working_memory as memory
from mnemolog.domain.events import (
    CheckpointCreated,
    CheckpointRestored,
    Event,
    RecordedEvent,
    SessionStarted,
    TaskChanged,
)
from mnemolog.domain.head import known_at
from mnemolog.domain.message import Role, call_name, spoken_text
from mnemolog.domain.options import takes_options
from mnemolog.domain.result import Results, name_of
from mnemolog.domain.session import SessionState, checkpoint_of, cut, task_of
from mnemolog.domain.values import ORIGIN, Micros, Position, Time, When, checked_whole
from mnemolog.infra.runtime.fork_guard import OfOneProcess
from mnemolog.projections.context.answer import Context
from mnemolog.projections.context.packing import Tokenizer
from mnemolog.projections.context.service import TOKENS, Contexts, wanted
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import Prefetcher, PrefetchResult, Request, Ticket
from mnemolog.projections.recall.question import RecallOptions, SearchOptions, question
from mnemolog.projections.recall.service import TIMEOUT_S
from mnemolog.results import Checkpoint, NewTurn, Note, RestorePreview, Task


def messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Return turns, oldest first, as messages.

    Calls of tools that have an object as `input` are written as Anthropic does, and so are their results; all others as
    OpenAI does. Providers refuse a result without its call and a call without its result, so these are left out, but
    for calls of the last turn. So are turns that are distrusted.
    """
    turns = [turn for turn in turns if turn.distrusted is None]
    answered = {id_ for turn in turns for id_ in _answers(turn)}
    called, messages = set[str](), list[dict[str, Any]]()
    for turn in turns:
        answers = [id_ for id_ in _answers(turn) if id_ in called]
        if turn.role is Role.TOOL and _answers(turn) and not answers:
            continue
        calls = [call for call in turn.tool_calls if turn is turns[-1] or _id(call) in answered | {""}]
        called |= {_id(call) for call in calls}
        text = spoken_text(turn.text, turn.tool_calls)
        if text or calls:
            messages.append(_message(turn, text, calls, answers))
    return messages


def _message(turn: Turn, text: str, calls: list[Any], answers: list[str]) -> dict[str, Any]:
    if answers and "tool_call_id" not in turn.metadata:
        # A turn has one text for all its results: the first of them gets it.
        about = {"is_error": True} if turn.metadata.get("is_error") else {}
        texts = [text, *[""] * (len(answers) - 1)]
        parts: list[Any] = [
            {"type": "tool_result", "tool_use_id": id_, "content": part} | about
            for id_, part in zip(answers, texts, strict=True)
        ]
        return {"role": "user", "content": parts}
    if turn.role is Role.TOOL:
        function = {"role": "function", "name": turn.speaker} if turn.speaker else {"role": "tool"}
        return ({"role": "tool", "tool_call_id": answers[0]} if answers else function) | {"content": text}
    message: dict[str, Any] = {"role": turn.role.value, "content": text or None}
    if any(isinstance(call, dict) and isinstance(call.get("input"), dict) for call in calls):  # As Anthropic has it.
        texts_first = [{"type": "text", "text": text}] if text else []
        return message | {"content": [*texts_first, *({"type": "tool_use"} | call for call in calls)]}
    if len(calls) == 1 and not _id(calls[0]):
        return message | {"function_call": _function(calls[0])}
    return message | (
        {"tool_calls": [{"id": _id(call), "type": "function", "function": _function(call)} for call in calls]}
        if calls
        else {}
    )


def _answers(turn: Turn) -> list[str]:
    """Return the ids of the calls that a turn has the results of."""
    about = turn.metadata
    found = about.get("tool_use_ids") or [about.get("tool_call_id") or about.get("tool_use_id")]
    return [id_ for id_ in found if isinstance(id_, str) and id_]


def _id(call: Any) -> str:
    """Return the id of a call, empty if it has none."""
    return str(call.get("call_id") or call.get("id") or "") if isinstance(call, dict) else ""


def _function(call: Any) -> dict[str, str]:
    """Return name and arguments of a call as OpenAI has them: the arguments as JSON."""
    about = call.get("function", call) if isinstance(call, dict) else {}
    given: Any = next((about[name] for name in ("arguments", "args", "input") if about.get(name) is not None), {})
    return {"name": call_name(call), "arguments": given if isinstance(given, str) else json.dumps(given)}


@dataclass(frozen=True, kw_only=True)
class SessionParts:
    """The parts of a store that the handles on its sessions use."""

    visible: VisibleEvents
    sessions: Sessions
    facts: Facts
    switches: Switches
    projections: ProjectionSet
    contexts: Contexts
    prefetcher: Prefetcher


@gated("session.")
class MemoryView(ABC):
    """Working memory, read-only."""

    id: str

    @abstractmethod
    def _state(self) -> SessionState:
        """Return the state to read from. Raises `UnknownSession`."""

    @abstractmethod
    def _now(self) -> Micros:
        """Return the time at which expiry is judged."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key.

        - `key`: the key
        - `default`: what to return if it has no value, or its value has expired

        A stored `None` is returned as `None`; pass `default=mnemolog.MISSING` to tell the two apart. The result is
        a copy: changing it does not change working memory. Raises `InvalidInput` for a reserved key.
        """
        found = memory.value_at(self._state(), key, self._now())
        return default if found is memory.MISSING else found

    def keys(self, pattern: str | None = None) -> list[str]:
        """Return the keys that have a value, sorted.

        - `pattern`: only keys that match this glob (`*?[]`)
        """
        return memory.keys(self._state(), self._now(), pattern=pattern)

    def all(self) -> dict[str, Any]:
        """Return copies of all values, by key."""
        return memory.all_values(self._state(), self._now())

    def task(self) -> Task | None:
        """Return the task the session works on; None before `set_task`."""
        found = self._state().task
        return None if found is None else Task.of(found)

    @overload
    def notes(self, *, with_times: Literal[False] = False) -> list[str]: ...

    @overload
    def notes(self, *, with_times: Literal[True]) -> Results[Note]: ...

    def notes(self, *, with_times: bool = False) -> list[str] | Results[Note]:
        """Return the notes, oldest first.

        - `with_times`: also when each was added
        """
        found = memory.notes(self._state())
        return Results(Note.of(note) for note in found) if with_times else [note.text for note in found]

    def checkpoints(self) -> Results[Checkpoint]:
        """Return the checkpoints, including inherited ones, oldest first."""
        return Results(Checkpoint.of(found) for found in memory.checkpoints(self._state()))

    def lineage(self) -> list[str]:
        """Return the ids of the session's ancestors, root first, then its own."""
        return [*self._state().ancestors, self.id]


@gated("session.")
class WorkingMemory(MemoryView):
    """Working memory, readable and writable. Every change is durable when the call returns.

    Concurrent writers never lose each other's changes: each decides on the current state, under the log's write
    lock. A refused change writes nothing and raises `InvalidInput`, `LimitExceeded`, `MemoryFull`, `UnknownSession`
    or `SessionAlreadyEnded`.
    """

    _parts: SessionParts

    def set(self, key: str, value: Any, *, ttl: float | timedelta | None = None) -> None:
        """Set a key to a value.

        - `key`: up to 512 bytes; keys that start with `mnemolog.` are reserved
        - `value`: any JSON value, `None` included, up to 256 KiB
        - `ttl`: after how many seconds it expires; None for never
        """
        self._decide(
            lambda state, now: memory.set_value(
                self.id, state, key, value, now=now, ttl=ttl, limits=self._parts.sessions.limits
            )
        )

    def delete(self, key: str) -> bool:
        """Delete a key. Return whether it had a value; an expired value does not count.

        - `key`: the key
        """
        deletes = was_there = False

        def decision(state: SessionState | None, now: Micros) -> list[Event]:
            nonlocal deletes, was_there
            deletes = bool(events := memory.delete_value(self.id, state, key))
            was_there = deletes and state is not None and memory.value_at(state, key, now) is not memory.MISSING
            return events

        made = self._decide(decision)
        return was_there if deletes else bool(made)  # Made by an earlier try of this request.

    def clear(self) -> None:
        """Delete every key. Keeps task, notes and checkpoints."""
        self._decide(lambda state, _: memory.clear_values(self.id, state))

    @gives_back
    def set_task(
        self,
        description: str,
        *,
        step: int | None = None,
        total: int | None = None,
        percent: float | None = None,
        status: str = "active",
    ) -> Task:
        """Set the task the session works on, replacing the last.

        - `description`: the task, up to 16 KiB
        - `step`: the current step, from 0 to `total`
        - `total`: the number of steps
        - `percent`: progress, from 0 to 100
        - `status`: a word such as `active` or `done`
        """
        return self._task_after(
            self._decide(
                lambda state, _: memory.set_task(
                    self.id, state, description, step=step, total=total, percent=percent, status=status
                )
            )
        )

    def update_task(
        self,
        *,
        step: int | None = None,
        total: int | None = None,
        percent: float | None = None,
        status: str | None = None,
    ) -> Task:
        """Change fields of the task; None keeps the value of a field. Raises `NoTask`.

        - `step`: the current step, from 0 to `total`
        - `total`: the number of steps
        - `percent`: progress, from 0 to 100
        - `status`: a word such as `active` or `done`
        """
        return self._task_after(
            self._decide(
                lambda state, _: memory.update_task(
                    self.id, state, step=step, total=total, percent=percent, status=status
                )
            )
        )

    def note(self, text: str) -> None:
        """Append a note to the scratchpad.

        - `text`: the note, up to 64 KiB
        """
        self._decide(lambda state, _: memory.add_note(self.id, state, text, limits=self._parts.sessions.limits))

    def clear_notes(self) -> None:
        """Empty the scratchpad."""
        self._decide(lambda state, _: memory.clear_notes(self.id, state))

    @gives_back
    def checkpoint(self, name: str, description: str = "") -> Checkpoint:
        """Save this state under a name, for `restore`. Costs one small event, however much memory holds.

        - `name`: the name
        - `description`: what it is for, up to 4 KiB

        Raises `CheckpointExists` if the session has a checkpoint of that name.
        """
        created = self._decide(
            lambda state, _: memory.create_checkpoint(
                self.id,
                state,
                checkpoint_id=secrets.token_hex(8),
                name=name,
                description=description,
                limits=self._parts.sessions.limits,
            )
        )[-1]
        assert isinstance(created.event, CheckpointCreated)
        return Checkpoint.of(
            checkpoint_of(created.event, session=self.id, position=created.position, created_at=created.recorded_at)
        )

    @overload
    def restore(self, checkpoint: Checkpoint | str, *, dry_run: Literal[False] = False) -> Checkpoint: ...

    @overload
    def restore(self, checkpoint: Checkpoint | str, *, dry_run: Literal[True]) -> RestorePreview: ...

    def restore(self, checkpoint: Checkpoint | str, *, dry_run: bool = False) -> Checkpoint | RestorePreview:
        """Restore values, task and notes from a checkpoint, in one event.

        - `checkpoint`: the checkpoint, its id or its name
        - `dry_run`: write nothing; the answer is what a restore would change now

        Values that have expired since stay expired. All checkpoints are kept, later ones too. Turns after the
        checkpoint are hidden from the session's own recall. Raises `UnknownCheckpoint`.
        """
        wanted: str = name_of(checkpoint, Checkpoint, "checkpoint")
        if dry_run:
            return commands.restore_preview(self._parts.switches.preview_restore(self.id, wanted), now=self._now())
        # Fold and keep the state before taking the write lock: under the lock it is then only looked up.
        self._state()
        found: list[Checkpoint] = []

        def decision(state: SessionState | None, _: Micros) -> list[Event]:
            events = memory.restore_checkpoint(self.id, state, wanted)
            if state is not None:
                found.append(Checkpoint.of(memory.find_checkpoint(state, wanted)))
            return events

        made = self._decide(decision)
        if not found and isinstance(
            restored := made[-1].event, CheckpointRestored
        ):  # By an earlier try of this request.
            return Checkpoint.of(memory.find_checkpoint(self._state(), restored.id))
        return found[-1]

    def delete_checkpoint(self, checkpoint: Checkpoint | str) -> None:
        """Delete a checkpoint. Raises `UnknownCheckpoint`.

        - `checkpoint`: the checkpoint, its id or its name
        """
        wanted: str = name_of(checkpoint, Checkpoint, "checkpoint")
        self._decide(lambda state, _: memory.delete_checkpoint(self.id, state, wanted))

    def _decide(self, decision: Decision) -> list[RecordedEvent]:
        """Append the events that `decision` returns for the current state, under the write lock."""
        return self._parts.sessions.decide(self.id, decision)

    def _task_after(self, recorded: list[RecordedEvent]) -> Task:
        if recorded and isinstance(recorded[-1].event, TaskChanged):
            return Task.of(task_of(recorded[-1].event, changed_at=recorded[-1].recorded_at))
        found = self.task()  # Nothing changed.
        assert found is not None
        return found


@gated("session.")
class Session(OfOneProcess, WorkingMemory):
    """A conversation. A cheap handle: it holds no turns and no connection of its own."""

    def __init__(self, parts: SessionParts, session_id: str, started: SessionStarted) -> None:
        self._parts, self._visible = parts, parts.visible
        self.id = session_id
        self.title = started.title
        self.agent = started.agent
        self.scope = started.scope

    def __repr__(self) -> str:
        return f"Session({self.id!r}, title={self.title!r}, agent={self.agent!r}, scope={self.scope!r})"

    @gives_back
    def record(
        self,
        role: str | Mapping[str, Any],
        text: str | Sequence[Any] | None = None,
        *,
        key: str | None = None,
        said_at: Time | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[Any] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Record a turn. Durable when this returns.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            trip.record("user", "We could take the ferry.", speaker="Ada", key="message-1").position  # -> 2
            trip.record({"role": "assistant", "content": "It leaves at nine."}).role.value  # -> 'assistant'

        - `role`: `user`, `assistant`, `system` or `tool`; or one message as model providers write it
        - `text`: what was said, up to 1 MiB of UTF-8; or a list of parts (docs/messages.md); may be empty if tools are
          called, and then reads `[tool call: NAME]`, which search does not find
        - `key`: makes a retry safe: the same turn with the same key is recorded once, another raises `DuplicateKey`
        - `said_at`: when it was said: a `datetime` with a time zone, a `date` or ISO 8601 text; None for now
        - `speaker`: who said it
        - `tool_calls`: calls of tools, as JSON values of up to 64 KiB
        - `metadata`: JSON values by key, for filters, up to 64 KiB

        A role may be another provider's word for one of these. Of a list of parts, texts are joined, pictures and
        files are noted in the text as `[image]`, and calls of tools go to `tool_calls`. `said_at` is UTC where it
        names no zone, and lies between 0001-01-02 and 9999-12-30 in UTC.

        Raises `InvalidInput`, `SessionAlreadyEnded`, `DuplicateKey`, `LogBusy`, `StorageFull`, `StoreClosed`: in
        each case nothing was written.
        """
        return self._parts.sessions.record(
            self.id,
            role,
            text,
            key=key,
            speaker=speaker,
            said_at=said_at,
            tool_calls=tool_calls,
            metadata=metadata,
        ).turn()

    @gives_back
    def record_many(self, messages: Sequence[NewTurn | Mapping[str, Any]]) -> Results[Turn]:
        """Record messages in the order given, in one transaction. See `MemoryStore.record_many`.

        - `messages`: up to 10,000; each is a dict as in `record`, or a `NewTurn`
        """
        return Results(item.turn() for item in self._parts.sessions.record_many(messages, session_id=self.id))

    @takes_options
    def assert_fact(self, key: str, value: Any, **how: Unpack[FactHow]) -> Fact:
        """Say what a key has, in the scope of this session. Durable when this returns.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            said = trip.record("user", "I moved to Porto in March.")
            trip.assert_fact("user/city", "Porto", valid_from="2026-03", because=[said]).position  # -> 3
            store.fact("user/city").value  # -> 'Porto'

        - `key`: a path such as `user/city`
        - `value`: any JSON value; None from when on nothing is known
        - `**how`: see `FactHow`

        The fact names the session. Raises as `MemoryStore.assert_fact` does.
        """
        return self._parts.facts.assert_fact(key, value, scope=self.scope, session=self.id, **how)

    @takes_options
    def recall(
        self,
        query: str,
        k: int = 5,
        *,
        scope: str | Sequence[str] | None = None,
        lineage: bool = False,
        hidden: bool = False,
        after: str | None = None,
        as_of: When | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        receipt: bool | None = None,
        wait_for_model: bool = True,
        **options: Unpack[RecallOptions],
    ) -> Recall:
        """Recall from the sessions of the scope that this session has; without a scope, from the turns that it sees.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            trip.record("user", "By ferry or by train?")
            by_train = trip.branch("trip-by-train")
            trip.record("user", "By ferry.")
            [hit.text for hit in by_train.recall("ferry", mode="text")]  # -> ['By ferry or by train?']

        - `query`: what to look for, in plain words, up to 64 KiB
        - `k`: maximum number of turns, from 1 to 1,000
        - `scope`: only turns of sessions at or below this scope, or any of several; None for the scope of this session
        - `lineage`: only turns that this session sees, its own and those of its ancestors up to the branch point
        - `hidden`: also turns hidden by a rewind or a restore
        - `after`: for the next page, `Recall.next` of the page before; both see the same log
        - `as_of`: search what the session saw at this position or time of recording
        - `min_position`: require vectors up to this position, or raise `ProjectionBehind`
        - `timeout_s`: how long to wait for `min_position`, in seconds
        - `receipt`: record the question and the answer in the log; None: as the store was opened (`receipts`)
        - `wait_for_model`: False to answer by text alone while the model is not loaded yet
        - `**options`: see `RecallOptions`

        Of its own ancestors and their branches, only what it sees may answer (docs/scopes.md). `context_turns` and
        `exchange` of what it sees come from there, across the branch point. Raises `OutsideSession` if the session did
        not exist at `as_of`; otherwise like `MemoryStore.recall`.
        """
        self._visible.check_asked_for(self.id, options.get("asked_for"))
        return self._parts.contexts.recalls.ask(
            question(
                query, k=k, session=self.id, own=self.scope, scope=scope, lineage=lineage, hidden=hidden, **options
            ),
            as_of=as_of,
            min_position=min_position,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        ).recall

    @takes_options
    def context(
        self,
        query: str,
        tokens: int = TOKENS,
        *,
        scope: str | Sequence[str] | None = None,
        lineage: bool = False,
        hidden: bool = False,
        as_of: When | None = None,
        tokenizer: Tokenizer | None = None,
        receipt: bool | None = None,
        wait_for_model: bool = True,
        **options: Unpack[SearchOptions],
    ) -> Context:
        """Return the session's task, values and notes, and what it has on `query`, as a text for a prompt.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            trip.set_task("Book the ferry")
            "Book the ferry" in trip.context("What is next?", tokens=100).text  # -> True

        - `query`: what to look for, in plain words, up to 64 KiB
        - `tokens`: maximum size of the text; working memory gets at most half of it
        - `scope`: only turns of sessions at or below this scope, or any of several; None for the scope of this session
        - `lineage`: only turns that this session sees, its own and those of its ancestors up to the branch point
        - `hidden`: also turns hidden by a rewind or a restore
        - `as_of`: working memory and answer as of this position or time of recording
        - `tokenizer`: returns the number of tokens of a text; None to estimate it
        - `receipt`: record the question and what is shown in the log; None: as the store was opened (`receipts`)
        - `wait_for_model`: False to answer by text alone while the model is not loaded yet
        - `**options`: see `SearchOptions`

        Values that have expired, with `as_of` those that had expired then, are left out. Otherwise like
        `MemoryStore.context`.
        """
        self._visible.check_asked_for(self.id, options.get("asked_for"))
        asked = question(query, session=self.id, own=self.scope, scope=scope, lineage=lineage, hidden=hidden, **options)
        limits = wanted(tokens, tokenizer=tokenizer, of=self.id)
        return self._parts.contexts.ask(asked, limits, as_of=as_of, receipt=receipt, wait_for_model=wait_for_model)

    @takes_options
    def prefetch(
        self,
        query: str,
        *,
        k: int = 5,
        scope: str | Sequence[str] | None = None,
        lineage: bool = False,
        **options: Unpack[SearchOptions],
    ) -> Ticket:
        """Start a recall in the background and return at once. A newer prefetch of this session replaces it.

        - `query`: what to look for, in plain words, up to 64 KiB
        - `k`: maximum number of turns, from 1 to 1,000
        - `scope`: only turns of sessions at or below this scope, or any of several; None for the scope of this session
        - `lineage`: only turns that this session sees, its own and those of its ancestors up to the branch point
        - `**options`: see `SearchOptions`

        Only this session can take the answer. Raises `InvalidInput`, `UnknownSession`, `StoreClosed`, `StoreForked`.
        """
        where: dict[str, Any] = {"session": self.id, "own": self.scope, "scope": scope, "lineage": lineage}
        return self._parts.prefetcher.submit(Request(query=query, k=k, **where, options=options))

    def prefetch_result(self, *, max_behind: int | None = None, wait_s: float = 0.0) -> PrefetchResult:
        """Return the answer to this session's newest prefetch, once, or the reason why there is none.

        - `max_behind`: how many events may have been recorded since; None for any number
        - `wait_s`: how long to wait for a prefetch that runs, in seconds

        The answer is returned only while it is valid: since it was requested, no process has switched from or to this
        session, rewound or restored it, or activated another model, and the log has at most `max_behind` newer events.
        An error in the background is not raised: it is in `PrefetchResult.error`. Raises `InvalidInput`.
        """
        return self._parts.prefetcher.take(self.id, max_behind=max_behind, wait_s=wait_s)

    def turns(
        self,
        *,
        after: When = ORIGIN,
        before: When | None = None,
        limit: int = 1_000,
        newest_first: bool = False,
        last: int | None = None,
        hidden: bool = False,
    ) -> Results[Turn]:
        """Return turns that the session sees, oldest first.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            trip.record_many([{"role": "user", "content": word} for word in ("one", "two", "three")])
            [turn.text for turn in trip.turns(last=2)]  # -> ['two', 'three']

        - `after`: only turns recorded after this position or time
        - `before`: only turns recorded before this position or time
        - `limit`: maximum number of turns
        - `newest_first`: newest turns first
        - `last`: only so many of the last turns, in order, whatever `limit` is
        - `hidden`: also turns hidden by a rewind or a restore

        If turns are left out, `next` of the answer is the position to pass for those: as `after`, or as `before` with
        `newest_first` or `last`. Raises `InvalidInput`.
        """
        spans = self._parts.visible.spans(self.id, hidden=hidden)
        return self._parts.projections.turns_in(
            spans, after=after, before=before, limit=limit, newest_first=newest_first, last=last
        )

    def messages(self, *, limit: int = 1_000) -> Results[dict[str, Any]]:
        """Return the last turns that the session sees as messages for the next call of a model.

            store = MemoryStore.open("memory/", model=None)
            trip = store.session("trip")
            trip.record("user", "Is the ferry late?")
            trip.messages()  # -> [{'role': 'user', 'content': 'Is the ferry late?'}]

        - `limit`: maximum number of turns

        They have the form in which they were recorded, OpenAI's or Anthropic's, with calls and results of tools. A
        result without its call is left out, as is a call without its result, but for calls of the last turn: providers
        refuse them. Names of speakers are not in it. There are earlier turns if `next` is set. Raises `InvalidInput`.
        """
        turns = self.turns(last=checked_whole("limit", limit))
        messages = Results(messages_of(turns))
        messages.next = turns.next
        return messages

    def rewind(self, *, turns: int | None = None, to: When | None = None, dry_run: bool = False) -> int:
        """Hide the last turns that the session sees. Return how many turns that were.

        - `turns`: how many
        - `to`: instead of a number: all turns recorded after this position or time
        - `dry_run`: write nothing; the number is what would be hidden

        They stay in the log and in `turns(hidden=True)`. Working memory is not changed; see `restore`.
        Raises `InvalidInput`, `OutsideSession`, `SessionAlreadyEnded`.
        """
        return self._parts.switches.rewind(self.id, turns=turns, to=to, dry_run=dry_run)

    @gives_back
    def branch(
        self, to: str | None = None, *, at: Checkpoint | When | None = None, title: str | None = None
    ) -> Session:
        """Start a session that continues from here, or from a checkpoint, position or time of this one.

        - `to`: the new session's id; None for a random one
        - `at`: a position, a time of recording, or a checkpoint, its id or its name; None for here
        - `title`: its title; None for that of this session

        It sees the turns up to that point and starts with the working memory of that point. This session is not
        changed, and the agent stays in it: `MemoryStore.switch(reason="branch")` also moves the agent. Raises
        `UnknownCheckpoint` for text that is neither a checkpoint nor a time, `OutsideSession`.
        """
        position = at.position if isinstance(at, Checkpoint) else at
        made = self._parts.switches.branch(self.id, to, at=position, title=title)
        return Session(self._parts, made.to, made.started)

    def end(self, *, reason: str = "ended") -> None:
        """End the session: no more turns can be recorded in it. Ending it again changes nothing.

        - `reason`: why it ended
        """
        self._parts.sessions.end(self.id, reason=reason)

    def at(self, when: When) -> SessionAt:
        """Return a read-only view of the session as it was at a position, or at a time of recording.

        - `when`: the position or the time

        Raises `OutsideSession` if it did not exist then, `InvalidInput` for a position that is not in the log.
        """
        position, moment = known_at("at", when, self._parts.visible.log)
        return SessionAt(self._parts, self._parts.visible.state_at(self.id, position), position=position, moment=moment)

    def _state(self) -> SessionState:
        return self._parts.visible.state(self.id)

    def _now(self) -> Micros:
        return self._parts.sessions.clock.now()


@gated("session.")
class SessionAt(MemoryView):
    """A session as it was at a position of the log, read-only. Expiry of values is judged at that time."""

    def __init__(self, parts: SessionParts, state: SessionState, *, position: Position, moment: Micros) -> None:
        self._projections = parts.projections
        self._visible = parts.visible
        self._then = state
        self.id, self.position = state.session, position
        self._moment = moment

    def __repr__(self) -> str:
        return f"SessionAt({self.id!r}, position={self.position})"

    @property
    def ended(self) -> bool:
        """Whether the session had ended."""
        return self._then.ended

    def turns(
        self,
        *,
        after: When = ORIGIN,
        before: When | None = None,
        limit: int = 1_000,
        newest_first: bool = False,
        last: int | None = None,
    ) -> Results[Turn]:
        """Return turns that the session saw then, as `Session.turns` does.

        - `after`: only turns recorded after this position or time
        - `before`: only turns recorded before this position or time
        - `limit`: maximum number of turns
        - `newest_first`: newest turns first
        - `last`: only so many of the last turns, in order, whatever `limit` is
        """
        spans = cut(self._then.spans, upto=self.position)
        return self._projections.turns_in(
            spans, after=after, before=before, limit=limit, newest_first=newest_first, last=last
        )

    def _state(self) -> SessionState:
        return self._then

    def _now(self) -> Micros:
        return self._moment
