"""The composition root: builds the parts of a store, and connects `infra` to the ports of the projections."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mnemolog.application import commands
from mnemolog.application.facts import Distrusts, FactKeys, Facts, NamesInUse
from mnemolog.application.session_service import Agents, SessionList, Sessions, Switches
from mnemolog.application.tokens import Tokens
from mnemolog.application.visible_events import ReadsFile, VisibleEvents, reading
from mnemolog.audit.service import AuditService
from mnemolog.audit.verification import accept_loss, find_lost_events, keep_heads
from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain import errors, structured_log
from mnemolog.domain.choices import parse_language
from mnemolog.domain.events import DISTRUST_STREAM
from mnemolog.domain.options import Option, with_defaults
from mnemolog.domain.redaction import Redact
from mnemolog.domain.request import as_it_is
from mnemolog.domain.scope import Boundary, Scopes, parse_scopes
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import MEMORY_LIMITS, ORIGIN, WAIT_S_MAX, Clock, MemoryLimits, checked_number
from mnemolog.forgetting.proposals import Proposals
from mnemolog.forgetting.service import Forgetting, RetentionRuns
from mnemolog.infra.embedding import make_encoder
from mnemolog.infra.embedding.reranker import make_reranker
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.infra.log.postgres.address import LogAddress, answers_alone, place_of
from mnemolog.infra.log.sqlite.wal_checkpointer import WalKeeper
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import ScratchFolder, is_writable, local_path, require_folder, sweep_scratch
from mnemolog.infra.sqlite import BUSY_TIMEOUT_S, Synchronous
from mnemolog.models.service import ModelService
from mnemolog.observability.telemetry import Gauges, Telemetry, gauges_of, measure_appends, recall_timer
from mnemolog.operations.backup_files import copies_of_keys
from mnemolog.operations.nodes import Nodes, scratch_of
from mnemolog.operations.service import AdminService
from mnemolog.projections.context.service import Contexts
from mnemolog.projections.history.states import SessionStates
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.recall.answer import Recall
from mnemolog.projections.recall.prefetch import Prefetcher, StoreState
from mnemolog.projections.recall.service import Recalls
from mnemolog.projections.sql.snapshots import SnapshotStore
from mnemolog.session import SessionParts

_MODEL = "name or folder of a SentenceTransformer, or an object; None for text only (docs/models.md)"
_RERANKER = "name or folder of a CrossEncoder, or an object, that reorders the best turns (docs/ranking.md)"


class StoreOptions(TypedDict, total=False):
    """Arguments of `MemoryStore.open` besides the path: the usual ones, then those that are rarely needed."""

    model: Annotated[Any, Option(_MODEL, DEFAULT_MODEL)]
    scope: Annotated[
        str | Sequence[str],
        Option("nothing outside of this scope, or several, can be read or written (docs/scopes.md)", ""),
    ]
    create: Annotated[bool, Option("create a store if there is none, instead of raising `StoreNotFound`", True)]
    receipts: Annotated[bool, Option("record each recall and context, unless called with `receipt=False`", False)]
    redact: Annotated[
        bool | Redact | None,
        Option("True: the store replaces secrets in what is recorded from now on; or a function (docs/redaction.md)"),
    ]
    language: Annotated[str | None, Option("language of a new store: sets which word endings text recall ignores")]
    read_only: Annotated[bool, Option("change no file of a folder; recording raises `StoreNotWritable`", False)]
    log: Annotated[str | None, Option("with a URL, the name of the log in the database")]
    local: Annotated[str | Path | None, Option("with a URL, the folder of this machine's projections")]
    keys: Annotated[str | None, Option("with a URL, the URL of another database for the keys of the content")]
    models: Annotated[Sequence[Any], Option("further models that this process can use", ())]
    synchronous: Annotated[Synchronous, Option("`NORMAL` is faster; a power cut may lose the newest turns", "FULL")]
    busy_timeout_s: Annotated[float, Option("seconds that a write waits for other processes", BUSY_TIMEOUT_S)]
    clock: Annotated[Clock | None, Option("its `now()` returns microseconds since 1970; None for this machine's")]
    limits: Annotated[MemoryLimits, Option("how much the working memory of one session may hold", MEMORY_LIMITS)]
    encrypt: Annotated[bool | None, Option("False: a new store encrypts nothing and so can never forget anything")]
    background: Annotated[bool, Option("embed new turns in a background thread (docs/projector.md)", True)]
    reranker: Annotated[Any, Option(_RERANKER)]
    four_eyes: Annotated[bool, Option("nobody approves what they proposed (docs/proposals.md)", False)]
    audit_reads: Annotated[str | Path | None, Option("a file that gets a line for each read (docs/reads.md)")]
    witness: Annotated[str | Path | None, Option("a file outside that keeps heads of the log (docs/audit.md)")]
    allow_network_filesystem: Annotated[bool, Option("open a store on a network file system, which is unsafe", False)]
    telemetry: Annotated[Telemetry | None, Option("receives measurements (docs/observability.md)")]


@dataclass(frozen=True, kw_only=True)
class SharedParts:
    """The parts that a store shares with those for its scopes (`MemoryStore.within`)."""

    layout: StoreLayout
    log: EventLog
    clock: Clock
    limits: MemoryLimits
    snapshots: SnapshotStore
    projections: ProjectionSet
    nodes: Nodes
    forgetting: Forgetting
    tokens: Tokens
    fact_keys: FactKeys
    names: NamesInUse
    wal_keeper: WalKeeper
    witness: Path | None
    """The file outside of the store that keeps heads of its log."""
    telemetry: Telemetry | None
    gauges: Gauges
    receipts: bool
    """Whether recalls and contexts leave receipts that do not say otherwise."""
    four_eyes: bool
    """Whether a proposal needs the approval of another one than who made it."""
    scratch: ScratchFolder | None
    """Holds the projections of a store that is only read."""


@dataclass(frozen=True, kw_only=True)
class StoreParts(SharedParts, SessionParts):
    """The parts of a store. `build` creates them; `start` and `close` begin and end their work."""

    boundary: Boundary
    """The scopes that the store was opened for."""
    agents: Agents
    audit: AuditService
    models: ModelService
    admin: AdminService
    session_list: SessionList
    distrusts: Distrusts
    proposals: Proposals
    is_part: bool
    """Whether these are parts of another store for one scope: closing them leaves what both share open."""

    @as_it_is()
    def start(self) -> None:
        """Start the background threads, and resume interrupted requests to forget.

        Where the log has lost events, the store only reports on it, and this comes when the loss is accepted.
        """
        if self.telemetry is not None:
            self.telemetry.watch(self.gauges)
        if self.log.engine.seen.lost:
            structured_log.error("log.lost_events", path=self.layout.folder, why=self.log.engine.seen.lost)
            self.admin.accepted = self._begin
        else:
            self._begin()

    def _begin(self) -> None:
        try:
            self.nodes.opened()
        except BaseException:
            self.close()
            raise
        self.projections.start()
        structured_log.info(
            "store.opened",
            path=self.layout.folder,
            log_id=self.log.log_id,
            background=self.projections.projector is not None,
        )
        sweep_scratch()
        self.forgetting.resume()
        self.projections.watch(look=self.forgetting.look)

    def within(self, scopes: Scopes) -> "StoreParts":
        """Return parts for some scopes that share log, projections and snapshots with these. Raises `OutsideScope`."""
        self.log.require_usable()
        boundary = Boundary(self.boundary.narrow(scopes), self.boundary.has)
        return _assembled(self, self.visible.within(boundary), is_part=True)

    def close(self) -> None:
        """Stop the threads, finish queued appends and close all files. A forked child leaves them alone."""
        if self.log.is_inherited:
            return
        if self.is_part:
            self.prefetcher.close()
            return
        if self.telemetry is not None:
            self.telemetry.unwatch(self.gauges)
        self.projections.stop()
        self.nodes.close()
        self.tokens.save_uses()
        self.prefetcher.close()
        self.log.appends.close()
        self.wal_keeper.close()
        self.log.close()
        self.snapshots.close()
        self.projections.close()
        if self.scratch is not None:
            self.scratch.close()
        structured_log.info("store.closed", path=self.layout.folder)


def build(path: str | Path, options: StoreOptions) -> StoreParts:
    """Open the log at `path` and build the parts of its store; nothing runs before `StoreParts.start`.

    Errors are those of `MemoryStore.open`.
    """
    chosen = with_defaults(StoreOptions, options)
    folder, address = place_of(path, log=chosen["log"], local=chosen["local"], keys=chosen["keys"])
    scopes = parse_scopes(chosen["scope"])
    reranker = make_reranker(chosen["reranker"])
    clock = chosen["clock"] or SystemClock()
    read_only, telemetry = chosen["read_only"], chosen["telemetry"]
    if read_only and chosen["receipts"]:
        raise errors.InvalidInput("receipts", "a receipt is recorded, and nothing can be with `read_only`")
    require_local(folder, allowed=chosen["allow_network_filesystem"])
    _require_own_folders(StoreLayout(folder))
    reads = None if chosen["audit_reads"] is None else ReadsFile(local_path("audit_reads", chosen["audit_reads"]))
    witness = None if chosen["witness"] is None else local_path("witness", chosen["witness"])
    log = _open_log(folder, address, clock, chosen, witness)
    # A store that only reads its log keeps the projections in its folder up to date if it can, as any node does.
    keeps_projections = not read_only or (log.engine.nodes is not None and is_writable(folder))
    scratch = None if keeps_projections else scratch_of(folder, log)
    layout = StoreLayout(folder, None if scratch is None else scratch.path)
    projections = ProjectionSet(
        layout,
        log,
        chosen["model"],
        make_encoder=make_encoder,
        models=chosen["models"],
        background=chosen["background"],
        reranker=reranker,
        answers_alone=answers_alone(folder),
    )
    snapshots = SnapshotStore(layout, log)
    names = NamesInUse(log, projections)
    boundary = Boundary(has=names.has_scope)
    boundary = Boundary(boundary.narrow(scopes), names.has_scope)
    visible = VisibleEvents(log, SessionStates(log, snapshots, boundary=boundary), projections.session_titles, reads)
    if telemetry is not None:
        measure_appends(log, telemetry)
    nodes = Nodes(layout, log, projections)
    shared = SharedParts(
        layout=layout,
        log=log,
        clock=clock,
        limits=chosen["limits"],
        snapshots=snapshots,
        projections=projections,
        nodes=nodes,
        forgetting=Forgetting(
            layout,
            log,
            projections,
            nodes=nodes.all,
            purged=nodes.purged,
            copies_of_keys=partial(copies_of_keys, layout.folder),
        ),
        tokens=Tokens(log, clock, uses=layout.token_uses),
        fact_keys=FactKeys(projections),
        names=names,
        wal_keeper=WalKeeper(log.path, log, partial(keep_heads, log, witness, clock)),
        witness=witness,
        telemetry=telemetry,
        gauges=gauges_of(layout, log, projections),
        receipts=chosen["receipts"],
        four_eyes=chosen["four_eyes"],
        scratch=scratch,
    )
    return _assembled(shared, visible, is_part=False)


def _assembled(shared: SharedParts, visible: VisibleEvents, *, is_part: bool) -> StoreParts:
    """Return the parts of a store, with the services that answer within a boundary."""
    log = shared.log
    projections = shared.projections
    forgetting, boundary = shared.forgetting, visible.boundary
    agents = Agents(visible)
    session_list = SessionList(projections, visible, agents)
    recalls = Recalls(
        projections,
        spans_at=visible.spans,
        append=lambda stream, event: log.appends.transact(lambda tx: tx.append(stream, event)).position,
        clock=shared.clock,
        receipts=shared.receipts,
        timed=recall_timer(shared.telemetry),
        boundary=boundary,
    )
    contexts = Contexts(recalls, state_at=partial(visible.state_at, is_in_log=True))
    facts = Facts(visible, projections, shared.fact_keys, shared.names, clock=shared.clock)
    sessions = Sessions(visible, agents, clock=shared.clock, limits=shared.limits)
    return StoreParts(
        **{field.name: getattr(shared, field.name) for field in fields(SharedParts)},
        boundary=boundary,
        visible=visible,
        agents=agents,
        sessions=sessions,
        facts=facts,
        switches=Switches(visible, agents, partial(session_list.groups, "scope")),
        contexts=contexts,
        prefetcher=_prefetcher(shared, agents, recalls, visible),
        audit=AuditService(log, visible, shared.clock, projections, contexts, forgetting),
        models=ModelService(shared.layout, log, projections, boundary=boundary),
        admin=AdminService(
            *(shared.layout, log, projections, forgetting, shared.nodes, shared.tokens),
            retention=RetentionRuns(visible, projections, forgetting, sessions),
            boundary=boundary,
            accept_loss=partial(accept_loss, log, shared.witness),
        ),
        session_list=session_list,
        distrusts=Distrusts(visible, projections),
        proposals=Proposals(visible, projections, facts, forgetting, clock=shared.clock, four_eyes=shared.four_eyes),
        is_part=is_part,
    )


def _require_own_folders(layout: StoreLayout) -> None:
    """Raise `NotAStore` if a folder of projections is a symbolic link: what it leads to would be changed or deleted.

    Raises `StoreNotWritable` if this user may not look at it.
    """
    for folder in layout.derived_folders:
        try:
            require_folder(folder)
        except PermissionError as error:
            raise errors.StoreNotWritable(folder.parent, error.strerror or str(error), access="read") from error
        except OSError as error:
            if layout.folder.is_file():
                return  # Opening the log says that it is no folder.
            why = f"{folder.relative_to(layout.folder)}: {error.strerror}; delete it, it is made again from the log"
            raise errors.NotAStore(layout.folder, why) from error


def _open_log(
    folder: Path, address: LogAddress | None, clock: Clock, chosen: StoreOptions, witness: Path | None
) -> EventLog:
    """Open the log with its settings; choose those of a new one. Raises `InvalidInput` if they contradict its own."""
    language, redact = chosen["language"], chosen["redact"]
    wanted = None if language is None else parse_language(language)
    log = open_log(
        folder,
        clock=clock,
        create=chosen["create"],
        synchronous=chosen["synchronous"],
        busy_timeout_s=checked_number("busy_timeout_s", chosen["busy_timeout_s"], most=WAIT_S_MAX),
        encrypt=chosen["encrypt"],
        read_only=chosen["read_only"],
        address=address,
        redact=redact if callable(redact) else None,
    )
    try:
        find_lost_events(log, witness)
        if log.engine.seen.lost:
            return log
        if wanted is not None:
            log.appends.transact(partial(commands.choose_language, wanted=wanted, change=log.head().position == ORIGIN))
        if redact is not None and bool(redact) != log.redaction().on:
            if not redact:
                why = "this store replaces secrets; store.admin.set_redaction(False) ends it"
                raise errors.InvalidInput("redact", why)
            log.appends.transact(partial(commands.choose_redaction, on=True))
    except errors.MnemologError:
        log.close()
        raise
    return log


def _prefetcher(shared: SharedParts, agents: Agents, recalls: Recalls, visible: VisibleEvents) -> Prefetcher:
    log, projections = shared.log, shared.projections

    def moment(session_id: str) -> StoreState:
        """Return the state that a prefetch is checked against: it changes with a switch, rewind or restore."""
        return StoreState(
            generation=agents.generation(session_id),
            epoch=log.epoch(),
            head=log.head().position,
            model=projections.models.known_fingerprint(),
            distrusts=log.version(DISTRUST_STREAM),
        )

    def show(recall: Recall) -> Recall:
        with reading(visible, "session.prefetch") as shown:
            recall = visible.admitted(recall)
            shown.collect(recall)
            return recall

    # A receipt would be an event after the request: `max_behind=0` would then refuse every answer.
    return Prefetcher(lambda request: recalls.ask(request.question(), receipt=False).recall, moment, show)
