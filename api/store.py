"""The store: the main entry point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from msgspec.structs import replace

from mnemolog import composition
from mnemolog.application import commands
from mnemolog.application.facts import Distrust, FactHow, FactWhen, ending
from mnemolog.application.session_service import SwitchHow
from mnemolog.application.visible_events import gated, gives_back
from mnemolog.audit.verification import kept_outside, verify_store
from mnemolog.defaults import DEFAULT_AGENT
from mnemolog.domain import errors
from mnemolog.domain.events import Act, RecordedEvent, SessionStarted
from mnemolog.domain.head import Head, position_at
from mnemolog.domain.options import takes_options
from mnemolog.domain.proposals import Proposal, ProposalState
from mnemolog.domain.request import as_it_is
from mnemolog.domain.result import Results, name_of
from mnemolog.domain.scope import parse_scopes
from mnemolog.domain.session import SessionLike, Span, checked_session_id, session_id_of
from mnemolog.domain.values import ORIGIN, Position, Time, When, checked_position, parse_time
from mnemolog.forgetting.history import ForgetReport
from mnemolog.forgetting.plan import ForgetSelector
from mnemolog.infra.runtime.files import local_path
from mnemolog.infra.runtime.fork_guard import OfOneProcess
from mnemolog.operations.backup_files import noted_witnesses
from mnemolog.operations.copies import BackupReport, make_backup
from mnemolog.operations.service import Rebuildable, Status, rebuild, store_status
from mnemolog.projections.context.answer import Context
from mnemolog.projections.context.packing import Tokenizer
from mnemolog.projections.context.service import TOKENS, wanted
from mnemolog.projections.history.timeline import Replay, replay
from mnemolog.projections.history.verify import Verification
from mnemolog.projections.maintenance.context import RebuildReport
from mnemolog.projections.ports import Progress
from mnemolog.projections.read_models import (
    AgentSummary,
    Fact,
    ScopeSummary,
    SessionSummary,
    StandingStatement,
    Turn,
)
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.phrases import find_turns, search_for
from mnemolog.projections.recall.question import RecallOptions, SearchOptions, TurnFilters, question
from mnemolog.projections.recall.service import TIMEOUT_S
from mnemolog.results import NewTurn, SwitchPreview
from mnemolog.session import Session


@gated("")
class MemoryStore(OfOneProcess):
    """An agent's memory: an append-only log in a folder, and the indexes derived from it.

    `audit` shows and checks the history, `models` changes the embedding model, `admin` maintains the store.
    Safe to use from many threads and many processes at once. Do not use a store across a fork: open it in the child.
    """

    def __init__(self, parts: composition.StoreParts) -> None:
        self.parts = parts
        """The parts of the store, for adapters (`mnemolog.adapters.support.store_access`)."""
        self.path, self._visible = parts.layout.folder, parts.visible
        self.audit = parts.audit
        self.models = parts.models
        self.admin = parts.admin

    @classmethod
    @takes_options
    def open(cls, path: str | Path, **options: Unpack[composition.StoreOptions]) -> Self:
        """Open the store in the folder `path`; create it if the folder is new or empty.

            store = MemoryStore.open("memory/", model=None, receipts=True)
            store.session("trip").record("user", "We could take the ferry.")
            store.recall("ferry").receipt  # -> 3
            store.close()

        - `path`: the folder, or the URL of a PostgreSQL database (docs/postgres.md)
        - `**options`: see `StoreOptions`

        Once any process has activated a model, vectors come from that one only (docs/models.md). Raises
        `StoreNotFound`, `NotAStore`, `StoreNotWritable`, `NetworkFilesystem`, `FormatTooNew`, `InvalidInput`.
        """
        parts = composition.build(path, options)
        store = cls(parts)
        parts.start()
        return store

    def within(self, scope: str | Sequence[str]) -> Self:
        """Return this store for one scope or several, as `open(scope=)` does: nothing outside can be read or written.

        - `scope`: the scope, or several

        Names of sessions and agents are relative to the scope (docs/scopes.md). It shares all that is costly and
        works until this store is closed; closing it only ends its prefetches. Raises `InvalidInput`, `OutsideScope`.
        """
        return type(self)(self.parts.within(parse_scopes(scope)))

    def close(self) -> None:
        """Finish queued appends and close all files. Later calls raise `StoreClosed`.

        Waits up to a second for the projector's call of the model and for a running prefetch, then abandons them.
        """
        self.parts.close()

    def __repr__(self) -> str:
        try:
            state = f"head={self.parts.log.head().position}"
        except errors.MnemologError as error:
            state = "closed" if isinstance(error, errors.StoreClosed) else "unreadable"
        return f"{type(self).__name__}({str(self.path)!r}, {state})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @gives_back
    def start_session(
        self,
        id: str | None = None,
        *,
        agent: str = DEFAULT_AGENT,
        scope: str = "",
        title: str | None = None,
        parent: SessionLike | None = None,
    ) -> Session:
        """Start a session and return a handle on it. Raises `SessionExists` if there is a session with that id.

        - `id`: its id; None for a random one
        - `agent`: the agent that it belongs to
        - `scope`: a path such as `acme/support/alice`
        - `title`: a title for people; it need not be unique
        - `parent`: the session that this one works for

        `session` says more about these. Raises as it does.
        """
        return self._handle(*self.parts.sessions.start(id, agent=agent, scope=scope, title=title, parent=parent))

    @gives_back
    def session(
        self,
        id: SessionLike | None = None,
        *,
        agent: str | None = None,
        scope: str | None = None,
        title: str | None = None,
        parent: SessionLike | None = None,
    ) -> Session:
        """Return a handle on the session with that id; start the session if there is none. Ended sessions stay ended.

        - `id`: the session, or its id; None to start a session with a random id
        - `agent`: the agent that it belongs to
        - `scope`: a path such as `acme/support/alice`; a recall in a scope covers all scopes below it
        - `title`: a title for people; it need not be unique
        - `parent`: the session that this one works for: it is listed below it in `sessions` but does not see its turns;
          `Session.branch` starts a session that does

        Wherever a session is expected, a handle or an id is accepted.

        Raises `SessionDiffers` if the session was started with another value of an argument given here, `InvalidInput`,
        and `UnknownSession` if `parent` does not exist: nothing was written.
        """
        return self._handle(*self.parts.sessions.get_or_start(id, agent=agent, scope=scope, title=title, parent=parent))

    def find_session(self, id: SessionLike) -> Session | None:
        """Return a handle on the session with that id; None if there is none. Raises `InvalidInput`.

        - `id`: the session, or its id
        """
        state = self.parts.visible.states.latest(checked_session_id(self.parts.visible.id_of(id, "id")))
        return None if state is None else self._handle(state.session, state.started)

    def end_session(self, session: SessionLike, *, reason: str = "ended") -> None:
        """End a session. Raises `UnknownSession`.

        - `session`: the session, or its id
        - `reason`: why it ended
        """
        self.parts.sessions.end(session_id_of(session), reason=reason)

    @gives_back
    def record(
        self,
        session: SessionLike,
        role: str | Mapping[str, Any],
        text: str | Sequence[Any] | None = None,
        *,
        key: str | None = None,
        said_at: Time | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[Any] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Record a turn in a session. Durable when this returns.

            store = MemoryStore.open("memory/", model=None)
            store.start_session("trip")
            store.record("trip", "user", "We could take the ferry.", speaker="Ada").position  # -> 2

        - `session`: the session, or its id
        - `role`: `user`, `assistant`, `system` or `tool`; or one message as model providers write it
        - `text`: what was said, or a list of parts
        - `key`: makes a retry safe: the same turn with the same key is recorded once
        - `said_at`: when it was said; None for the time of recording
        - `speaker`: who said it
        - `tool_calls`: calls of tools, as JSON values
        - `metadata`: JSON values by key, for filters

        `Session.record` has the forms and limits of these. Raises as it does, and `UnknownSession`.
        """
        return self.parts.sessions.record(
            session_id_of(session),
            role,
            text,
            key=key,
            speaker=speaker,
            said_at=said_at,
            tool_calls=tool_calls,
            metadata=metadata,
        ).turn()

    @gives_back
    def record_many(
        self, messages: Sequence[NewTurn | Mapping[str, Any]], session: SessionLike | None = None
    ) -> Results[Turn]:
        """Record messages in the order given, in one transaction: all of them or none.

        - `messages`: up to 10,000; each is a dict as in `Session.record`, or a `NewTurn`
        - `session`: the session of all of them; None: each names its own under `session`

        Raises as `Session.record` does, naming the message, as in `messages[3].role`, and `LimitExceeded`.
        """
        of = None if session is None else session_id_of(session)
        return Results(item.turn() for item in self.parts.sessions.record_many(messages, session_id=of))

    @takes_options
    def assert_fact(self, key: str, value: Any, *, scope: str | None = None, **how: Unpack[FactHow]) -> Fact:
        """Say what a key has from a time on (docs/facts.md). Durable when this returns.

            store = MemoryStore.open("memory/", model=None)
            heard = store.assert_fact("user/city", "Porto", valid_from="2026-03")
            store.assert_fact("user/city", "Lisbon", corrects=heard, reason="misheard").position  # -> 3

        - `key`: a path such as `user/city`, up to 512 bytes. It has one value; a set is a folder of keys
        - `value`: any JSON value, up to 256 KiB; None from when on nothing is known
        - `scope`: exactly this scope; None for that of the store
        - `**how`: see `FactHow`

        The value that begins last holds, whatever was recorded last; the same value again confirms. The result is what
        was asserted, which is not to say that it holds. It names the keys that are nearest to a new one. Raises
        `InvalidInput`, `LimitExceeded`, `LogBusy`, `StorageFull`: nothing was written.
        """
        return self.parts.facts.assert_fact(key, value, scope=scope, **how)

    def retract_fact(self, fact: Fact | int, *, reason: str = "") -> int:
        """Take back a fact that was wrong. Return how many assertions that were.

            store = MemoryStore.open("memory/", model=None)
            store.retract_fact(store.assert_fact("user/city", "Porto"), reason="misheard")  # -> 1
            store.fact("user/city")  # -> None

        - `fact`: a fact as it was read stands for all assertions that say so (`Fact.assertions`); a position for one
        - `reason`: why, up to 256 bytes

        What was believed before stays in the history, and is what a read as of then returns. What changed was not
        wrong: assert the new value. Raises `InvalidInput` for what is no fact.
        """
        return self.parts.facts.retract(fact, reason=reason)

    def retract_facts(self, *, maker: str, scope: str | Sequence[str] = "", reason: str = "") -> int:
        """Take back everything that a maker asserted at or below a scope. Return how many assertions that were.

            store = MemoryStore.open("memory/", model=None)
            store.assert_fact("user/city", "Porto", maker="extractor/1")
            store.retract_facts(maker="extractor/1")  # -> 1

        - `maker`: the program that found them
        - `scope`: at or below this scope, or any of several
        - `reason`: why, up to 256 bytes

        One append: all of it or nothing. What was taken back before counts, for retries. Raises `InvalidInput`.
        """
        return self.parts.facts.retract_made_by(maker, scope=scope, reason=reason)

    @takes_options
    def fact(self, key: str, *, scope: str | None = None, **when: Unpack[FactWhen]) -> Fact | None:
        """Return what a key has; None if nothing is known, or nothing any more.

            store = MemoryStore.open("memory/", model=None)
            store.assert_fact("user/city", "Porto", valid_from="2026-03")
            store.fact("user/city", valid_at="2026-02")  # -> None
            store.fact("user/city", valid_at="2026-04").value  # -> 'Porto'

        - `key`: the key of the fact
        - `scope`: exactly this scope; None for that of the store
        - `**when`: see `FactWhen`

        Raises `InvalidInput`.
        """
        return self.parts.facts.find(key, scope=scope, **when)

    @takes_options
    def facts(self, pattern: str = "*", *, scope: str | Sequence[str] = "", **when: Unpack[FactWhen]) -> Results[Fact]:
        """Return the facts that hold, in the order of their keys.

            store = MemoryStore.open("memory/", model=None)
            store.assert_fact("user/allergies/nuts", True)
            [fact.key for fact in store.facts("user/allergies/*")]  # -> ['user/allergies/nuts']

        - `pattern`: a glob over the whole key (`*?[]`)
        - `scope`: at or below this scope, or any of several
        - `**when`: see `FactWhen`

        Raises `InvalidInput`.
        """
        return self.parts.facts.all(pattern, scope=scope, **when)

    @takes_options
    def fact_history(self, key: str, *, scope: str | None = None, **when: Unpack[FactWhen]) -> Results[Fact]:
        """Return every assertion of a key in the order of the log, with what became of it.

        - `key`: the key of the facts
        - `scope`: exactly this scope; None for that of the store
        - `**when`: see `FactWhen`
        """
        return self.parts.facts.history(key, scope=scope, **when)

    def sessions(
        self,
        *,
        scope: str | Sequence[str] = "",
        agent: str | None = None,
        title: str | None = None,
        since: Time | None = None,
    ) -> Results[SessionSummary]:
        """Return sessions in the order they were started.

        - `scope`: only those at or below this scope, or any of several
        - `agent`: only those that this agent started
        - `title`: only those whose title holds this, in upper or lower case
        - `since`: only those started at this time or later

        Warns (`ScopeWarning`) if no session is at or below `scope`. Raises `InvalidInput`.
        """
        listed = self.parts.session_list
        return listed.warned(listed.sessions(scope=scope, agent=agent, title=title, since=since), scope)

    def scopes(self) -> Results[ScopeSummary]:
        """Return the scopes that sessions were started in, sorted, with the number of sessions and turns of each."""
        return self.parts.session_list.scopes()

    def agents(self) -> Results[AgentSummary]:
        """Return the agents that started sessions, sorted, with their number, their turns and the current session."""
        return self.parts.session_list.agents()

    def turns(self, session: SessionLike, *, after: When = ORIGIN, limit: int = 1_000) -> Results[Turn]:
        """Return a session's own turns, oldest first, including hidden ones.

        - `session`: the session, or its id
        - `after`: only turns recorded after this position or time
        - `limit`: maximum number of turns

        If there are more, pass `next` of the answer as `after`. `Session.turns` returns what the session sees. Raises
        `UnknownSession`, `InvalidInput`.
        """
        own = (Span(self.parts.visible.state(session_id_of(session)).session, ORIGIN),)
        return self.parts.projections.turns_in(own, after=after, limit=limit)

    @gives_back
    @takes_options
    def switch(self, to: SessionLike | None = None, **how: Unpack[SwitchHow]) -> Session:
        """Switch an agent to the session `to` in one atomic append, after all queued appends. Return a handle on it.

            store = MemoryStore.open("memory/", model=None)
            store.switch("trip", reason="new").record("user", "By ferry or by train?")
            by_train = store.switch("trip-by-train", reason="branch")
            [turn.text for turn in by_train.turns()]  # -> ['By ferry or by train?']

        - `to`: the session to enter or to start; None: a random id, or for `compress` and `rewind` the same session
        - `**how`: see `SwitchHow`

        Prefetched answers for the old session are discarded. Raises `UnknownSession`, `SessionExists`,
        `SessionAlreadyEnded`, `OutsideSession`, `SwitchRefused`, `DuplicateKey`, `InvalidInput`: nothing was written.
        """
        return self._entered(self.parts.switches.switch(to, **how))

    @takes_options
    def preview_switch(self, to: SessionLike | None = None, **how: Unpack[SwitchHow]) -> SwitchPreview:
        """Return what `switch` would append, without appending it. Raises as `switch` does.

        - `to`: the session to enter or to start
        - `**how`: see `SwitchHow`
        """
        return commands.switch_preview(self.parts.switches.switch(to, dry_run=True, **how))

    def current(self, agent: str = DEFAULT_AGENT) -> Session | None:
        """Return the session that the agent was last switched to, by any process; None before any switch.

        - `agent`: the name of the agent

        Raises `InvalidInput` for an invalid agent name.
        """
        state = self.parts.agents.state(self.parts.agents.own(agent))
        known = None if state is None else self.parts.visible.states.latest(state.current)
        return None if known is None else self._handle(known.session, known.started)

    def head(self) -> Head:
        """Return the position of the last event in the log, and the digest there."""
        return self.parts.log.head()

    def position_at(self, time: Time) -> Position:
        """Return the position of the last event recorded at or before a time, 0 before the first.

        - `time`: a `datetime` with a time zone, a `date` (its start) or ISO 8601 text, UTC if it names no zone

        Wherever a position is taken, such a time can be given instead (docs/audit.md). Raises `InvalidInput`.
        """
        return self.parts.log.position_at(parse_time("time", time))

    def events(self, *, after: When = ORIGIN, upto: When | None = None) -> Iterator[RecordedEvent]:
        """Yield the events of a part of the log, in order.

        - `after`: only events after this position or time of recording
        - `upto`: only events up to this position or time, included; None for the last one
        """
        log = self.parts.log
        begin = position_at("after", after, log)
        end = log.head().position if upto is None else position_at("upto", upto, log)
        for _, batch in self.parts.visible.read(after=begin, upto=end):
            yield from batch

    def replay(
        self, *, to: When | None = None, session: SessionLike | None = None, progress: Progress | None = None
    ) -> Replay:
        """Return what the store held at a position or a time of recording, folded from the log alone.

        - `to`: the position or time; None for the head
        - `session`: only this session
        - `progress`: called now and then with what is done and what there is to do

        Raises `InvalidInput` for a position past the head, `UnknownSession`, `UndecodableEvent`.
        """
        end = self.parts.log.head().position if to is None else position_at("to", to, self.parts.log)
        of = None if session is None else self.parts.visible.state(session_id_of(session)).session
        return replay(self.parts.log, self.parts.visible.read, to=end, session=of, progress=progress)

    @takes_options
    def recall(
        self,
        query: str,
        k: int = 5,
        *,
        scope: str | Sequence[str] = "",
        session: SessionLike | None = None,
        as_of: When | None = None,
        after: str | None = None,
        receipt: bool | None = None,
        lineage: bool = False,
        asked_in: SessionLike | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        wait_for_model: bool = True,
        **options: Unpack[RecallOptions],
    ) -> Recall:
        """Return up to `k` turns that answer `query`, best first; ties by position.

            store = MemoryStore.open("memory/", model=None)
            store.session("trip").record("user", "I moved to Lisbon in March.", speaker="Ada")
            store.recall("Lisbon", 3, speakers=["Ada"])[0].text  # -> 'I moved to Lisbon in March.'

        - `query`: what to look for, in plain words, up to 64 KiB
        - `k`: maximum number of turns, from 1 to 1,000
        - `scope`: only turns of sessions at or below this scope, or any of several
        - `session`: only the own turns of this session
        - `as_of`: answer as of this position or time of recording
        - `after`: for the next page, `Recall.next` of the page before; both see the same log
        - `receipt`: record the question and the answer in the log; None: as the store was opened (`receipts`)

        Rarely needed, and what narrows or ranks the answer:

        - `lineage`: with `session`, all turns that it sees, also those of its ancestors
        - `asked_in`: the session that asks, for the receipt: it does not change the answer
        - `min_position`: require vectors up to this position, or raise `ProjectionBehind`
        - `timeout_s`: how long to wait for `min_position`, in seconds
        - `wait_for_model`: False to answer by text alone while the model is not loaded yet
        - `**options`: see `RecallOptions`

        Text search covers every recorded turn; vectors cover those up to `Recall.vectors_cover`, and a recall embeds up
        to 64 new texts itself. If vectors cannot answer, `mode="vector"` raises and `hybrid` answers by text alone.
        Warns (`ScopeWarning`) if no session is within `scope`. Raises `InvalidInput`, `UnknownSession`, and
        `OutsideSession` for a session that did not exist at `as_of`.
        """
        of = None if session is None else self.parts.visible.id_of(session)
        asker = self._asker(asked_in, options)
        asked = question(query, k=k, scope=scope, session=of, asked_in=asker, lineage=lineage, **options)
        answer = self.parts.contexts.recalls.ask(
            asked,
            as_of=as_of,
            min_position=min_position,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        ).recall
        self.parts.session_list.warned(answer.hits, scope)
        return answer

    @takes_options
    def context(
        self,
        query: str,
        tokens: int = TOKENS,
        *,
        scope: str | Sequence[str] = "",
        session: SessionLike | None = None,
        as_of: When | None = None,
        tokenizer: Tokenizer | None = None,
        receipt: bool | None = None,
        lineage: bool = False,
        asked_in: SessionLike | None = None,
        wait_for_model: bool = True,
        **options: Unpack[SearchOptions],
    ) -> Context:
        """Return what the store has on `query`, as a text for a prompt of at most `tokens` tokens (docs/context.md).

            store = MemoryStore.open("memory/", model=None)
            store.session("trip").record("user", "The ferry leaves at nine.")
            "The ferry leaves at nine." in store.context("When does the ferry leave?", 200).text  # -> True

        - `query`: what to look for, in plain words, up to 64 KiB
        - `tokens`: maximum size of the text
        - `scope`: only turns of sessions at or below this scope, or any of several
        - `session`: only the own turns of this session, with its task, values and notes
        - `as_of`: answer as of this position or time of recording
        - `tokenizer`: returns the number of tokens of a text; None to estimate it
        - `receipt`: record the question and what is shown in the log; None: as the store was opened (`receipts`)

        Rarely needed, and what narrows or ranks the answer:

        - `lineage`: with `session`, all turns that it sees, also those of its ancestors
        - `asked_in`: the session that asks, for the receipt: it does not change the answer
        - `wait_for_model`: False to answer by text alone while the model is not loaded yet
        - `**options`: see `SearchOptions`

        The most relevant turns, long ones in part, are shown by session in order of time. Where turns say the same,
        only the newest is shown. `Context.left_out` has the rest and the reasons. Warns and raises as `recall` does.
        """
        of = None if session is None else self.parts.visible.id_of(session)
        asker = self._asker(asked_in, options)
        asked = question(query, scope=scope, session=of, asked_in=asker, lineage=lineage, **options)
        limits = wanted(tokens, tokenizer=tokenizer, of=of)
        found = self.parts.contexts.ask(asked, limits, as_of=as_of, receipt=receipt, wait_for_model=wait_for_model)
        return self.parts.session_list.warned(found, scope)

    def standing(
        self,
        query: str | None = None,
        *,
        scope: str | Sequence[str] = "",
        session: SessionLike | None = None,
        as_of: When | None = None,
    ) -> Results[StandingStatement]:
        """Return what users said that should hold for every answer (docs/context.md), and the facts below `standing/`.

            store = MemoryStore.open("memory/", model=None)
            store.session("trip").record("user", "Always answer in metric. How far is Porto?")
            [said.text for said in store.standing()]  # -> ['Always answer in metric']

        - `query`: only what holds for the answer to this question; None for all
        - `scope`: only what was said in sessions at or below this scope, or any of several
        - `session`: only what was said in this session
        - `as_of`: as of this position or time of recording

        Raises as `recall` does.
        """
        of = None if session is None else self.parts.visible.id_of(session)
        asked = question("*" if query is None else query, k=1, scope=scope, session=of)
        if query is None:
            asked = replace(asked, query="", mode="text")
        return self.parts.session_list.warned(self.parts.contexts.standing(asked, of=of, as_of=as_of), scope)

    def end_standing(self, statement: StandingStatement | int, *, reason: str) -> bool:
        """End the standing statements of a turn: no later answer takes them as said. Return whether they stood.

            store = MemoryStore.open("memory/", model=None)
            said = store.session("trip").record("user", "Always answer in metric.")
            store.end_standing(said.position, reason="she said so on the phone")  # -> True
            store.standing()  # -> []

        - `statement`: the statement, or the position of its turn
        - `reason`: why, up to 256 bytes

        The end is an event, with its actor; as of an earlier position the statement still stands, and a context names
        it among what is left out. For a fact below `standing/`, use `retract_fact`. Raises `InvalidInput` where nothing
        stands.
        """
        position = checked_position("statement", name_of(statement, StandingStatement, "statement"))
        return self.parts.visible.transact(ending(self.parts.visible, position, reason=reason))

    @takes_options
    def find(
        self,
        text: str,
        *,
        scope: str | Sequence[str] = "",
        session: SessionLike | None = None,
        hidden: bool = False,
        after: When = ORIGIN,
        limit: int = 1_000,
        **filters: Unpack[TurnFilters],
    ) -> Results[Turn]:
        """Return the turns whose text holds the phrase `text`, in log order. If there are more, pass `next` as `after`.

            store = MemoryStore.open("memory/", model=None)
            store.session("trip").record("user", "Ferries leave hourly.", said_at="2026-03-16")
            [turn.text for turn in store.find("ferri", since="2026-03-01")]  # -> ['Ferries leave hourly.']

        - `text`: the phrase, in upper or lower case; it may begin and end within a word
        - `scope`: only turns of sessions at or below this scope, or any of several
        - `session`: only the own turns of this session
        - `hidden`: also turns that their session hides since a rewind or a restore
        - `after`: only turns recorded after this position or time
        - `limit`: maximum number of turns
        - `**filters`: see `TurnFilters`

        Forgotten turns are never found. Reads every turn that the filters leave. Warns (`ScopeWarning`) if no session
        is within `scope`. Raises `InvalidInput`, `UnknownSession`.
        """
        search = search_for(text)
        within = self.parts.boundary.narrow(parse_scopes(scope))
        of = None if session is None else self.parts.visible.state(session_id_of(session)).session
        asked = question(text, scope=within or "", session=of, **filters)
        found = find_turns(
            self.parts.projections.current_views(),
            search,
            filters=asked.filters(None, self.parts.log),
            after=position_at("after", after, self.parts.log),
            limit=limit,
            seen_by=None if hidden else self.parts.visible.spans_or_own,
        )
        return self.parts.session_list.warned(found, scope)

    def forget(
        self,
        *,
        session: SessionLike | Sequence[SessionLike] = (),
        positions: int | Iterable[int] = (),
        scope: str | Sequence[str] = (),
        questions: bool = True,
        reason: str = "",
        despite_minimum: str = "",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForgetReport:
        """Erase content permanently: of sessions, of all sessions in scopes, or of single events by position.

        - `session`: a session, or several
        - `positions`: the position of an event, or several
        - `scope`: a scope, or several: all sessions at or below it
        - `questions`: False to keep the receipts of questions that were asked in scopes that cover what is forgotten;
          they may quote it, so they are forgotten too: `dry_run` lists them
        - `reason`: why, up to 256 bytes; it stays readable
        - `despite_minimum`: why it is forgotten although a minimum age has not passed, up to 256 bytes
          (docs/retention.md); it stays readable
        - `dry_run`: write nothing; the report is what would be forgotten
        - `progress`: called now and then with what is done and what there is to do

        What was said and kept there becomes unreadable in every file of the store, hidden turns included; for sessions
        and scopes also the receipts of recalls within them. Receipts that found or showed any of it go as well. A store
        for one scope (`within`) forgets nothing outside of it. Ids, scopes, agents, idempotency keys, times and
        `reason` are labels and stay (docs/forgetting.md). The events stay countable, and `verify` still proves the
        history. The keys are destroyed first: when the call returns, no process that reaches the log answers with the
        content. What has to wait, such as rewriting a file that another process reads, is in `pending`; every process
        that has the store open tries it again.

        Raises `UnknownSession`, `InvalidInput` (also for a store without encryption, and before a minimum age has
        passed), `OnHold`, `KeysMissing`, and `LogBusy` if
        another process is still forgetting: nothing was written. `LogBusy` and `StorageFull` may also mean that the
        keys could not be destroyed: the request is recorded then and tried again, and the content can be read until
        that has succeeded.
        """
        selector = ForgetSelector.of(
            session,
            positions,
            scope,
            questions=questions,
            despite_minimum=despite_minimum,
            now=self.parts.clock.now(),
            visible=self.parts.visible,
        )
        self.parts.visible.require(selector.sessions, selector.positions)
        report = self.parts.forgetting.forget(selector, reason=reason, dry_run=dry_run, progress=progress)
        self.parts.session_list.warned(report.counts, selector.scopes)
        return report

    @gives_back
    def distrust(
        self,
        *,
        positions: int | Iterable[int] = (),
        session: SessionLike | Sequence[SessionLike] = (),
        actor: str = "",
        maker: str = "",
        reason: str,
        dry_run: bool = False,
    ) -> Distrust:
        """Show nothing of these sources as an answer from here on, until `trust_again` (docs/provenance.md).

            store = MemoryStore.open("memory/", model=None)
            bad = store.session("trip").record("tool", "The ferry is free on Mondays.")
            store.distrust(positions=bad.position, reason="a forged page").covers  # -> 1
            len(store.recall("ferry"))  # -> 0

        - `positions`: turns
        - `session`: sessions, with all that is said and asserted in them
        - `actor`: what this actor appended and will append
        - `maker`: the facts that this program found and will find
        - `reason`: why, up to 256 bytes; it stays readable
        - `dry_run`: only count

        No recall, context, prefetched answer, list of messages or fact has them, nor facts that rest on such turns
        alone. `turns`, `find` and the history show them, marked. Answers as of an earlier position do not change.
        A store for one scope (`within`) distrusts only what is at or below it: facts of other scopes that rest on a
        turn there stay.
        Raises `InvalidInput`, `UnknownSession`: nothing was written.
        """
        sessions = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        return self.parts.distrusts.distrust(
            [positions] if isinstance(positions, int) else positions,
            [self.parts.visible.id_of(item) for item in sessions],
            actor=actor,
            maker=maker,
            reason=reason,
            dry_run=dry_run,
        )

    def trust_again(self, distrust: Distrust | int, *, reason: str = "") -> Distrust:
        """End a distrust. What another one covers stays distrusted.

            store = MemoryStore.open("memory/", model=None)
            made = store.distrust(actor="crawler", reason="it read a forged page")
            store.trust_again(made.position).undone  # -> 2

        - `distrust`: the distrust, or its position
        - `reason`: why, up to 256 bytes

        One that has ended is returned as it is. Raises `InvalidInput`.
        """
        return self.parts.distrusts.trust_again(distrust, reason=reason)

    def distrusts(self) -> Results[Distrust]:
        """Return every distrust in the order of the log, also those that have ended."""
        return Results(self.parts.distrusts.all())

    @gives_back
    def propose(
        self,
        act: Act,
        *,
        why: str = "",
        because: Sequence[Turn | int] = (),
        until: Time | None = None,
        scope: str | None = None,
    ) -> Proposal:
        """Propose an act that another person decides on (docs/proposals.md). Until then nothing of it holds.

            from mnemolog.types import AssertFact

            store = MemoryStore.open("memory/", model=None)
            waits = store.propose(AssertFact("user/city", "Lisbon"), why="she said so on the phone")
            store.fact("user/city")  # -> None
            store.approve(waits)
            store.fact("user/city").value  # -> 'Lisbon'

        - `act`: `AssertFact`, `RetractFact`, `EndStanding`, `DistrustSources` or `Forget`, with what its call takes
        - `why`: for who decides, up to 4 KiB
        - `because`: the turns that it rests on, or their positions; a fact will rest on them, too
        - `until`: when it expires; None for never
        - `scope`: the scope of a fact, and of who decides; None for that of what the act names, else of the store

        At most 100 proposals of one actor wait in a scope, and 1,000 of all. The content of a proposal is forgotten
        with any of the turns that it rests on or names. Raises `InvalidInput` for what could not be done now, and as
        the call of the act does; `LimitExceeded`: nothing was written.
        """
        return self.parts.proposals.propose(act, why=why, because=because, until=until, scope=scope)

    def proposals(
        self,
        *,
        scope: str | Sequence[str] = "",
        state: ProposalState | None = "open",
        as_of: When | None = None,
        after: When = ORIGIN,
        limit: int = 1_000,
    ) -> Results[Proposal]:
        """Return proposals, the oldest first, with what each would change. If there are more, pass `next` as `after`.

            from mnemolog.types import AssertFact

            store = MemoryStore.open("memory/", model=None)
            store.assert_fact("user/city", "Porto")
            store.propose(AssertFact("user/city", "Lisbon"))
            [(item.now, item.then) for item in store.proposals()]  # -> [('Porto', 'Lisbon')]

        - `scope`: at or below this scope, or any of several
        - `state`: `open`, `approved`, `declined` or `expired`; None for all
        - `as_of`: as of this position or time of recording
        - `after`: only those made after this position or time
        - `limit`: maximum number of proposals

        Raises `InvalidInput`.
        """
        return self.parts.proposals.all(scope, state, as_of, after, limit)

    def approve(
        self,
        positions: Proposal | int | Iterable[Proposal | int],
        *,
        edits: Mapping[int, Mapping[str, Any]] | None = None,
        dry_run: bool = False,
    ) -> Results[Proposal]:
        """Do what was proposed, as of now, in one append: of several proposals all or none.

            from mnemolog.types import AssertFact

            store = MemoryStore.open("memory/", model=None)
            waits = store.propose(AssertFact("user/city", "lisbon"))
            store.approve(waits, edits={waits.position: {"value": "Lisbon"}})
            store.fact("user/city").proposal  # -> 1

        - `positions`: a proposal or its position, or several
        - `edits`: by position, what to change in a proposed fact before: `key`, `value`, `valid_from`
        - `dry_run`: write nothing

        The actor of what is done is who approves; a fact names who proposed it, too. One that was approved before is
        returned as it is. What is approved to be forgotten is requested by that append, and the rest of `forget`
        follows, also after a crash. Raises `SupersededProposal` for what can no longer be done as it was meant,
        `InvalidInput` for what was declined, has expired or was forgotten, and for one's own proposal in a store opened
        with `four_eyes`; `OnHold`. Then nothing was done, and all stay open.
        """
        return self.parts.proposals.decide(positions, edits=edits, dry_run=dry_run)

    def decline(
        self, positions: Proposal | int | Iterable[Proposal | int], *, reason: str, dry_run: bool = False
    ) -> Results[Proposal]:
        """Decline proposals: all of them or none.

            from mnemolog.types import AssertFact

            store = MemoryStore.open("memory/", model=None)
            store.decline(store.propose(AssertFact("user/city", "Atlantis")), reason="a joke")[0].state  # -> 'declined'

        - `positions`: a proposal or its position, or several
        - `reason`: why, up to 256 bytes
        - `dry_run`: write nothing

        One that was declined before is returned as it is. Raises `InvalidInput` for what was approved, has expired or
        was forgotten: nothing was written.
        """
        return self.parts.proposals.decide(positions, declined=reason, dry_run=dry_run)

    @as_it_is()
    def verify(
        self,
        *,
        expect_head: str | None = None,
        heads: str | Path | None = None,
        contents: bool = False,
        progress: Progress | None = None,
    ) -> Verification:
        """Check the whole history of the log against its digests and its witnesses.

        - `expect_head`: a `position:digest` noted earlier
        - `heads`: a file of such heads (`store.audit.append_head`), all of which are checked
        - `contents`: also decrypt all content, which needs the keys
        - `progress`: called now and then with what is done and what there is to do

        Problems are in `Verification.findings` and do not raise, unless the file cannot be read at all (`LogDamaged`)
        or keys are missing (`KeysMissing`). Raises `InvalidInput` for an invalid `expect_head`, `WitnessUnreadable`
        (naming the line) for an invalid line in `heads`.
        """
        self.parts.boundary.require_none("verify")
        return verify_store(
            self.path,
            self.parts.log,
            expect_head=expect_head,
            heads=None if heads is None else local_path("heads", heads),
            contents=contents,
            others=[*noted_witnesses(self.path, self.parts.log.log_id), *kept_outside(self.parts.witness)],
            progress=progress,
        )

    @as_it_is()
    def status(self) -> Status:
        """Return the state of log, projections and projector. Fast, and read-only."""
        parts = self.parts
        parts.boundary.require_none("status")
        return store_status(parts.layout, parts.log, parts.projections, parts.nodes)

    def backup(
        self,
        target: str | Path,
        *,
        keys: str | Path | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy the store into a new folder; other processes may keep writing meanwhile.

        - `target`: the new folder
        - `keys`: a folder to copy the content keys to, replacing an earlier copy; they are never in `target`
        - `replace`: replace an earlier backup of this log in `target`, once the new one is complete
        - `progress`: called now and then with what is done and what there is to do

        Only the log is copied: a restored store rebuilds its projections.
        The copy is verified, and opened with the keys, before it gets its name. `restore_backup` restores it.

        Raises `LogDamaged` if the log or its keys are damaged, `BackupRefused`, `BackupUnusable` (the backup to
        replace), `StorageFull`, `StoreNotWritable`: no backup was made, and an earlier one is as it was.
        """
        self.parts.boundary.require_none("backup")
        return make_backup(
            self.parts.layout.folder,
            self.parts.log,
            local_path("target", target),
            keys=None if keys is None else local_path("keys", keys),
            replace=replace,
            progress=progress,
        )

    def rebuild(
        self,
        projection: Rebuildable = "all",
        *,
        dry_run: bool = False,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> Results[RebuildReport]:
        """Rebuild projections from the log. The old ones answer until the new ones are complete.

        - `projection`: `vectors`, `views` or `all`
        - `dry_run`: build nothing; the report is what would be built
        - `skip_bad`: skip a text that the model cannot encode, and list it in `status`; else it stops the rebuild
        - `progress`: called now and then with what is done and what there is to do

        Vectors that are stored are used, others come from the model; an interrupted rebuild is resumed.
        Raises `ModelUnavailable`, `EncodingFailed` (naming the position), `IndexerBusy`, `UndecodableEvent`.
        """
        parts = self.parts
        parts.boundary.require_none("rebuild")
        return Results(
            rebuild(
                projection,
                parts.layout,
                parts.log,
                parts.projections,
                dry_run=dry_run,
                skip_bad=skip_bad,
                progress=progress,
            )
        )

    def _asker(self, asked_in: SessionLike | None, options: Mapping[str, Any]) -> str | None:
        """Return the id of the session that asks. Raises for one that may not be seen, and for a turn of another."""
        asker = None if asked_in is None else self.parts.visible.state(session_id_of(asked_in)).session
        self.parts.visible.check_asked_for(asker, options.get("asked_for"))
        return asker

    def _entered(self, switched: commands.Switched) -> Session:
        if switched.left is not None:
            self.parts.prefetcher.discard(switched.left)
        return self._handle(switched.to, switched.started)

    def _handle(self, session_id: str, started: SessionStarted) -> Session:
        return Session(self.parts, session_id, started)
