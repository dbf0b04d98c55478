"""A handle on one session: record, recall, working memory, rewind and branch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from mnemolog.application.facts import FactHow
from mnemolog.application.prompt_messages import messages_of
from mnemolog.application.read_audit import gated, gives_back
from mnemolog.domain.events import SessionStarted
from mnemolog.domain.head import known_at
from mnemolog.domain.limits import checked_whole
from mnemolog.domain.options import takes_options
from mnemolog.domain.position import ORIGIN, Micros, Position, Time, When
from mnemolog.domain.result import Results
from mnemolog.domain.session import SessionState, cut
from mnemolog.infra.runtime.fork_guard import OfOneProcess
from mnemolog.projections.context.answer import Context
from mnemolog.projections.context.service import TOKENS, wanted
from mnemolog.projections.context.token_counting import Tokenizer
from mnemolog.projections.read_models import Fact, Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import PrefetchResult, Request, Ticket
from mnemolog.projections.recall.question import RecallOptions, SearchOptions, question
from mnemolog.projections.recall.service import TIMEOUT_S
from mnemolog.results import Checkpoint, NewTurn
from mnemolog.working_memory import MemoryView, SessionParts, WorkingMemory


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
        recorded = self._parts.sessions.record_many(messages, session_id=self.id)
        return Results(item.turn() for item in recorded)

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
        asked = question(
            query, k=k, session=self.id, own=self.scope, scope=scope, lineage=lineage, hidden=hidden, **options
        )
        return self._parts.contexts.recalls.ask(
            asked,
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
        asked = Request(query=query, k=k, **where, options=options)
        return self._parts.prefetcher.submit(asked)

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
        state = self._parts.visible.state_at(self.id, position)
        return SessionAt(self._parts, state, position=position, moment=moment)

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
