"""Maintaining a store: doctor, quarantine, catching up, rebuilding. And its state, without a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Final, Literal, get_args

from pysqlite3 import dbapi2

from mnemolog.application import commands
from mnemolog.application.facts import retention_at
from mnemolog.application.tokens import Tokens
from mnemolog.application.visible_events import of_whole_store
from mnemolog.domain import errors, structured_log
from mnemolog.domain.choices import (
    DEFAULT_LANGUAGE,
    LANGUAGE_STREAM,
    Hold,
    Retention,
    chosen_rule,
    evolve_language,
    parse_language,
)
from mnemolog.domain.display import counted
from mnemolog.domain.events import HoldLifted, HoldPlaced, TurnRecorded
from mnemolog.domain.result import Result, Results, Stale, brief, name_of
from mnemolog.domain.scope import Boundary, Scope, parse_scope
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.tokens import REPLACED_FOR, VALID_FOR, CreatedToken, Token
from mnemolog.domain.values import ORIGIN, By, Position, UtcTime, When, checked_position, checked_text, to_datetime
from mnemolog.forgetting.history import (
    Erasure,
    ForgettingStatus,
    NodeStatus,
    ReapplyReport,
    forgetting_status,
    forgotten_turns,
)
from mnemolog.forgetting.service import Forgetting, RetentionReport, RetentionRuns
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres.address import read_address
from mnemolog.infra.log.sqlite import wal_checkpointer
from mnemolog.infra.log.sqlite.engine import SqliteEngine
from mnemolog.operations import doctor
from mnemolog.operations.backup_files import after_findings, noted_witnesses, put_keys_back
from mnemolog.operations.nodes import Nodes
from mnemolog.projections.history.verify import FINDINGS_MAX, quick_verify
from mnemolog.projections.maintenance.context import (
    CacheStatus,
    LogAtHead,
    RebuildReport,
    StoreContext,
    TablesStatus,
    ViewsStatus,
)
from mnemolog.projections.maintenance.tables import Cache
from mnemolog.projections.maintenance.vectors import catch_up_vectors
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector import ProjectorStatus
from mnemolog.projections.quarantine import LOST_HISTORY, UNCOVERED, Quarantine, QuarantineStatus
from mnemolog.projections.registry import PROJECTIONS
from mnemolog.projections.registry import REBUILDABLE as BY_NAME
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.database import tracked
from mnemolog.projections.vectors.folders import GenerationStatus, Rebuilt


@of_whole_store("admin.")
class AdminService:
    """Keeps the projections of a store healthy and up to date: `store.admin`."""

    def __init__(
        self,
        layout: StoreLayout,
        log: EventLog,
        projections: ProjectionSet,
        forgetting: Forgetting,
        nodes: Nodes,
        tokens: Tokens,
        *,
        retention: RetentionRuns,
        boundary: Boundary,
        accept_loss: Callable[..., None],
    ) -> None:
        self._accept_loss = accept_loss
        self.accepted: Callable[[], None] | None = None
        """What to do once a loss is accepted, if the log has lost events."""
        self._layout = layout
        self._log = log
        self._projections = projections
        self._tokens = tokens
        self._forgetting = forgetting
        self._nodes = nodes
        self._boundary = boundary
        self._retention = retention

    def doctor(
        self,
        *,
        deep: bool = False,
        fix: bool = False,
        accept_loss: bool = False,
        reason: str = "",
        progress: Progress | None = None,
    ) -> doctor.DoctorReport:
        """Diagnose log and projections.

        - `deep`: read everything
        - `fix`: repair what can be repaired
        - `accept_loss`: continue with a log that has lost events (`HistoryLost`). The event of it names the actor,
          the reason, and what was seen before; then everything is fixed
        - `reason`: why it is accepted
        - `progress`: called now and then with what is done and what there is to do

        The report says what was checked and what was not. docs/operations.md lists the states and what is done about
        each. A damaged log and missing keys are findings, not errors. Raises `InvalidInput` for a loss without a
        reason, and where nothing is lost.
        """
        if accept_loss:
            self._accept_loss(reason=reason)
            if self.accepted is not None:
                self.accepted()
                self.accepted = None
            self.doctor(fix=True)
        return doctor.doctor(self._layout, self._log, self._projections, deep=deep, fix=fix, progress=progress)

    def quarantine(self) -> Quarantine:
        """Return the quarantine, to list its items and to purge them."""
        return Quarantine(self._layout.own_quarantine, is_kept=self._layout.scratch is not None)

    def catch_up_views(self, *, progress: Progress | None = None) -> Position:
        """Bring the views and the text index up to date. Every read does so too; this reports progress.

        - `progress`: called now and then with what is done and what there is to do
        """
        return self._projections.current_views(progress).position()

    def catch_up_vectors(self, *, progress: Progress | None = None) -> RebuildReport:
        """Bring the vectors up to date: embed new turns and write the vectors to disk.

        - `progress`: called now and then with what is done and what there is to do

        Raises `ModelUnavailable`, `EncodingFailed` (naming the position), `IndexerBusy`.
        """
        return catch_up_vectors(self._log, self._projections.indexing, progress=progress)

    def language(self) -> str:
        """Return the code of the language whose word endings the text index removes, such as `de`."""
        return self._log.fold(LANGUAGE_STREAM, evolve_language).state or DEFAULT_LANGUAGE

    def set_language(self, language: str) -> bool:
        """Change the language of the text index, in every process; return whether it was another one.

        - `language`: `en`, `de`, `fr`, `es`, `pt` or `it`, or the English name

        The next read of each process indexes all turns again. Recalls as of an earlier position still use the language
        of then (docs/ranking.md). Raises `InvalidInput`.
        """
        return self._log.appends.transact(partial(commands.choose_language, wanted=parse_language(language)))

    def redaction(self) -> bool:
        """Return whether secrets in what is recorded are replaced (docs/redaction.md)."""
        return self._log.redaction().on

    def set_redaction(self, on: bool) -> bool:
        """Replace secrets in what is recorded from now on, in every process, or no longer. Return if that is a change.

        - `on`: True to replace them

        The setting is an event. What is in the log stays as it is: `audit.scan_secrets` finds it.
        """
        return self._log.appends.transact(partial(commands.choose_redaction, on=on))

    def create_token(
        self,
        actor: str,
        *,
        verbs: Sequence[str] = ("read", "record"),
        scopes: Sequence[str] = (),
        expires_in: timedelta | None = VALID_FOR,
    ) -> CreatedToken:
        """Create a token for a server of this store. `CreatedToken.secret` is what its holder sends; it is shown once.

        - `actor`: the name that is recorded in every event that its holder appends
        - `verbs`: what it allows: `read`, `record`, `forget`, `admin`, `metrics`
        - `scopes`: it allows that within these only (docs/server.md); empty for everywhere
        - `expires_in`: when it ends, 90 days by default; None for never

        The creation is an event; the log has only a digest of the token. Raises `InvalidInput`, `LimitExceeded`.
        """
        if not isinstance(scopes, str):
            scopes = list(map(self._scope, scopes))
        return self._tokens.create(actor, verbs=verbs, scopes=scopes, expires_in=expires_in)

    def _scope(self, scope: str) -> Scope:
        """Return a scope as the log spells it. Raises `InvalidInput`."""
        parsed = parse_scope(scope)
        return self._boundary.narrow((parsed,))[0] if parsed else parsed

    def tokens(self) -> Results[Token]:
        """Return all tokens in the order of their creation, also those that have expired or were revoked."""
        return Results(self._tokens.all())

    def rotate_token(self, token: Token | str, *, revoke_old_after: timedelta = REPLACED_FOR) -> CreatedToken:
        """Create a token that may do the same for as long again, and have the old one end. It is shown once.

            store = MemoryStore.open("memory/", model=None)
            old = store.admin.create_token("alice").token
            store.admin.rotate_token(old).token.actor  # -> 'alice'

        - `token`: the token, its id, or the name of an actor who has one valid token
        - `revoke_old_after`: how long the old one is still valid, for its holder to change over; zero for no longer

        Both are recorded in one transaction: of two calls at the same time one is refused. Raises `InvalidInput` for a
        token that was revoked or replaced, or has expired.
        """
        return self._tokens.rotate(name_of(token, Token, "token"), revoke_old_after=revoke_old_after)

    def revoke_token(self, token: Token | str) -> Token:
        """Revoke a token. Every server notices with its next request; doing it again changes nothing.

        - `token`: the token, its id, or the name of an actor who has one valid token

        The revocation is an event. Raises `InvalidInput` for an unknown id.
        """
        return self._tokens.revoke(name_of(token, Token, "token"))

    def retention(self, *, as_of: When | None = None) -> Retention:
        """Return how long what is said in each scope is kept, and the holds (docs/retention.md).

        - `as_of`: a position or a time: as it was then
        """
        return retention_at(self._log, as_of)

    def set_retention(
        self,
        scope: str,
        *,
        max_age: str | None,
        min_age: str | None = None,
        by: By = "said",
        keep_facts: bool = False,
    ) -> Retention:
        """Set how long what is said in a scope and below it is kept; return all rules and holds.

            store = MemoryStore.open("memory/", model=None)
            store.admin.set_retention("acme", max_age="180d", min_age="30d").rules[0].max_age  # -> '180d'

        - `scope`: a scope; the empty string for the whole store
        - `max_age`: the age at which `apply_retention` forgets turns, such as `180d`, `12h` or `90m`. The nearest scope
          above a session that has one counts. None for what the scope above says
        - `min_age`: the age before which nothing is forgotten, counted from the recording. The longest of all scopes
          above counts. `forget` of something younger asks for `despite_minimum`
        - `by`: what the maximum age is counted from: when a turn was `said`, or when it was `recorded`
        - `keep_facts`: True to keep facts that hold when the turns go that they rest on

        The setting is an event. Both ages None take the rule of the scope away. Raises `InvalidInput`.
        """
        within = self._scope(scope)
        self._retention.append(chosen_rule(within, max_age=max_age, min_age=min_age, by=by, keep_facts=keep_facts))
        return retention_at(self._log)

    def hold(self, scope: str, *, reason: str) -> Hold:
        """Forget nothing of a scope until the hold is lifted: retention passes over it, and `forget` raises `OnHold`.

        - `scope`: a scope with all below it; the empty string for the whole store
        - `reason`: why, up to 256 bytes; it stays readable

        Several holds may lie on a scope; each counts until it is lifted itself. Raises `InvalidInput`.
        """
        placed = HoldPlaced(scope=self._scope(scope), reason=checked_text("reason", reason))
        position = self._retention.append(placed).position
        return next(hold for hold in retention_at(self._log).holds if hold.position == position)

    def lift_hold(self, hold: Hold | int, *, reason: str) -> Hold:
        """End a hold; return what it was.

        - `hold`: the hold, or its position
        - `reason`: why, up to 256 bytes; it stays readable

        Raises `InvalidInput` for a position where no hold was placed, and for one that is lifted.
        """
        return self._retention.lift(
            HoldLifted(
                hold=checked_position("hold", name_of(hold, Hold, "hold")),
                reason=checked_text("reason", reason),
            )
        )

    def apply_retention(self, *, dry_run: bool = False, progress: Progress | None = None) -> RetentionReport:
        """Forget the turns that are older than their scope allows, and end the sessions of which none is left.

        - `dry_run`: write nothing; the report is what would be forgotten
        - `progress`: called now and then with what is done and what there is to do

        It forgets as `MemoryStore.forget` does, with the reason `retention: 180d`, so facts that rest on these turns
        alone, receipts and standing statements go as well. What a hold or a minimum age keeps stays. The next run
        continues one that was interrupted. Raises as `MemoryStore.forget` does.
        """
        return self._retention.apply(dry_run=dry_run, progress=progress)

    def nodes(self) -> Results[NodeStatus]:
        """Return the nodes of a log in PostgreSQL: how far each has read, purged, and when it was last seen.

        Empty for a log in a folder.
        """
        return Results(self._nodes.all())

    def remove_node(self, node: NodeStatus | str) -> bool:
        """Remove a node that is gone for good, so that nothing waits for it. Return whether there was one of that id.

        - `node`: the node, or its id

        A node that still runs is back when it next notes something. Raises `StoreNotWritable` for a user who may only
        read the log.
        """
        return self._nodes.remove(name_of(node, NodeStatus, "node"))

    def reapply_erasures(self, erasures: Sequence[Erasure], *, progress: Progress | None = None) -> ReapplyReport:
        """Repeat what was forgotten after the backup was made that this store was restored from.

        - `erasures`: what `store.audit.erasures` returned; known ones are skipped
        - `progress`: called now and then with what is done and what there is to do

        Tokens among them are revoked. Where only the log or only the keys are older, opening the store repeats the
        forgetting. Raises as `MemoryStore.forget` does.
        """
        return self._forgetting.reapply(erasures, progress=progress)


Rebuildable = Literal["vectors", "views", "all"]
VECTORS: Final = "vectors"
REBUILDABLE: Final[tuple[Rebuildable, ...]] = get_args(Rebuildable)


def rebuild(
    projection: Rebuildable,
    layout: StoreLayout,
    log: EventLog,
    projections: ProjectionSet,
    *,
    dry_run: bool,
    skip_bad: bool,
    progress: Progress | None,
) -> list[RebuildReport]:
    """Rebuild projections from the log, or with `dry_run` report what that would take.

    `all` leaves vectors out where the store was opened without a model.

    Raises `InvalidInput` for another name, and what the projection raises.
    """
    if projection not in REBUILDABLE:
        raise errors.InvalidInput("projection", f"{projection!r} is none of {', '.join(REBUILDABLE)}")
    if not dry_run:
        log.appends.require_writable()
    context = StoreContext(layout, log, projections, progress=progress)
    upto = log.head().position
    forgotten = sum(position <= upto for position in forgotten_turns(log))
    expected = log.count(topic=TurnRecorded.topic, after=ORIGIN, upto=upto) - forgotten
    reports: list[RebuildReport] = []
    every = [name for name in BY_NAME if name != VECTORS or projections.has_model]
    for name in every if projection == "all" else (projection,):
        started = perf_counter()
        if dry_run:
            built = Rebuilt(0, BY_NAME[name].to_encode(context, upto=upto))
        else:
            built = BY_NAME[name].rebuild(context, upto=upto, skip_bad=skip_bad)
        seconds = perf_counter() - started
        if not dry_run:
            facts = {**built._asdict(), "seconds": round(seconds, 3)}
            structured_log.info("projection.rebuilt", name=name, upto=upto, **facts)
        reports.append(
            RebuildReport(
                projection=name,
                dry_run=dry_run,
                upto=upto,
                expected_turns=expected,
                built_turns=built.turns,
                encoded_texts=built.encoded,
                skipped_turns=built.skipped,
                seconds=seconds,
            )
        )
    projections.poke()
    return reports


_UNPROVED: Final = "unproved"
_PROVED_LATER: Final = "Nothing to do: they are compared with the log when it answers again."
WITHOUT_ONNX_RUNTIME: Final = "sentence-transformers runs every model, the default one at half the speed or less"


class WalStatus(Result, frozen=True, kw_only=True):
    """The write-ahead log of `log.db`: commits not yet moved into its pages, or moved and not yet overwritten."""

    bytes: int
    waiting_frames: int
    """Pages not yet moved into `log.db`."""
    readers: tuple[int, ...]
    """Ids of the processes that read from it now, where the operating system reports them."""
    why: str
    """Why it is large; empty if it is not."""


class Status(Result, frozen=True, kw_only=True):
    """The state of a store. Nothing is repaired, and only `views.db` is read in full, to compare its checksum."""

    path: str
    read_only: bool
    """Whether the store was opened with `read_only`: then the projections are copies in a temporary folder."""
    log_id: str
    log_format: int
    created_at: UtcTime
    stale: Stale | None = None
    """Set if the log does not answer. Then `head` is how far the views have read, and what only the log tells is left
    out: requests to forget, its size, tables and vectors."""
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal."""
    database: str
    """Where the log is in PostgreSQL: its name and the URL without a password, and that of its keys if they are in
    another database; empty if it is `log.db`."""
    moved_to: str = ""
    """Where the log was moved: it takes no more events. Empty if it does."""
    log_bytes: int = 0
    """In PostgreSQL of all logs of the database."""
    wal: WalStatus | None = None
    """None for a log in PostgreSQL."""
    sessions: int
    turns: int
    """Sessions and turns as far as the views have read the log."""
    views: ViewsStatus
    tables: tuple[TablesStatus, ...] = ()
    """The tables that exist."""
    vectors: tuple[GenerationStatus, ...] = ()
    caches: tuple[CacheStatus, ...]
    projector: ProjectorStatus
    """This store's own projector, or if it has none, that of another process."""
    quarantine: QuarantineStatus
    forgetting: ForgettingStatus
    nodes: tuple[NodeStatus, ...] = ()
    """The nodes of a log in PostgreSQL, this one among them; none of a log in a folder."""
    warnings: tuple[str, ...]
    """Problems that need attention: lost history, a full quarantine, a model that cannot be loaded."""
    sqlite_version: str

    def _shown(self) -> Iterable[str]:
        yield from (brief(self.path), f"head={self.head}")
        yield from (counted(self.sessions, "session"), counted(self.turns, "turn"))
        if self.warnings:
            yield counted(len(self.warnings), "warning")


