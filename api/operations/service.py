"""Maintaining a store: doctor, quarantine, catching up, rebuilding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Final, Literal, get_args

from mnemolog.application import commands
from mnemolog.application.tokens import Tokens
from mnemolog.domain import errors, structured_log
from mnemolog.domain.choices import DEFAULT_LANGUAGE, LANGUAGE_STREAM, evolve_language, parse_language
from mnemolog.domain.events import CountedFrom, HoldLifted, HoldPlaced, TurnRecorded
from mnemolog.domain.limits import checked_text
from mnemolog.domain.position import ORIGIN, Position, When, checked_position
from mnemolog.domain.result import Results, name_of
from mnemolog.domain.retention import Hold, Retention, chosen_rule
from mnemolog.domain.scope import Boundary, Scope, parse_scope
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.tokens import REPLACED_FOR, VALID_FOR, CreatedToken, Token
from mnemolog.forgetting.history import forgotten_turns
from mnemolog.forgetting.results import Erasure, NodeStatus, ReapplyReport
from mnemolog.forgetting.retention import RetentionReport, RetentionRuns
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.log.event_log import EventLog
from mnemolog.operations import doctor
from mnemolog.operations.doctor import DoctorReport
from mnemolog.operations.nodes import Nodes
from mnemolog.projections.maintenance.context import RebuildReport, Rebuilt, StoreContext
from mnemolog.projections.maintenance.vectors import catch_up_vectors
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.registry import REBUILDABLE as PROJECTIONS


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
    ) -> DoctorReport:
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
        self._boundary.require_none("admin.doctor")
        if accept_loss:
            self._accept_loss(reason=reason)
            if self.accepted is not None:
                self.accepted()
                self.accepted = None
            self.doctor(fix=True)
        return doctor.doctor(self._layout, self._log, self._projections, deep=deep, fix=fix, progress=progress)

    def quarantine(self) -> Quarantine:
        """Return the quarantine, to list its items and to purge them."""
        self._boundary.require_none("admin.quarantine")
        return Quarantine(self._layout.quarantine)

    def catch_up_views(self, *, progress: Progress | None = None) -> Position:
        """Bring the views and the text index up to date. Every read does so too; this reports progress.

        - `progress`: called now and then with what is done and what there is to do
        """
        self._boundary.require_none("admin.catch_up_views")
        return self._projections.current_views(progress).position()

    def catch_up_vectors(self, *, progress: Progress | None = None) -> RebuildReport:
        """Bring the vectors up to date: embed new turns and write the vectors to disk.

        - `progress`: called now and then with what is done and what there is to do

        Raises `ModelUnavailable`, `EncodingFailed` (naming the position), `IndexerBusy`.
        """
        self._boundary.require_none("admin.catch_up_vectors")
        return catch_up_vectors(self._log, self._projections.indexing, progress=progress)

    def language(self) -> str:
        """Return the code of the language whose word endings the text index removes, such as `de`."""
        self._boundary.require_none("admin.language")
        return self._log.fold(LANGUAGE_STREAM, evolve_language).state or DEFAULT_LANGUAGE

    def set_language(self, language: str) -> bool:
        """Change the language of the text index, in every process; return whether it was another one.

        - `language`: `en`, `de`, `fr`, `es`, `pt` or `it`, or the English name

        The next read of each process indexes all turns again. Recalls as of an earlier position still use the language
        of then (docs/recall.md). Raises `InvalidInput`.
        """
        self._boundary.require_none("admin.set_language")
        return self._log.appends.transact(partial(commands.choose_language, wanted=parse_language(language)))

    def redaction(self) -> bool:
        """Return whether secrets in what is recorded are replaced (docs/redaction.md)."""
        self._boundary.require_none("admin.redaction")
        return self._log.redaction().on

    def set_redaction(self, on: bool) -> bool:
        """Replace secrets in what is recorded from now on, in every process, or no longer. Return if that is a change.

        - `on`: True to replace them

        The setting is an event. What is in the log stays as it is: `audit.scan_secrets` finds it.
        """
        self._boundary.require_none("admin.set_redaction")
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
        self._boundary.require_none("admin.create_token")
        if not isinstance(scopes, str):
            scopes = list(map(self._scope, scopes))
        return self._tokens.create(actor, verbs=verbs, scopes=scopes, expires_in=expires_in)

    def _scope(self, scope: str) -> Scope:
        """Return a scope as the log spells it. Raises `InvalidInput`."""
        parsed = parse_scope(scope)
        return self._boundary.narrow((parsed,))[0] if parsed else parsed

    def tokens(self) -> Results[Token]:
        """Return all tokens in the order of their creation, also those that have expired or were revoked."""
        self._boundary.require_none("admin.tokens")
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
        self._boundary.require_none("admin.rotate_token")
        return self._tokens.rotate(name_of(token, Token, "token"), revoke_old_after=revoke_old_after)

    def revoke_token(self, token: Token | str) -> Token:
        """Revoke a token. Every server notices with its next request; doing it again changes nothing.

        - `token`: the token, its id, or the name of an actor who has one valid token

        The revocation is an event. Raises `InvalidInput` for an unknown id.
        """
        self._boundary.require_none("admin.revoke_token")
        return self._tokens.revoke(name_of(token, Token, "token"))

    def retention(self, *, as_of: When | None = None) -> Retention:
        """Return how long what is said in each scope is kept, and the holds (docs/retention.md).

        - `as_of`: a position or a time: as it was then
        """
        self._boundary.require_none("admin.retention")
        return self._retention.retention(as_of)

    def set_retention(
        self,
        scope: str,
        *,
        max_age: str | None,
        min_age: str | None = None,
        by: CountedFrom = "said",
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
        self._boundary.require_none("admin.set_retention")
        within = self._scope(scope)
        self._retention.append(chosen_rule(within, max_age=max_age, min_age=min_age, by=by, keep_facts=keep_facts))
        return self._retention.retention(None)

    def hold(self, scope: str, *, reason: str) -> Hold:
        """Forget nothing of a scope until the hold is lifted: retention passes over it, and `forget` raises `OnHold`.

        - `scope`: a scope with all below it; the empty string for the whole store
        - `reason`: why, up to 256 bytes; it stays readable

        Several holds may lie on a scope; each counts until it is lifted itself. Raises `InvalidInput`.
        """
        self._boundary.require_none("admin.hold")
        placed = HoldPlaced(scope=self._scope(scope), reason=checked_text("reason", reason))
        position = self._retention.append(placed).position
        return next(hold for hold in self._retention.retention(None).holds if hold.position == position)

    def lift_hold(self, hold: Hold | int, *, reason: str) -> Hold:
        """End a hold; return what it was.

        - `hold`: the hold, or its position
        - `reason`: why, up to 256 bytes; it stays readable

        Raises `InvalidInput` for a position where no hold was placed, and for one that is lifted.
        """
        self._boundary.require_none("admin.lift_hold")
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
        self._boundary.require_none("admin.apply_retention")
        return self._retention.apply(dry_run=dry_run, progress=progress)

    def nodes(self) -> Results[NodeStatus]:
        """Return the nodes of a log in PostgreSQL: how far each has read, purged, and when it was last seen.

        Empty for a log in a folder.
        """
        self._boundary.require_none("admin.nodes")
        return Results(self._nodes.all())

    def remove_node(self, node: NodeStatus | str) -> bool:
        """Remove a node that is gone for good, so that nothing waits for it. Return whether there was one of that id.

        - `node`: the node, or its id

        A node that still runs is back when it next notes something. Raises `StoreNotWritable` for a user who may only
        read the log.
        """
        self._boundary.require_none("admin.remove_node")
        return self._nodes.remove(name_of(node, NodeStatus, "node"))

    def reapply_erasures(self, erasures: Sequence[Erasure], *, progress: Progress | None = None) -> ReapplyReport:
        """Repeat what was forgotten after the backup was made that this store was restored from.

        - `erasures`: what `store.audit.erasures` returned; known ones are skipped
        - `progress`: called now and then with what is done and what there is to do

        Tokens among them are revoked. Where only the log or only the keys are older, opening the store repeats the
        forgetting. Raises as `MemoryStore.forget` does.
        """
        self._boundary.require_none("admin.reapply_erasures")
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
    every = [name for name in PROJECTIONS if name != VECTORS or projections.has_model]
    for name in every if projection == "all" else (projection,):
        started = perf_counter()
        if dry_run:
            built = Rebuilt(0, PROJECTIONS[name].to_encode(context, upto=upto))
        else:
            built = PROJECTIONS[name].rebuild(context, upto=upto, skip_bad=skip_bad)
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
