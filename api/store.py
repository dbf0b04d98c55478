"""The store: what most callers import first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from mnemolog import composition
from mnemolog.application import previews
from mnemolog.application.session_service import SwitchHow
from mnemolog.audit.verification import verify_store
from mnemolog.defaults import DEFAULT_AGENT, DEFAULT_MODEL
from mnemolog.domain import errors
from mnemolog.domain import session as domain
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import RecordedEvent, SessionStarted
from mnemolog.domain.head import Head
from mnemolog.domain.limits import LABEL_BYTES_MAX, MEMORY_LIMITS, MemoryLimits, checked_text
from mnemolog.domain.lineage import checked_position
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.spans import Span
from mnemolog.domain.switching import SwitchReason
from mnemolog.forgetting.plan import Wish
from mnemolog.forgetting.results import ForgetReport
from mnemolog.infra.sqlite import BUSY_TIMEOUT_S, Synchronous
from mnemolog.observability.telemetry import Telemetry
from mnemolog.operations import rebuild as rebuilding
from mnemolog.operations import status as quick_look
from mnemolog.operations.backup import BackupReport, make_backup
from mnemolog.projections.health.verify import Verification
from mnemolog.projections.history.replay import Replay, replay
from mnemolog.projections.ports import Progress
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.question import Mode, question
from mnemolog.projections.recall.service import TIMEOUT_S
from mnemolog.projections.recall.weights import Weights
from mnemolog.projections.registry.results import RebuildReport
from mnemolog.projections.sql import queries
from mnemolog.results import NewTurn, Status, SwitchPreview
from mnemolog.session import Session


class MemoryStore:
    """An agent's memory: an append-only log in a folder, and what is derived from it.

    `audit` shows and checks the history, `models` changes the embedding model, `admin` maintains the store.
    Safe for many threads and many processes at once. Not to be carried across a fork.
    """

    def __init__(self, parts: composition.StoreParts) -> None:
        self.parts = parts
        """What the store is made of, for adapters (`mnemolog.adapters.support.store_access`)."""
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
        encrypt: bool | None = None,
        background: bool = True,
        reranker: Any = None,
        allow_network_filesystem: bool = False,
        telemetry: Telemetry | None = None,
    ) -> Self:
        """Open the store in the folder `path`, creating it there when the folder is new or empty.

        `model` is the name or the folder of a SentenceTransformer, an object with
        `encode(list[str]) -> ndarray` and a `fingerprint`, or None for text recall only. It is loaded when
        a vector is first needed. `models` are further ones that this process can answer with: once a model has
        been activated, by whichever process, that one answers or none (docs/models.md).
        `synchronous="NORMAL"` trades the newest turns at a power cut for speed.
        A store that is created encrypts its content, with keys in `keys.db`, so that content can be forgotten
        (docs/forgetting.md), unless `encrypt` is False. A store that is there stays as it was created.
        `limits` says how much the working memory of one session may hold; what exceeds it is refused.

        `reranker` looks at the best turns of a recall once more (docs/recall.md): the name or folder of a CrossEncoder,
        or an object with `score(query, list[str]) -> list[float]` and a `name`. It is loaded when first needed.

        `background` embeds what is recorded in a thread of its own (docs/projector.md); `close` ends it.

        On a network file system a store is refused, for SQLite's locks do not hold there. Whoever knows that one
        machine alone ever opens it may say `allow_network_filesystem` (docs/operations.md).

        `telemetry` receives measurements (docs/observability.md): `mnemolog.observability.otel.OpenTelemetry()`.
        Raises `StoreNotFound` (with `create=False`), `NotAStore`, `StoreNotWritable`, `NetworkFilesystem`,
        `FormatTooNew`, `InvalidInput`.
        """
        parts = composition.build(
            Path(path),
            model=model,
            models=models,
            create=create,
            synchronous=synchronous,
            busy_timeout_s=busy_timeout_s,
            clock=clock,
            limits=limits,
            encrypt=encrypt,
            background=background,
            reranker=reranker,
            allow_network_filesystem=allow_network_filesystem,
            telemetry=telemetry,
        )
        store = cls(parts)
        parts.start()
        return store

    def close(self) -> None:
        """Finish queued appends and close all files. What is called after this raises `StoreClosed`.

        The projector stops between two calls of the model. It and a prefetch that still runs are waited for up
        to a second, and then abandoned.
        """
        self.parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_session(
        self,
        name: str,
        *,
        agent: str = DEFAULT_AGENT,
        scope: str = "",
        session_id: str | None = None,
        parent: str | None = None,
    ) -> Session:
        """Start a session and return a handle on it.

        `scope` is a path such as `acme/support/alice`; a recall in a scope sees all below it. Without
        `session_id` a random one is made. With one, a retry returns the session that is there, or raises
        `SessionExists` if that was started differently. `parent` is the id of the session that this one works
        for: it stands below it in `sessions`, and sees nothing of it; `Session.branch` makes one that does.
        Raises `InvalidInput`, `UnknownSession` for a parent that is none: nothing was written.
        """
        started = domain.new_session(name=name, agent=agent, scope=scope, parent=parent)
        chosen = self.parts.sessions.start(session_id, started)
        return self._handle(chosen, started)

    def session(self, session_id: str) -> Session:
        """Return a handle on a session that was started before. Raises `UnknownSession`."""
        return self._handle(session_id, self.parts.sessions.state(session_id).started)

    def end_session(self, session_id: str, *, reason: str = "ended") -> None:
        """End a session. Raises `UnknownSession`."""
        self.parts.sessions.end(session_id, reason=reason)

    def record(
        self,
        session_id: str,
        role: str,
        text: str,
        *,
        key: str | None = None,
        said_at: datetime | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[Any] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> Turn:
        """Record a turn of the session of that id. See `Session.record`; raises `UnknownSession` too."""
        turn = domain.new_turn(
            role=role, text=text, speaker=speaker, said_at=said_at, tool_calls=tool_calls, metadata=metadata
        )
        return self.parts.sessions.record(session_id, turn, key=key).turn()

    def record_many(self, turns: Sequence[NewTurn]) -> list[Turn]:
        """Record turns in the order given, in one transaction: all of them or none.

        They may belong to several sessions. Takes up to `TURNS_PER_CALL_MAX` (10,000). Raises as `Session.record` does,
        and `LimitExceeded`.
        """
        return [recorded.turn() for recorded in self.parts.sessions.record_many(turns)]

    def sessions(self, *, scope: str = "") -> list[SessionSummary]:
        """Return the sessions at or below `scope`, in the order they were started."""
        with self.parts.projections.current_views().database.reading() as connection:
            return queries.sessions(connection, scope=parse_scope(scope))

    def find_session(self, id_or_name: str) -> SessionSummary:
        """Return the session of that id or name. Raises `UnknownSession`, `AmbiguousSession`."""
        with self.parts.projections.current_views().database.reading() as connection:
            found = queries.sessions_called(connection, id_or_name)
        if not found:
            raise errors.UnknownSession(id_or_name)
        if len(found) > 1:
            raise errors.AmbiguousSession(id_or_name, [item.session for item in found])
        return found[0]

    def turns(self, session_id: str, *, after: Position = ORIGIN, limit: int = 1_000) -> list[Turn]:
        """Return up to `limit` turns of a session's own behind position `after`, hidden ones included.

        What the session itself sees is in `Session.turns`. Raises `UnknownSession`.
        """
        self.parts.sessions.state(session_id)
        own = (Span(session_id, ORIGIN),)
        return self.parts.projections.turns_in(own, after=after, before=None, limit=limit, newest_first=False)

    def switch(
        self,
        to: str | None = None,
        *,
        reason: SwitchReason | str,
        session: Session | str | None = None,
        agent: str | None = None,
        at: int | None = None,
        turns: int | None = None,
        name: str | None = None,
        scope: str | None = None,
        key: str | None = None,
    ) -> Session:
        """Switch an agent to the session `to`, as one append: all of it or nothing, after all that is queued.

        `reason` is `new`, `reset`, `resume`, `branch`, `compress` or `rewind` (docs/sessions.md has the
        table). The session that is left is `session`, or the one `agent` is in. Where a session is started,
        `to` is its id (made up if left out) and `name` and `scope` are those of the one left unless given.
        `at` is the position to branch at or rewind to; `turns` rewinds by so many turns instead. `to` equal to
        the session that is left is legal for `resume`, `compress` and `rewind`; for the last two it is what
        leaving out `to` means. With a `key` a retry is known by it: once an agent has made a switch under it, the
        same again writes nothing, in place and whatever came after, and another raises `DuplicateKey`.

        Returns a handle on `to`. What was prefetched for the old session is never handed out. Raises
        `UnknownSession`, `SessionExists`, `SessionAlreadyEnded`, `OutsideSession`, `SwitchRefused`, `InvalidInput`:
        nothing was written.
        """
        left = session.id if isinstance(session, Session) else session
        switched = self.parts.sessions.switch(
            to, reason=reason, session=left, agent=agent, at=at, turns=turns, name=name, scope=scope, key=key
        )
        if switched.left is not None:
            self.parts.prefetcher.discard(switched.left)
        return self._handle(switched.to, switched.started)

    def preview_switch(self, to: str | None = None, **how: Unpack[SwitchHow]) -> SwitchPreview:
        """Return what `switch` would append, without appending it; `session` is an id. Raises as that does."""
        return previews.switch_preview(self.parts.sessions.preview_switch(to, **how))

    def current(self, agent: str = DEFAULT_AGENT) -> Session | None:
        """Return the session that the agent was last switched to, by any process; None before any switch.

        Raises `InvalidInput` for what cannot name an agent.
        """
        state = self.parts.sessions.agent(agent)
        return None if state is None else self.session(state.current)

    def head(self) -> Head:
        """Return how far the log goes, with its digest there."""
        return self.parts.log.head()

    def events(self, *, after: Position = ORIGIN, upto: Position | None = None) -> Iterator[RecordedEvent]:
        """Yield the events of `(after, upto]` in order; up to the head when `upto` is None."""
        end = self.parts.log.head().position if upto is None else upto
        for batch in self.parts.log.read(after=after, upto=end):
            yield from batch

    def replay(self, *, to: int | None = None, session: str | None = None, progress: Progress | None = None) -> Replay:
        """Return what the store held at position `to` (the head by default), folded from the log alone.

        Raises `InvalidInput` for a position past the head, `UnknownSession`, `UndecodableEvent`.
        """
        head = self.parts.log.head().position
        end = head if to is None else Position(to)
        if not 0 <= end <= head:
            raise errors.InvalidInput("to", f"position {end} is not in this log, which ends at {head}")
        if session is not None:
            self.parts.sessions.state(session)
        return replay(self.parts.log, to=end, session=session, progress=progress)

    def recall(
        self,
        query: str,
        *,
        k: int = 5,
        scope: str = "",
        session: str | None = None,
        lineage: bool = False,
        roles: Sequence[str] = (),
        speakers: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        mode: Mode = "hybrid",
        context_turns: int = 0,
        weights: Weights | None = None,
        after: str | None = None,
        as_of: int | None = None,
        min_position: int | None = None,
        timeout_s: float = TIMEOUT_S,
        receipt: bool = False,
        wait_for_model: bool = True,
    ) -> Recall:
        """Return up to `k` turns (at most 1,000) that answer `query`, best first; ties by position.

        Filters: `scope` and all below it; the own turns of `session`, or with `lineage` all that it sees; any of
        `roles`; any of `speakers`; said at `since` or later and before `until`; every key of `metadata` with
        exactly that JSON value. `context_turns` (0 to 20) gives each hit the turns around it.
        `weights` says how much each ingredient of the order counts (docs/recall.md).

        `after` is `Recall.next` of the page before: the order goes on as it was when the first was asked.
        `as_of` is an offset: the answer is what it would have been when the log ended there (docs/recall.md).
        `receipt` appends what was asked and answered to the log (`store.audit.recalls`).

        The text leg sees every turn acknowledged before the call. The vector leg embeds up to 64 new texts
        by itself; how far it goes is in `Recall.vectors_cover`. In `hybrid` mode a vector leg that cannot
        answer leaves the text answer and its reason in `Recall.unavailable_legs`; in `vector` mode it raises.
        With `min_position` the vectors cover that position, embedding here what is missing: else it raises
        `ProjectionBehind` after `timeout_s` seconds, or at once where something is in the way.
        Without `wait_for_model` a `hybrid` recall is answered by text alone as long as the model is not loaded, and
        says so in `Recall.unavailable_legs`; `store.models.load` loads it.

        Raises `InvalidInput` for an empty query, a filter that is none, a position past the head or a cursor of
        another question, `UnknownSession`, and `OutsideSession` for a session that was not there at `as_of`.
        """
        asked = question(
            query,
            k=k,
            mode=mode,
            scope=scope,
            session=session,
            lineage=lineage,
            roles=roles,
            speakers=speakers,
            since=since,
            until=until,
            metadata=metadata,
            context_turns=context_turns,
            weights=weights,
        )
        return self.parts.recalls.ask(
            asked,
            as_of=as_of,
            min_position=min_position,
            timeout_s=timeout_s,
            after=after,
            receipt=receipt,
            wait_for_model=wait_for_model,
        )

    def forget(
        self,
        *,
        session: Session | str | Sequence[Session | str] = (),
        positions: Iterable[int] = (),
        scope: str | Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> ForgetReport:
        """Forget content for ever: of sessions, of all sessions in scopes, or of single events by their positions.

        Text, speakers, metadata, values, tasks, notes, checkpoints' names and sessions' names cannot be read any more,
        by nobody and in no file of the store; of sessions and scopes also the receipts of recalls that were asked in
        them. What happened stays countable, and `verify` finds the history whole. Hidden turns are included, and
        branches do not see forgotten turns of their ancestors either. What is recorded afterwards stays.

        Ids, scopes, agents, idempotency keys and times are labels, no content: they stay (docs/forgetting.md). So
        does `reason`. With `dry_run` nothing is written. Where something is in the way, `pending` says what: keys are
        destroyed first, the rest is done when the store is opened next, or by the next `forget`.

        Raises `UnknownSession`, `InvalidInput` (also for a store without encryption), `KeysMissing`, `LogBusy` where
        another process forgets for long: nothing was written.
        """
        given = session if isinstance(session, Sequence) and not isinstance(session, str) else [session]
        wish = Wish(
            sessions=frozenset(item if isinstance(item, str) else item.id for item in given),
            scopes=tuple(parse_scope(item) for item in ([scope] if isinstance(scope, str) else scope)),
            positions=frozenset(checked_position("positions", position) for position in positions),
        )
        if reason:
            checked_text("reason", reason, bytes_max=LABEL_BYTES_MAX)
        return self.parts.forgetting.forget(wish, reason=reason, dry_run=dry_run, progress=progress)

    def verify(
        self,
        *,
        expect_head: str | None = None,
        heads: str | Path | None = None,
        contents: bool = False,
        progress: Progress | None = None,
    ) -> Verification:
        """Check the whole history. `expect_head` is a `position:digest` that was noted down before, `heads` a
        file of such heads (`store.audit.append_head`), each of which is asked.

        The chain is over what is stored, and needs no keys. With `contents` everything encrypted is opened as well,
        which takes longer. What is wrong is in `Verification.findings`; nothing raises for it, unless the file cannot
        be read at all (`LogDamaged`) or keys are missing (`KeysMissing`). Raises `InvalidInput` or
        `WitnessUnreadable` (naming the line) for what is no head.
        """
        return verify_store(
            self.path,
            self.parts.log,
            expect_head=expect_head,
            heads=None if heads is None else Path(heads),
            contents=contents,
            progress=progress,
        )

    def status(self) -> Status:
        """Return the state of log, projections and projector. Quick, and changes nothing."""
        parts = self.parts
        return quick_look.status(self.path, parts.log, parts.projections, parts.snapshots)

    def backup(
        self,
        target: str | Path,
        *,
        keys: str | Path | None = None,
        projections: bool = True,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copy the store, as it is in this moment, into the new folder `target`, while any process goes on writing.

        With `replace` an earlier backup of this log there is replaced, once the new one is whole.

        Without `projections` the log alone: what is read from it is made anew after a restore, vectors by the
        model. The content keys, if the store has any, are never in `target`; with `keys` they are copied to that
        folder, over the copy of an earlier backup. `restore_backup` is the way back (docs/backup.md).

        Raises `BackupRefused`, `BackupUnusable` (what is to be replaced), `StorageFull`, `StoreNotWritable`,
        `LogDamaged`: no backup was made.
        """
        with self.parts.telemetry.span("mnemolog.backup", {}):
            return make_backup(
                self.path,
                self.parts.log,
                Path(target),
                keys=None if keys is None else Path(keys),
                projections=projections,
                replace=replace,
                progress=progress,
            )

    def rebuild(
        self,
        projection: rebuilding.Rebuildable = "all",
        *,
        dry_run: bool = False,
        from_scratch: bool = False,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> list[RebuildReport]:
        """Rebuild `vectors`, `views` or `all` from the log. The old ones answer until the new ones are complete.

        Vectors come from the embedding cache if it has the text, else from the model; an interrupted rebuild is
        resumed. `from_scratch` does without both. A text that the model refuses stops the rebuild, or with
        `skip_bad` is skipped and listed in `status`. Raises `ModelUnavailable`,
        `EncodingFailed` (naming the position), `IndexerBusy`, `UndecodableEvent`.
        """
        with self.parts.telemetry.span("mnemolog.rebuild", {"projection": projection}):
            return rebuilding.rebuild(
                projection,
                self.path,
                self.parts.log,
                self.parts.projections,
                self.parts.snapshots,
                dry_run=dry_run,
                from_scratch=from_scratch,
                skip_bad=skip_bad,
                progress=progress,
            )

    def _handle(self, session_id: str, started: SessionStarted) -> Session:
        parts = self.parts
        return Session(parts.sessions, parts.projections, parts.recalls, parts.prefetcher, session_id, started)