def store_status(layout: StoreLayout, log: EventLog, projections: ProjectionSet, nodes: Nodes) -> Status:
    """Return the state of a store at the head that its log has now."""
    try:
        at_head = LogAtHead(log)
    except errors.LogUnreachable:
        return _status_alone(layout, log, projections, nodes)
    head = at_head.head()
    context = StoreContext(layout, at_head, projections, projections.active_fingerprint(upto=head.position))
    found = [status for projection in PROJECTIONS for status in projection.status(context)]
    (views,) = (item for item in found if isinstance(item, ViewsStatus))
    vectors = tuple(item for item in found if isinstance(item, GenerationStatus))
    forgetting = forgetting_status(log)
    wal = wal_status(log)
    quarantine = Quarantine(context.layout.own_quarantine).status()
    address, moved_to = read_address(layout.folder), log.usable_engine.moved_to()
    projector = projections.projector_status()
    return Status(
        path=str(layout.folder),
        read_only=log.is_read_only,
        log_id=at_head.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        head=head.position,
        digest=head.digest,
        database="" if address is None else address.shown(),
        moved_to=moved_to,
        log_bytes=log.usable_engine.size_bytes(),
        wal=wal,
        sessions=views.sessions,
        turns=views.turns,
        views=views,
        tables=tuple(item for item in found if isinstance(item, TablesStatus)),
        vectors=vectors,
        caches=tuple(item for item in found if isinstance(item, CacheStatus)),
        projector=projector,
        quarantine=quarantine,
        forgetting=forgetting,
        nodes=tuple(nodes.all()),
        warnings=(
            *_lost_events(log),
            *((f"the log takes no more events: it was moved to {moved_to}",) if moved_to else ()),
            *_warnings(views, vectors, quarantine, forgetting, wal, head=head.position),
            *_backup_warnings(layout.folder, log, doctor.missing_keys(log)),
            *_model_warnings(projections, projector),
        ),
        sqlite_version=dbapi2.sqlite_version,
    )


