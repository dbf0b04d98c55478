"""The store: the main entry point."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from mnemolog import composition
from mnemolog.application import previews
from mnemolog.application.session_service import SwitchHow
from mnemolog.audit.verification import verify_store
from mnemolog.defaults import DEFAULT_AGENT, DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import RecordedEvent, SessionStarted
from mnemolog.domain.head import Head
from mnemolog.domain.limits import LABEL_BYTES_MAX, MEMORY_LIMITS, MemoryLimits, checked_text
from mnemolog.domain.moments import By, Time, When, parse_time, position_at
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.result import Results
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.session import SessionLike, checked_session_id, session_id_of
from mnemolog.domain.spans import Span
from mnemolog.domain.switching import SwitchReason
from mnemolog.forgetting.plan import Wish
from mnemolog.forgetting.results import ForgetReport
from mnemolog.infra.runtime.fork_guard import OfOneProcess
from mnemolog.infra.runtime.paths import local_path
from mnemolog.infra.sqlite import BUSY_TIMEOUT_S, Synchronous
from mnemolog.observability.telemetry import Telemetry
from mnemolog.operations.backup import BackupReport
from mnemolog.operations.known_backups import backup_witnesses
from mnemolog.operations.rebuild import Rebuildable
from mnemolog.operations.status import Status
from mnemolog.projections.context.answer import Context
from mnemolog.projections.context.service import TOKENS, wanted
from mnemolog.projections.context.token_counting import Tokenizer
from mnemolog.projections.health.verify import Verification
from mnemolog.projections.history.replay import Replay, replay
from mnemolog.projections.ports import Progress
from mnemolog.projections.read_models import AgentSummary, ScopeSummary, SessionSummary, Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.phrases import find_turns, search_for
from mnemolog.projections.recall.question import Mode, TurnFilters, question
from mnemolog.projections.recall.service import TIMEOUT_S
from mnemolog.projections.recall.weights import Weights
from mnemolog.projections.registry.results import RebuildReport
from mnemolog.results import NewTurn, SwitchPreview
from mnemolog.session import Session


class MemoryStore(OfOneProcess):
    """An agent's memory: an append-only log in a folder, and the indexes derived from it.

    `audit` shows and checks the history, `models` changes the embedding model, `admin` maintains the store.
    Safe to use from many threads and many processes at once. Do not use a store across a fork: open it in the child.
    """

    def __init__(self, parts: composition.StoreParts) -> None:
        self.parts = parts
        """The parts of the store, for adapters (`mnemolog.adapters.support.store_access`)."""
        self.path = parts.layout.folder
        self.audit, self.models, self.admin = parts.audit, parts.models, parts.admin

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        model: Any = DEFAULT_MODEL,
        models: Sequence[Any] = (),
        create: bool = True,
        synchronous: Synchronous = "FULL",
        busy_timeout_s: float = BUSY_TIMEOUT_S,
        clock: Clock | None = None,
        limits: MemoryLimits = MEMORY_LIMITS,
        scope: str = "",
        encrypt: bool | None = None,
        background: bool = True,
        reranker: Any = None,
        receipts: bool = False,
        language: str | None = None,
        allow_network_filesystem: bool = False,
        telemetry: Telemetry | None = None,
        read_only: bool = False,
        log: str | None = None,
        local: str | Path | None = None,
        keys: str | None = None,
    ) -> Self:
        """Open the store in the folder `path`; create it if the folder is new or empty.

        `path` may be the URL of a PostgreSQL database: `log` is then the name of the log, `local` the folder of this
        machine's projections, to be opened as a folder later on, and `keys` the URL of another database for the keys of
        its content, if they are to be in one of their own (docs/postgres.md).
        `model` is the name or the folder of a SentenceTransformer, an object with `encode(list[str]) -> ndarray` and a
        `fingerprint`, or None for text recall only; `models` are further ones that this process can use. They are
        loaded when a vector is first needed. Once any process has activated a model, vectors come from that one only
        (docs/models.md).
        `synchronous="NORMAL"` is faster, but a power cut may lose the newest turns. A new store encrypts its content,
        so that it can be forgotten (docs/forgetting.md), unless `encrypt` is False; this cannot be changed later.
        `language` is that of a new store: the text index removes its word endings (docs/recall.md).
        With `scope`, nothing outside of that scope can be read or written through this object (docs/sessions.md).
        `limits` bounds the working memory of one session; a write that would exceed it is refused.
        `reranker` scores the best turns of a recall again (docs/recall.md): the name or folder of a CrossEncoder,
        or an object with `score(query, list[str]) -> list[float]` and a `name`. It is loaded when first needed.
        With `receipts`, every recall and context leaves a receipt, unless called with `receipt=False` (docs/audit.md).
        `background` embeds new turns in a background thread (docs/projector.md); `close` ends it.
        A store on a network file system is refused, unless `allow_network_filesystem`; with `read_only`
        recording raises `StoreNotWritable`, and no file of a store in a folder is written (docs/operations.md).
        `telemetry` receives measurements (docs/observability.md): `mnemolog.observability.otel.OpenTelemetry()`.
        Raises `StoreNotFound`, `NotAStore`, `StoreNotWritable`, `NetworkFilesystem`, `FormatTooNew`, `InvalidInput`.
        """
        parts = composition.build(
            *composition.place_of(path, log=log, local=local, keys=keys),
            model=model,
            models=models,
            create=create,
            synchronous=synchronous,
            busy_timeout_s=busy_timeout_s,
            clock=clock,
            limits=limits,
            scope=scope,
            encrypt=encrypt,
            background=background,
            reranker=reranker,
            receipts=receipts,
            language=language,
            allow_network_filesystem=allow_network_filesystem,
            telemetry=telemetry,
            read_only=read_only,
        )
        store = cls(parts)
        parts.start()
        return store

    def within(self, scope: str, *, own_names: bool = False) -> Self:
        """Return this store for one scope, as `open(scope=)` does: nothing outside can be read or written through it.

        It shares all that is costly and works until this store is closed; closing it only ends its own prefetches. With
        `own_names`, ids of new sessions and names of agents begin with the scope and `/`, so that nobody learns which
        names others have (docs/sessions.md). Raises `InvalidInput`, `OutsideScope`.
        """
        return type(self)(self.parts.within(parse_scope(scope), own_names=own_names))

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

        Without `id` it is random. The other arguments, and what is raised, are those of `session`.
        """
        return self._handle(*self.parts.sessions.start(id, agent=agent, scope=scope, title=title, parent=parent))

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

        Without `id` a session with a random id is started. `title` is for people; it need not be unique.
        `scope` is a path such as `acme/support/alice`; a recall in a scope covers all scopes below it. `parent` is
        the session that this one works for: it is listed below it in `sessions` but does not see its turns;
        `Session.branch` starts a session that does. Wherever a session is expected, a handle or an id is accepted.

        Raises `SessionDiffers` if the session was started with another value of an argument given here, `InvalidInput`,
        and `UnknownSession` if `parent` does not exist: nothing was written.
        """
        return self._handle(*self.parts.sessions.get_or_start(id, agent=agent, scope=scope, title=title, parent=parent))

    def find_session(self, id: SessionLike) -> Session | None:
        """Return a handle on the session with that id; None if there is none. Raises `InvalidInput`."""
        state = self.parts.sessions.states.latest(checked_session_id(session_id_of(id, "id")))
        return None if state is None else self._handle(state.session, state.started)

    def end_session(self, session: SessionLike, *, reason: str = "ended") -> None:
        """End a session. Raises `UnknownSession`."""
        self.parts.sessions.end(session_id_of(session), reason=reason)

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
        """Record a turn in a session. See `Session.record`; also raises `UnknownSession`."""
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

    def record_many(
        self, messages: Sequence[NewTurn | Mapping[str, Any]], session: SessionLike | None = None
    ) -> Results[Turn]:
        """Record messages in the order given, in one transaction: all of them or none.

        Each is a dict as in `Session.record`, or a `NewTurn`. They may belong to several sessions: each names its own
        under `session`, or all are for `session`. Takes up to `TURNS_PER_CALL_MAX` (10,000). Raises as `Session.record`
        does, naming the message, as in `messages[3].role`, and `LimitExceeded`.
        """
        of = None if session is None else session_id_of(session)
        recorded = self.parts.sessions.record_many(messages, session_id=of)
        return Results(item.turn() for item in recorded)

    def sessions(
        self, *, scope: str = "", agent: str | None = None, title: str | None = None, since: Time | None = None
    ) -> Results[SessionSummary]:
        """Return sessions in the order they were started: those at or below `scope`, or all.

        `agent` is who started them, `title` a part of their title in any case, `since` the time from which on they were
        started. Warns (`ScopeWarning`) if no session is at or below `scope`. Raises `InvalidInput`.
        """
        found = self.parts.session_list.sessions(scope=scope, agent=agent, title=title, since=since)
        self.parts.session_list.warn_if_empty(found, scope)
        return found

    def scopes(self) -> Results[ScopeSummary]:
        """Return the scopes that sessions were started in, sorted, with the number of sessions and turns of each."""
        return self.parts.session_list.scopes()

    def agents(self) -> Results[AgentSummary]:
        """Return the agents that started sessions, sorted, with their number, their turns and the current session."""
        return self.parts.session_list.agents()

    def turns(self, session: SessionLike, *, after: When = ORIGIN, limit: int = 1_000) -> Results[Turn]:
        """Return up to `limit` of a session's own turns after a position or time, including hidden ones.

        `Session.turns` returns the turns that the session sees. Raises `UnknownSession`.
        """
        own = (Span(self.parts.sessions.state(session_id_of(session)).session, ORIGIN),)
        return Results(self.parts.projections.turns_in(own, after=after, before=None, limit=limit, newest_first=False))

    def switch(
        self,
        to: SessionLike | None = None,
        *,
        reason: SwitchReason | str,
        session: SessionLike | None = None,
        agent: str | None = None,
        at: When | None = None,
        turns: int | None = None,
        title: str | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Session:
        """Switch an agent to the session `to` in one atomic append, after all queued appends.

        `reason` is `new`, `reset`, `resume`, `branch`, `compress` or `rewind` (docs/sessions.md has the
        table). The agent leaves `session`, or if that is not given the session that `agent` is in. Where the switch
        starts a session, `to` is its id (random by default), and `title` and `scope` default to those of the session
        left. `at` is the position or time of recording to branch at or rewind to; `turns` is a number of turns to
        rewind instead. `to` may be the session that is left for `resume`, `compress` and `rewind`; for the last two it
        is the default.
        `key` makes a retry safe: repeating a switch that the agent made under this key writes nothing, even after
        later switches; a different switch under the same key raises `DuplicateKey`.
        Returns a handle on `to`. Prefetched answers for the old session are discarded. Raises `UnknownSession`,
        `SessionExists`, `SessionAlreadyEnded`, `OutsideSession`, `SwitchRefused`, `InvalidInput`: nothing was written.
        """
        switched = self.parts.sessions.switch(
            to, reason=reason, session=session, agent=agent, at=at, turns=turns, title=title, scope=scope, key=key
        )
        if switched.left is not None:
            self.parts.prefetcher.discard(switched.left)
        return self._handle(switched.to, switched.started)

    def preview_switch(self, to: SessionLike | None = None, **how: Unpack[SwitchHow]) -> SwitchPreview:
        """Return what `switch` would append, without appending it. Raises as `switch` does."""
        return previews.switch_preview(self.parts.sessions.preview_switch(to, **how))

    def current(self, agent: str = DEFAULT_AGENT) -> Session | None:
        """Return the session that the agent was last switched to, by any process; None before any switch.

        Raises `InvalidInput` for an invalid agent name.
        """
        state = self.parts.sessions.agent(self.parts.sessions.own_agent(agent))
        known = None if state is None else self.parts.sessions.states.latest(state.current)
        return None if known is None else self._handle(known.session, known.started)

    def head(self) -> Head:
        """Return the position of the last event in the log, and the digest there."""
        return self.parts.log.head()

    def position_at(self, time: Time) -> Position:
        """Return the position of the last event recorded at or before `time`, 0 before the first.

        `time` is a `datetime` with a time zone, a `date` (its start) or ISO 8601 text, local time where it names no
        zone. Wherever a position is taken, such a time can be given instead (docs/audit.md). Raises `InvalidInput`.
        """
        return self.parts.log.position_at(parse_time("time", time))

    def events(self, *, after: When = ORIGIN, upto: When | None = None) -> Iterator[RecordedEvent]:
        """Yield the events of `(after, upto]` in order, each a position or a time; `upto` defaults to the last one."""
        log = self.parts.log
        begin = position_at("after", after, log)
        end = log.head().position if upto is None else position_at("upto", upto, log)
        for _, batch in self.parts.sessions.read(after=begin, upto=end):
            yield from batch

    def replay(
        self, *, to: When | None = None, session: SessionLike | None = None, progress: Progress | None = None
    ) -> Replay:
        """Return what the store held at `to`, a position or a time of recording, folded from the log alone.

        Raises `InvalidInput` for a position past the head, `UnknownSession`, `UndecodableEvent`.
        """
        end = self.parts.log.head().position if to is None else position_at("to", to, self.parts.log)
        of = None if session is None else self.parts.sessions.state(session_id_of(session)).session
        return replay(self.parts.log, self.parts.sessions.read, to=end, session=of, progress=progress)

    def recall(
        self,
        query: str,
        k: int = 5,
        *,
        scope: str = "",
        session: SessionLike | None = None,
        lineage: bool = False,
        roles: Sequence[str] = (),
        speakers: Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        by: By = "said",
        metadata: Mapping[str, Any] | None = None,
        mode: Mode = "hybrid",
        context_turns: int = 0,
        exchange: bool = False,
        weights: Weights | None = None,
        min_relevance: float | None = None,
        after: str | None = None,
        as_of: When | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        receipt: bool | None = None,
        wait_for_model: bool = True,
    ) -> Recall:
        """Return up to `k` turns (at most 1,000) that answer `query`, best first; ties by position.

        Filters: `scope` and all scopes below it; the own turns of `session`, or with `lineage` all turns it sees; any
        of `roles` and `speakers`; said (recorded, with `by="recorded"`) at `since` or later and before `until`; every
        key of `metadata` with that JSON value; a relevance of `min_relevance` (0 to 1) or more. `context_turns` (0 to
        20) adds the turns before and after each hit, `exchange` the reply to it or what it replies to. `weights`: see
        docs/recall.md. `after` is `Recall.next` of the page before, and sees what that saw. With `as_of`, a position or
        time, the answer is that of then. `receipt` records it. Warns (`ScopeWarning`) if no session is within `scope`.

        The text leg sees every turn acknowledged before; the vector leg, which embeds up to 64 new texts, those up to
        `Recall.vectors_cover`. If it cannot answer, `vector` raises and `hybrid` answers by text alone, as without
        `wait_for_model` while the model is loading. With `min_position` it covers that, or raises `ProjectionBehind`
        within `timeout_s`. Raises `InvalidInput`, `UnknownSession`, and `OutsideSession` for one not begun at `as_of`.
        """
        asked = question(
            query,
            k=k,
            mode=mode,
            scope=scope,
            session=None if session is None else session_id_of(session),
            lineage=lineage,
            roles=roles,
            speakers=speakers,
            since=since,
            until=until,
            by=by,
            metadata=metadata,
            context_turns=context_turns,
            exchange=exchange,
            weights=weights,
            min_relevance=min_relevance,
        )
        answer = self.parts.recalls.ask(
            asked,
            as_of=as_of,
            min_position=min_position,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        ).recall
        self.parts.session_list.warn_if_empty(answer.hits, scope)
        return answer

    def context(
        self,
        query: str,
        tokens: int = TOKENS,
        *,
        scope: str = "",
        session: SessionLike | None = None,
        lineage: bool = False,
        as_of: When | None = None,
        min_relevance: float | None = None,
        tokenizer: Tokenizer | None = None,
        receipt: bool | None = None,
        wait_for_model: bool = True,
        **filters: Unpack[TurnFilters],
    ) -> Context:
        """Return what the store has on `query`, as a text for a prompt of at most `tokens` tokens.

        The most relevant turns, long ones in part, are shown by session in order of time; `Session.context` adds its
        working memory. `tokenizer` returns the number of tokens of a text; by default they are estimated. Turns below
        `min_relevance` (by default 0.1) are left out. Where turns say the same, only the newest is shown.
        `Context.left_out` has the rest and the reasons. The other arguments, also `roles`, `speakers`, `since`,
        `until`, `by`, `metadata` and `mode`, are those of `recall`, which says what is raised (docs/context.md).
        """
        of = None if session is None else session_id_of(session)
        asked = question(query, scope=scope, session=of, lineage=lineage, **filters)
        limits = wanted(tokens, tokenizer=tokenizer, min_relevance=min_relevance)
        found = self.parts.contexts.ask(asked, limits, as_of=as_of, receipt=receipt, wait_for_model=wait_for_model)
        self.parts.session_list.warn_if_empty(found, scope)
        return found

    def find(
        self,
        text: str,
        *,
        scope: str = "",
        session: SessionLike | None = None,
        roles: Sequence[str] = (),
        speakers: Sequence[str] = (),
        since: Time | None = None,
        until: Time | None = None,
        by: By = "said",
        regex: bool = False,
        ignore_case: bool = True,
        hidden: bool = False,
        after: When = ORIGIN,
        limit: int = 1_000,
    ) -> Results[Turn]:
        """Return up to `limit` turns after a position or time whose text holds the phrase `text`, in log order.

        The phrase may begin and end within a word; with `regex` it is a regular expression of Python. Filters as in
        `recall`. Turns that their session hides since a rewind or a restore are left out, unless `hidden` is set;
        forgotten turns are never found. For the next page pass the last position as `after`.

        Reads every turn that the filters leave. Raises `InvalidInput`, `UnknownSession`.
        """
        search = search_for(text, regex=regex, ignore_case=ignore_case)
        within = self.parts.boundary.narrow(parse_scope(scope))
        of = None if session is None else self.parts.sessions.state(session_id_of(session)).session
        asked = question(
            text, scope=within, session=of, roles=roles, speakers=speakers, since=since, until=until, by=by
        )
        found = find_turns(
            self.parts.projections.current_views(),
            search,
            filters=asked.filters(None, self.parts.log),
            after=position_at("after", after, self.parts.log),
            limit=limit,
            seen_by=None if hidden else self.parts.sessions.spans_or_own,
        )
        self.parts.session_list.warn_if_empty(found, scope)
        return Results(found)

    def forget(
        self,
        *,
        session: SessionLike | Sequence[SessionLike] = (),
        positions: int | Iterable[int] = (),
        scope: str | Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForgetReport:
        """Erase content permanently: of sessions, of all sessions in scopes, or of single events by position.

        What was said and kept there becomes unreadable in every file of the store, hidden turns included; for sessions
        and scopes also the receipts of recalls within them. Ids, scopes, agents, idempotency keys, times and `reason`
        are labels and stay (docs/forgetting.md). The events stay countable, and `verify` still proves the history.
        With `dry_run` nothing is written. The keys are destroyed first. If a later step cannot be done now, `pending`
        has the reason; the next `open` or `forget` completes it.

        Raises `UnknownSession`, `InvalidInput` (also for a store without encryption), `KeysMissing`, and `LogBusy` if
        another process is still forgetting: nothing was written.
        """
        wish = Wish.of(session, positions, scope, within=self.parts.boundary)
        self.parts.sessions.require(wish.sessions, wish.positions)
        if reason:
            checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
        report = self.parts.forgetting.forget(wish, reason=reason, dry_run=dry_run, progress=progress)
        self.parts.session_list.warn_if_empty(report.counts, *wish.scopes)
        return report

    def verify(
        self,
        *,
        expect_head: str | None = None,
        heads: str | Path | None = None,
        contents: bool = False,
        progress: Progress | None = None,
    ) -> Verification:
        """Check the whole history of the log against its digests and its witnesses.

        `expect_head` is a `position:digest` noted earlier; `heads` is a file of such heads (`store.audit.append_head`),
        all of which are checked. No keys are needed, unless `contents` asks for all content to be decrypted as well.
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
            others=backup_witnesses(self.path, self.parts.log.log_id),
            progress=progress,
        )

    def status(self) -> Status:
        """Return the state of log, projections and projector. Fast, and read-only."""
        return self.parts.maintenance.status()

    def backup(
        self,
        target: str | Path,
        *,
        keys: str | Path | None = None,
        with_projections: bool = False,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy the store into the new folder `target`; other processes may keep writing meanwhile.

        With `replace`, an earlier backup of this log in `target` is replaced once the new one is complete.
        Only the log is copied; `with_projections` copies projections too, which hold texts and vectors in clear text.
        The content keys are never in `target`; `keys` is a folder to copy them to, replacing an earlier copy.
        The copy is verified, and opened with the keys, before it gets its name. `restore_backup` restores it.

        Raises `LogDamaged` if the log or its keys are damaged, `BackupRefused`, `BackupUnusable` (the backup to
        replace), `StorageFull`, `StoreNotWritable`: no backup was made, and an earlier one is as it was.
        """
        return self.parts.maintenance.backup(
            target, keys=keys, with_projections=with_projections, replace=replace, progress=progress
        )

    def rebuild(
        self,
        projection: Rebuildable = "all",
        *,
        dry_run: bool = False,
        from_scratch: bool = False,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> Results[RebuildReport]:
        """Rebuild `vectors`, `views` or `all` from the log. The old ones answer until the new ones are complete.

        Vectors come from the embedding cache if it has the text, else from the model; an interrupted rebuild is
        resumed. `from_scratch` uses neither. A text that the model cannot encode stops the rebuild, or with `skip_bad`
        is skipped and listed in `status`. With `dry_run` nothing is built.
        Raises `ModelUnavailable`, `EncodingFailed` (naming the position), `IndexerBusy`, `UndecodableEvent`.
        """
        return self.parts.maintenance.rebuild(
            projection, dry_run=dry_run, from_scratch=from_scratch, skip_bad=skip_bad, progress=progress
        )

    def _handle(self, session_id: str, started: SessionStarted) -> Session:
        parts = self.parts
        return Session(parts.sessions, parts.projections, parts.contexts, parts.prefetcher, session_id, started)
