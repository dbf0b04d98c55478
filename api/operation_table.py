"""The table of operations: the methods of the store that can be reached from outside of the process.

Whatever speaks is derived from it or checked against it: routes (`mnemolog.server.http.routes`), the client, commands,
tools of agents, the console.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from mnemolog.audit.service import AuditService
from mnemolog.domain.tokens import Verb
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore

Method = Callable[..., Any]

OWNERS: Final[dict[type, str]] = {
    MemoryStore: "",
    Session: "session.",
    AuditService: "audit.",
    ModelService: "models.",
    AdminService: "admin.",
    Quarantine: "admin.quarantine.",
}
"""The classes whose methods are offered, and what the names of their operations begin with."""


class Operation(msgspec.Struct, frozen=True):
    """A method of the store."""

    owner: type
    method: Method
    verb: Verb = "read"
    """What the caller must be allowed to do."""
    same_as: Method | None = None
    """The method of `Session` that does the same in its session."""
    of_log_alone: bool = False
    """Whether the answer depends on the arguments, the log and what the caller may see alone."""

    @property
    def name(self) -> str:
        """The name of the operation: `record`, `session.set`, `audit.diff`."""
        return OWNERS[self.owner] + self.method.__name__

    @property
    def of_session(self) -> bool:
        """Whether it is a method of a session."""
        return self.owner is Session

    @property
    def makes_session(self) -> bool:
        """Whether it may start the session that it returns."""
        return self.method in (MemoryStore.session, MemoryStore.start_session)

    @property
    def as_of(self) -> bool:
        """Whether it takes `at`, a position or a time: the session as it was then (`SessionAt`)."""
        return self.of_session and hasattr(SessionAt, self.method.__name__)


_on: Final = Operation

_STORE: Final = (
    _on(MemoryStore, MemoryStore.sessions, of_log_alone=True),
    _on(MemoryStore, MemoryStore.start_session, "record"),
    _on(MemoryStore, MemoryStore.find_session, of_log_alone=True),
    _on(MemoryStore, MemoryStore.session, "record"),
    _on(MemoryStore, MemoryStore.end_session, "record", same_as=Session.end),
    _on(MemoryStore, MemoryStore.record, "record", same_as=Session.record),
    _on(MemoryStore, MemoryStore.record_many, "record", same_as=Session.record_many),
    _on(MemoryStore, MemoryStore.turns, of_log_alone=True),
    _on(MemoryStore, MemoryStore.assert_fact, "record"),
    _on(MemoryStore, MemoryStore.retract_fact, "record"),
    _on(MemoryStore, MemoryStore.retract_facts, "record"),
    _on(MemoryStore, MemoryStore.facts),
    _on(MemoryStore, MemoryStore.fact),
    _on(MemoryStore, MemoryStore.fact_history),
    _on(MemoryStore, MemoryStore.scopes, of_log_alone=True),
    _on(MemoryStore, MemoryStore.agents, of_log_alone=True),
    _on(MemoryStore, MemoryStore.current, of_log_alone=True),
    _on(MemoryStore, MemoryStore.switch, "record"),
    _on(MemoryStore, MemoryStore.preview_switch),
    _on(MemoryStore, MemoryStore.recall),
    _on(MemoryStore, MemoryStore.context),
    _on(MemoryStore, MemoryStore.standing),
    _on(MemoryStore, MemoryStore.end_standing, "record"),
    _on(MemoryStore, MemoryStore.find),
    _on(MemoryStore, MemoryStore.head, of_log_alone=True),
    _on(MemoryStore, MemoryStore.position_at, of_log_alone=True),
    _on(MemoryStore, MemoryStore.events, of_log_alone=True),
    _on(MemoryStore, MemoryStore.replay, of_log_alone=True),
    _on(MemoryStore, MemoryStore.status),
    _on(MemoryStore, MemoryStore.verify),
    _on(MemoryStore, MemoryStore.forget, "forget"),
    _on(MemoryStore, MemoryStore.distrust, "forget"),
    _on(MemoryStore, MemoryStore.trust_again, "forget"),
    _on(MemoryStore, MemoryStore.distrusts),
    _on(MemoryStore, MemoryStore.propose, "propose"),
    _on(MemoryStore, MemoryStore.proposals),
    _on(MemoryStore, MemoryStore.approve, "approve"),
    _on(MemoryStore, MemoryStore.decline, "approve"),
    _on(MemoryStore, MemoryStore.backup, "admin"),
    _on(MemoryStore, MemoryStore.rebuild, "admin"),
)

_SESSIONS: Final = (
    _on(Session, Session.at, of_log_alone=True),
    _on(Session, Session.turns, of_log_alone=True),
    _on(Session, Session.assert_fact, "record"),
    _on(Session, Session.recall),
    _on(Session, Session.context),
    _on(Session, Session.prefetch),
    _on(Session, Session.prefetch_result),
    _on(Session, Session.rewind, "record"),
    _on(Session, Session.branch, "record"),
    _on(Session, Session.lineage, of_log_alone=True),
    _on(Session, Session.keys),
    _on(Session, Session.all),
    _on(Session, Session.clear, "record"),
    _on(Session, Session.get),
    _on(Session, Session.set, "record"),
    _on(Session, Session.delete, "record"),
    _on(Session, Session.task, of_log_alone=True),
    _on(Session, Session.set_task, "record"),
    _on(Session, Session.update_task, "record"),
    _on(Session, Session.notes, of_log_alone=True),
    _on(Session, Session.note, "record"),
    _on(Session, Session.clear_notes, "record"),
    _on(Session, Session.checkpoints, of_log_alone=True),
    _on(Session, Session.checkpoint, "record"),
    _on(Session, Session.delete_checkpoint, "record"),
    _on(Session, Session.restore, "record"),
)

_AUDIT: Final = (
    _on(AuditService, AuditService.timeline, of_log_alone=True),
    _on(AuditService, AuditService.event, of_log_alone=True),
    _on(AuditService, AuditService.diff, of_log_alone=True),
    _on(AuditService, AuditService.scan_secrets),
    _on(AuditService, AuditService.export),
    _on(AuditService, AuditService.subject),
    _on(AuditService, AuditService.receipts),
    _on(AuditService, AuditService.effects),
    _on(AuditService, AuditService.judge, "record"),
    _on(AuditService, AuditService.judgements, of_log_alone=True),
    _on(AuditService, AuditService.forgotten, of_log_alone=True),
    _on(AuditService, AuditService.erasures, of_log_alone=True),
    _on(AuditService, AuditService.pending_erasures),
)

_MAINTENANCE: Final = (
    _on(ModelService, ModelService.list),
    _on(ModelService, ModelService.load),
    _on(ModelService, ModelService.activate, "admin"),
    _on(ModelService, ModelService.drop, "admin"),
    _on(AdminService, AdminService.doctor, "admin"),
    _on(AdminService, AdminService.catch_up_views, "admin"),
    _on(AdminService, AdminService.catch_up_vectors, "admin"),
    _on(AdminService, AdminService.language, of_log_alone=True),
    _on(AdminService, AdminService.set_language, "admin"),
    _on(AdminService, AdminService.redaction, of_log_alone=True),
    _on(AdminService, AdminService.set_redaction, "admin"),
    _on(AdminService, AdminService.retention, of_log_alone=True),
    _on(AdminService, AdminService.set_retention, "admin"),
    _on(AdminService, AdminService.hold, "admin"),
    _on(AdminService, AdminService.lift_hold, "admin"),
    _on(AdminService, AdminService.apply_retention, "forget"),
    _on(AdminService, AdminService.nodes),
    _on(AdminService, AdminService.remove_node, "admin"),
    _on(AdminService, AdminService.create_token, "admin"),
    _on(AdminService, AdminService.tokens, "admin"),
    _on(AdminService, AdminService.rotate_token, "admin"),
    _on(AdminService, AdminService.revoke_token, "admin"),
    _on(AdminService, AdminService.reapply_erasures, "forget"),
    _on(Quarantine, Quarantine.items, "admin"),
    _on(Quarantine, Quarantine.status, "admin"),
    _on(Quarantine, Quarantine.purge, "admin"),
)

OPERATIONS: Final[tuple[Operation, ...]] = (*_STORE, *_SESSIONS, *_AUDIT, *_MAINTENANCE)