def _status_alone(layout: StoreLayout, log: EventLog, projections: ProjectionSet, nodes: Nodes) -> Status:
    """Return the state of a store whose log does not answer. Raises `LogUnreachable` where it has no views."""
    views, position, stale = projections.to_answer()
    if stale is None:  # It answers again.
        return store_status(layout, log, projections, nodes)
    with views.database.reading() as connection:
        digest, (sessions, turns) = tracked(connection, views.name).digest, queries.counts(connection)
    context = StoreContext(layout, log, projections)
    address = read_address(layout.folder)
    caches = [cache for cache in PROJECTIONS if isinstance(cache, Cache)]
    return Status(
        path=str(layout.folder),
        read_only=log.is_read_only,
        log_id=log.log_id,
        log_format=log.identity.log_format,
        created_at=to_datetime(log.identity.created_at),
        stale=stale,
        head=position,
        digest=digest.hex(),
        database="" if address is None else address.shown(),
        sessions=sessions,
        turns=turns,
        views=ViewsStatus(
            state=_UNPROVED, position=position, behind_events=0, action=_PROVED_LATER, sessions=sessions, turns=turns
        ),
        caches=tuple(status for cache in caches for status in cache.status(context)),
        projector=projections.projector_status(),
        quarantine=Quarantine(context.layout.own_quarantine).status(),
        forgetting=ForgettingStatus(requests=0, events=0, pending=()),
        warnings=(f"nothing can be recorded, and recalls are answered from projections alone, {stale}",),
        sqlite_version=dbapi2.sqlite_version,
    )


