"""The store: the library's face."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from mnemolog.application import previews
from mnemolog.application.commands import Switched
from mnemolog.application.session_service import Sessions, SwitchHow
from mnemolog.audit.service import Auditing
from mnemolog.composition import make_encoder
from mnemolog.defaults import DEFAULT_AGENT, DEFAULT_MODEL
from mnemolog.domain import errors, structured_log
from mnemolog.domain import session as domain
from mnemolog.domain.clock import Clock
from mnemolog.domain.events import RecordedEvent, SessionStarted, TurnRecorded
from mnemolog.domain.head import Head
from mnemolog.domain.limits import MEMORY_LIMITS, TURNS_PER_CALL_MAX, MemoryLimits
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.domain.scope import parse_scope
from mnemolog.domain.spans import Span
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.switching import SwitchReason
from mnemolog.forgetting.forget_face import Forgets
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.clock import SystemClock
from mnemolog.infra.embedding.reranker import make_reranker
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.sqlite.wal_checkpointer import WalKeeper
from mnemolog.infra.sqlite import BUSY_TIMEOUT_S, Synchronous
from mnemolog.models.service import ModelChange
from mnemolog.observability.instrumentation import gauges_of, measure_appends
from mnemolog.observability.telemetry import NO_TELEMETRY, Telemetry
from mnemolog.operations.service import Operations
from mnemolog.projections.history.replay import Replay, replay
from mnemolog.projections.history.states import SessionStates
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import OpenedProjections
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import Prefetcher
from mnemolog.projections.recall.prefetch_ticket import Moment, Request
from mnemolog.projections.recall.service import Recalls
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.opening import open_snapshots
from mnemolog.projections.vectors.leg import Vectors
from mnemolog.recall_face import Recalling
from mnemolog.results import ImportReport, NewTurn, SwitchPreview
from mnemolog.session import Session


class MemoryStore(Recalling, ModelChange, Operations, Auditing, Forgets):
    """An agent's memory: an append-only log in a folder, and what is read from it.

    Safe for many threads and many processes at once. Not to be carried across a fork.
    """

    def __init__(
        self,
        folder: Path,
        log: EventLog,
        projections: OpenedProjections,
        *,
        clock: Clock,
        limits: MemoryLimits,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.path, self._log, self._projections = folder, log, projections
        self._snapshots = open_snapshots(StoreLayout(folder), log, busy_timeout_s=log.busy_timeout_s)
        self._sessions = Sessions(log, SessionStates(log, self._snapshots), clock=clock, limits=limits)
        self._telemetry = telemetry or NO_TELEMETRY
        self._recalls = Recalls(log, self._sessions, projections, self._telemetry)
        self._gauges = gauges_of(folder, log, projections)
        if telemetry is not None:
            measure_appends(log, telemetry)
            telemetry.watch(self._gauges)
        self._wal_keeper = WalKeeper(log.path, log)
        self._prefetcher = Prefetcher(self._recall_in_background, self._moment)
        self._forgetting = Forgetting(folder, log, projections, self._snapshots)

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
        second_look = make_reranker(reranker)
        folder, clock = Path(path), clock or SystemClock()
        require_local(folder, allowed=allow_network_filesystem)
        log = EventLog.open(
            folder,
            clock=clock,
            create=create,
            synchronous=synchronous,
            busy_timeout_s=busy_timeout_s,
            encrypt=encrypt,
        )
        projections = OpenedProjections(
            StoreLayout(folder),
            log,
            model,
            make_encoder=make_encoder,
            models=models,
            background=background,
            reranker=second_look,
        )
        structured_log.info("store.opened", path=folder, log_id=log.log_id, background=background)
        store = cls(folder, log, projections, clock=clock, limits=limits, telemetry=telemetry)
        store._forgetting.resume()
        return store

    def close(self) -> None:
        """Finish queued appends and close all files. What is called after this raises `StoreClosed`.

        The projector stops between two calls of the model. It and a prefetch that still runs are waited for up
        to a second, and then abandoned.
        """
        self._telemetry.unwatch(self._gauges)
        self._projections.stop()
        self._prefetcher.close()
        self._wal_keeper.close()
        self._log.close()
        self._snapshots.close()
        self._projections.close()
        structured_log.info("store.closed", path=self.path)

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
        chosen = self._sessions.start(session_id, started)
        return self._handle(chosen, started)

    def session(self, session_id: str) -> Session:
        """Return a handle on a session that was started before. Raises `UnknownSession`."""
        return self._handle(session_id, self._sessions.state(session_id).started)

    def end_session(self, session_id: str, *, reason: str = "ended") -> None:
        """End a session. Raises `UnknownSession`."""
        self._sessions.end(session_id, reason=reason)

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
        return self.append_turn(session_id, turn, key=key)

    def append_turn(self, session_id: str, turn: TurnRecorded, *, key: str | None = None) -> Turn:
        """Record a turn that is checked already (`mnemolog.domain.session.new_turn`)."""
        return self._sessions.record(session_id, turn, key=key).turn()

    def record_many(self, turns: Sequence[NewTurn], *, late: bool = False) -> list[Turn]:
        """Record turns in the order given, in one transaction: all of them or none.

        They may belong to several sessions. Takes up to `TURNS_PER_CALL_MAX` (10,000). With `late` a session that
        has ended takes them too: it is resumed for them and ended again. Raises as `Session.record` does.
        """
        if len(turns) > TURNS_PER_CALL_MAX:
            raise errors.LimitExceeded("turns", limit=TURNS_PER_CALL_MAX, actual=len(turns), unit="turns")
        return [recorded.turn() for recorded in self._sessions.record_many(turns, late=late)]

    def import_files(
        self,
        paths: Sequence[str | Path],
        *,
        format: str | None = None,  # noqa: A002
        fields: Sequence[str] = (),
        scope: str | None = None,
        agent: str | None = None,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Record the conversations in `paths`: JSON Lines, Claude Code, Codex, ChatGPT or OpenAI messages.

        Safe to run twice. `fields` maps other names, as `text=body,session=room+day` (docs/import.md);
        `scope` and `agent` stand in where a file names none. Raises `ImportRefused`, naming file and line,
        at the first line that cannot be recorded; with `skip_bad` such lines are listed in the report.
        """
        from mnemolog.adapters.importers import parse_field_map
        from mnemolog.adapters.importers.import_files import import_files

        return import_files(
            self._log,
            self._sessions.states,
            [Path(path) for path in paths],
            format=format,
            fields=parse_field_map(fields) if fields else None,
            scope=scope,
            agent=agent,
            skip_bad=skip_bad,
            progress=progress,
        )

    def sessions(self, *, scope: str = "") -> list[SessionSummary]:
        """Return the sessions at or below `scope`, in the order they were started."""
        with self._projections.current_views().database.reading() as connection:
            return queries.sessions(connection, scope=parse_scope(scope))

    def find_session(self, id_or_name: str) -> SessionSummary:
        """Return the session of that id or name. Raises `UnknownSession`, `AmbiguousSession`."""
        with self._projections.current_views().database.reading() as connection:
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
        self._sessions.state(session_id)
        own = (Span(session_id, ORIGIN),)
        return self._projections.turns_in(own, after=after, before=None, limit=limit, newest_first=False)

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
        switched = self._sessions.switch(
            to, reason=reason, session=left, agent=agent, at=at, turns=turns, name=name, scope=scope, key=key
        )
        return self._entered(switched)

    def enter(
        self,
        session_id: str,
        *,
        reason: SwitchReason | str = SwitchReason.NEW,
        left: str | None = None,
        agent: str = DEFAULT_AGENT,
        scope: str = "",
    ) -> Session:
        """Go on in the session of that id, or start it: for those who name sessions and know not whether they are here.

        One that is there is resumed, or compressed in place where it is `left` as well. One that is not is started,
        for `reason` if `left` is there (`resume` means `new` then); where nothing is left, no agent moves.
        Raises as `switch` does: nothing was written.
        """
        return self._entered(self._sessions.enter(session_id, reason=reason, left=left, agent=agent, scope=scope))

    def _entered(self, switched: Switched) -> Session:
        if switched.left is not None:
            self._prefetcher.discard(switched.left)
        return self._handle(switched.to, switched.started)

    def preview_switch(self, to: str | None = None, **how: Unpack[SwitchHow]) -> SwitchPreview:
        """Return what `switch` would append, without appending it; `session` is an id. Raises as that does."""
        return previews.switch_preview(self._sessions.preview_switch(to, **how))

    def current(self, agent: str = DEFAULT_AGENT) -> Session | None:
        """Return the session that the agent was last switched to, by any process; None before any switch.

        Raises `InvalidInput` for what cannot name an agent.
        """
        state = self._sessions.agent(agent)
        return None if state is None else self.session(state.current)

    def head(self) -> Head:
        """Return how far the log goes, with its digest there."""
        return self._log.head()

    def events(self, *, after: Position = ORIGIN, upto: Position | None = None) -> Iterator[RecordedEvent]:
        """Yield the events of `(after, upto]` in order; up to the head when `upto` is None."""
        end = self._log.head().position if upto is None else upto
        for batch in self._log.read(after=after, upto=end):
            yield from batch

    def replay(self, *, to: int | None = None, session: str | None = None, progress: Progress | None = None) -> Replay:
        """Return what the store held at position `to` (the head by default), folded from the log alone.

        Raises `InvalidInput` for a position past the head, `UnknownSession`, `UndecodableEvent`.
        """
        head = self._log.head().position
        end = head if to is None else Position(to)
        if not 0 <= end <= head:
            raise errors.InvalidInput("to", f"position {end} is not in this log, which ends at {head}")
        if session is not None:
            self._sessions.state(session)
        return replay(self._log, to=end, session=session, progress=progress)

    def vectors(self) -> Vectors:
        """Return the vectors of the model that answers now. Raises `ModelUnavailable`, `ModelMismatch`."""
        return self._projections.vectors()

    def _recall_in_background(self, request: Request) -> Recall:
        return self._recalls.ask(request.question())

    def _moment(self, session_id: str) -> Moment:
        """Return what the stamp of a prefetch must hold against: any switch, rewind or restore of the session."""
        return Moment(
            generation=self._sessions.generation(session_id),
            epoch=self._log.epoch(),
            head=self._log.head().position,
            model=self._projections.known_fingerprint(),
        )

    def _handle(self, session_id: str, started: SessionStarted) -> Session:
        return Session(self._sessions, self._projections, self._recalls, self._prefetcher, session_id, started)