def _lost_events(log: EventLog) -> Iterator[str]:
    """Yield what is known to be wrong with the log."""
    seen = log.engine.seen
    if seen.lost:
        reports = errors.remedy("admin.doctor"), " reports what was lost and what to do"
        yield errors.Hint(f"{seen.lost}; nothing is read or recorded: ", *reports)
    yield from seen.warnings.values()


def _backup_warnings(folder: Path, log: EventLog, keys: errors.KeysMissing | None) -> Iterator[str]:
    """Yield what is lost, and how to get it back from a backup."""
    if keys is not None:
        yield errors.Hint(f"{keys}; content can be neither read nor recorded: ", put_keys_back(folder, keys))
    with log.reading() as reads:
        damage = log.damage(reads)[:FINDINGS_MAX]
    for finding in (*quick_verify(log, noted_witnesses(folder, log.log_id)), *damage):
        yield errors.Hint(f"{finding.detail}; ", after_findings(folder, [finding]))


def _model_warnings(projections: ProjectionSet, projector: ProjectorStatus) -> Iterator[str]:
    if (trouble := projections.models.trouble) is not None:
        yield errors.Hint(f"recalls search by words only: {trouble}; ", trouble.hint)
    elif (why := projector.trouble) is not None:
        yield f"vectors are not updated: {why}"
    named = isinstance(projections.models.own, str | Path)
    if named and find_spec("onnxruntime") is None and find_spec("sentence_transformers") is not None:
        yield errors.Hint(WITHOUT_ONNX_RUNTIME, f": `{errors.install_command('minilm')}`")


def wal_status(log: EventLog) -> WalStatus | None:
    """Return the state of the log's write-ahead log, and why it is large if it is; None if it is not in SQLite."""
    if not isinstance(log.engine, SqliteEngine):
        return None
    size, found = wal_checkpointer.size_bytes(log.path), log.engine.checkpointed()
    readers, why = wal_checkpointer.readers_of(log.path), ""
    if size >= wal_checkpointer.WARN_BYTES and found.waiting:
        who = f"process {', '.join(map(str, readers))}" if readers else "a process"
        why = (
            f"{who} reads it in a transaction that does not end, so {found.waiting:,} pages cannot be moved into "
            "log.db; end that transaction, and the file is emptied within seconds"
        )
    elif size >= wal_checkpointer.WARN_BYTES:
        why = "a reader has just ended; the next commits empty it"
    return WalStatus(bytes=size, waiting_frames=found.waiting, readers=readers, why=why)


def _warnings(
    views: ViewsStatus,
    vectors: Iterable[GenerationStatus],
    quarantine: QuarantineStatus,
    forgetting: ForgettingStatus,
    wal: WalStatus | None,
    *,
    head: int,
) -> Iterator[str]:
    if forgetting.pending:
        which = ", ".join(forgetting.pending)
        yield f"requests to forget are not complete: {which}; any open store tries again"
    if views.state in LOST_HISTORY:
        yield f"the log has lost history: the views have read to {views.position}, the log ends at {head}"
    for item in vectors:
        for segment in item.unused:
            if segment.state in LOST_HISTORY:
                yield f"the log has lost history: vectors {item.generation}/{segment.name}: {segment.why}"
            elif segment.state in UNCOVERED:
                yield f"vectors {item.generation}/{segment.name} belong to another store: {segment.why}"
    if wal is not None and wal.why:
        yield f"the write-ahead log of log.db has {wal.bytes:,} bytes: {wal.why}"
    if quarantine.full:
        size = f"{counted(quarantine.items, 'item')}, {counted(quarantine.bytes, 'byte')}"
        yield errors.Hint(f"the quarantine is full ({size}): ", quarantine.action)
