"""The table of operations: each method of the store that the server offers, with its route and its verb.

Routes, arguments, the OpenAPI document and the client are derived from it (`mnemolog.server.http.serialization`). What
the table leaves out is listed with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from mnemolog.audit.service import AuditService
from mnemolog.domain.tokens import Verb
from mnemolog.models.service import ModelService
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore

HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Method = Callable[..., Any]

PREFIX: Final = "/v1"
"""The version of the API: every path of the table is below it."""
MCP_PATH: Final = "/mcp"
KEY_HEADER: Final = "idempotency-key"
SCOPE_HEADER: Final = "mnemolog-scope"
"""Limits a request to some of the scopes of its caller."""
JSON: Final = "application/json"
JSON_LINES: Final = "application/jsonl"
OCTETS: Final = "application/octet-stream"
EVENT_STREAM: Final = "text/event-stream"

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
    """A method of the store as the server offers it."""

    owner: type
    http: HttpMethod
    path: str
    """Below `PREFIX`. A parameter in braces is an argument of the method; `{session}` may also name its session."""
    method: Method
    verb: Verb = "read"
    """What the caller must be allowed to do."""
    same_as: Method | None = None
    """The method of `Session` that does the same in its session."""
    of_log_alone: bool = False
    """Whether the answer depends on the arguments and the log alone, so that its position is a valid `ETag`."""

    @property
    def name(self) -> str:
        """The name of the operation: `record`, `session.set`, `audit.diff`."""
        return OWNERS[self.owner] + self.method.__name__

    @property
    def has_large_body(self) -> bool:
        """Whether a request may have a body of more than `SMALL_BODY_MAX` bytes: it carries turns, or a long list."""
        return self.method in (MemoryStore.record, MemoryStore.record_many, AdminService.reapply_erasures)

    @property
    def takes_key(self) -> bool:
        """Whether a request with an `Idempotency-Key` writes nothing when it is sent again."""
        return self.verb == "record" or self.method is AdminService.create_token

    @property
    def of_session(self) -> bool:
        """Whether it is a method of a session, which the path names as `{session}`."""
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
_SESSION: Final = "/sessions/{session}"
_CHECKPOINT: Final = f"{_SESSION}/checkpoints/{{checkpoint}}"

_STORE: Final = (
    _on(MemoryStore, "GET", "/sessions", MemoryStore.sessions, of_log_alone=True),
    _on(MemoryStore, "POST", "/sessions", MemoryStore.start_session, "record"),
    _on(MemoryStore, "GET", "/sessions/{id}", MemoryStore.find_session, of_log_alone=True),
    _on(MemoryStore, "PUT", "/sessions/{id}", MemoryStore.session, "record"),
    _on(MemoryStore, "POST", f"{_SESSION}/end", MemoryStore.end_session, "record", same_as=Session.end),
    _on(MemoryStore, "POST", f"{_SESSION}/turns", MemoryStore.record, "record", same_as=Session.record),
    _on(MemoryStore, "POST", "/turns", MemoryStore.record_many, "record", same_as=Session.record_many),
    _on(MemoryStore, "GET", f"{_SESSION}/own-turns", MemoryStore.turns, of_log_alone=True),
    _on(MemoryStore, "POST", "/facts", MemoryStore.assert_fact, "record"),
    _on(MemoryStore, "POST", "/facts/retract", MemoryStore.retract_fact, "record"),
    _on(MemoryStore, "POST", "/facts/retract-made", MemoryStore.retract_facts, "record"),
    _on(MemoryStore, "GET", "/facts", MemoryStore.facts),
    _on(MemoryStore, "GET", "/facts/{key}", MemoryStore.fact),
    _on(MemoryStore, "GET", "/facts/{key}/history", MemoryStore.fact_history),
    _on(MemoryStore, "GET", "/scopes", MemoryStore.scopes, of_log_alone=True),
    _on(MemoryStore, "GET", "/agents", MemoryStore.agents, of_log_alone=True),
    _on(MemoryStore, "GET", "/agents/{agent}/session", MemoryStore.current, of_log_alone=True),
    _on(MemoryStore, "POST", "/switch", MemoryStore.switch, "record"),
    _on(MemoryStore, "POST", "/switch/preview", MemoryStore.preview_switch),
    _on(MemoryStore, "POST", "/recall", MemoryStore.recall),
    _on(MemoryStore, "POST", "/context", MemoryStore.context),
    _on(MemoryStore, "POST", "/standing", MemoryStore.standing),
    _on(MemoryStore, "POST", "/find", MemoryStore.find),
    _on(MemoryStore, "GET", "/head", MemoryStore.head, of_log_alone=True),
    _on(MemoryStore, "GET", "/position", MemoryStore.position_at, of_log_alone=True),
    _on(MemoryStore, "GET", "/events", MemoryStore.events, of_log_alone=True),
    _on(MemoryStore, "GET", "/replay", MemoryStore.replay, of_log_alone=True),
    _on(MemoryStore, "GET", "/status", MemoryStore.status),
    _on(MemoryStore, "POST", "/verify", MemoryStore.verify),
    _on(MemoryStore, "POST", "/forget", MemoryStore.forget, "forget"),
    _on(MemoryStore, "POST", "/distrust", MemoryStore.distrust, "forget"),
    _on(MemoryStore, "POST", "/distrusts/{distrust}/end", MemoryStore.trust_again, "forget"),
    _on(MemoryStore, "GET", "/distrusts", MemoryStore.distrusts),
    _on(MemoryStore, "POST", "/backup", MemoryStore.backup, "admin"),
    _on(MemoryStore, "POST", "/rebuild", MemoryStore.rebuild, "admin"),
)

_SESSIONS: Final = (
    _on(Session, "GET", f"{_SESSION}/at", Session.at, of_log_alone=True),
    _on(Session, "GET", f"{_SESSION}/turns", Session.turns, of_log_alone=True),
    _on(Session, "POST", f"{_SESSION}/facts", Session.assert_fact, "record"),
    _on(Session, "POST", f"{_SESSION}/recall", Session.recall),
    _on(Session, "POST", f"{_SESSION}/context", Session.context),
    _on(Session, "POST", f"{_SESSION}/prefetch", Session.prefetch),
    _on(Session, "POST", f"{_SESSION}/prefetch/result", Session.prefetch_result),
    _on(Session, "POST", f"{_SESSION}/rewind", Session.rewind, "record"),
    _on(Session, "POST", f"{_SESSION}/branch", Session.branch, "record"),
    _on(Session, "GET", f"{_SESSION}/lineage", Session.lineage, of_log_alone=True),
    _on(Session, "GET", f"{_SESSION}/keys", Session.keys),
    _on(Session, "GET", f"{_SESSION}/values", Session.all),
    _on(Session, "DELETE", f"{_SESSION}/values", Session.clear, "record"),
    _on(Session, "GET", f"{_SESSION}/values/{{key}}", Session.get),
    _on(Session, "PUT", f"{_SESSION}/values/{{key}}", Session.set, "record"),
    _on(Session, "DELETE", f"{_SESSION}/values/{{key}}", Session.delete, "record"),
    _on(Session, "GET", f"{_SESSION}/task", Session.task, of_log_alone=True),
    _on(Session, "PUT", f"{_SESSION}/task", Session.set_task, "record"),
    _on(Session, "PATCH", f"{_SESSION}/task", Session.update_task, "record"),
    _on(Session, "GET", f"{_SESSION}/notes", Session.notes, of_log_alone=True),
    _on(Session, "POST", f"{_SESSION}/notes", Session.note, "record"),
    _on(Session, "DELETE", f"{_SESSION}/notes", Session.clear_notes, "record"),
    _on(Session, "GET", f"{_SESSION}/checkpoints", Session.checkpoints, of_log_alone=True),
    _on(Session, "POST", f"{_SESSION}/checkpoints", Session.checkpoint, "record"),
    _on(Session, "DELETE", _CHECKPOINT, Session.delete_checkpoint, "record"),
    _on(Session, "POST", f"{_CHECKPOINT}/restore", Session.restore, "record"),
)

_AUDIT: Final = (
    _on(AuditService, "GET", "/timeline", AuditService.timeline, of_log_alone=True),
    _on(AuditService, "GET", "/events/{position}", AuditService.event, of_log_alone=True),
    _on(AuditService, "GET", "/diff", AuditService.diff, of_log_alone=True),
    _on(AuditService, "GET", "/secrets", AuditService.scan_secrets),
    _on(AuditService, "GET", "/export", AuditService.export),
    _on(AuditService, "GET", "/receipts", AuditService.receipts),
    _on(AuditService, "GET", "/turns/{position}/effects", AuditService.effects),
    _on(AuditService, "POST", "/receipts/{receipt}/judgement", AuditService.judge, "record"),
    _on(AuditService, "GET", "/judgements", AuditService.judgements, of_log_alone=True),
    _on(AuditService, "GET", "/forgotten", AuditService.forgotten, of_log_alone=True),
    _on(AuditService, "GET", "/erasures", AuditService.erasures, of_log_alone=True),
    _on(AuditService, "GET", "/erasures/pending", AuditService.pending_erasures),
)

_MAINTENANCE: Final = (
    _on(ModelService, "GET", "/models", ModelService.list),
    _on(ModelService, "POST", "/models/load", ModelService.load),
    _on(ModelService, "POST", "/models/{model}/activate", ModelService.activate, "admin"),
    _on(ModelService, "DELETE", "/models/{model}", ModelService.drop, "admin"),
    _on(AdminService, "POST", "/doctor", AdminService.doctor, "admin"),
    _on(AdminService, "POST", "/catch-up/views", AdminService.catch_up_views, "admin"),
    _on(AdminService, "POST", "/catch-up/vectors", AdminService.catch_up_vectors, "admin"),
    _on(AdminService, "GET", "/language", AdminService.language, of_log_alone=True),
    _on(AdminService, "PUT", "/language", AdminService.set_language, "admin"),
    _on(AdminService, "GET", "/redaction", AdminService.redaction, of_log_alone=True),
    _on(AdminService, "PUT", "/redaction", AdminService.set_redaction, "admin"),
    _on(AdminService, "GET", "/nodes", AdminService.nodes),
    _on(AdminService, "DELETE", "/nodes/{node}", AdminService.remove_node, "admin"),
    _on(AdminService, "POST", "/tokens", AdminService.create_token, "admin"),
    _on(AdminService, "GET", "/tokens", AdminService.tokens, "admin"),
    _on(AdminService, "DELETE", "/tokens/{token}", AdminService.revoke_token, "admin"),
    _on(AdminService, "POST", "/erasures", AdminService.reapply_erasures, "forget"),
    _on(Quarantine, "GET", "/quarantine", Quarantine.items, "admin"),
    _on(Quarantine, "GET", "/quarantine/status", Quarantine.status, "admin"),
    _on(Quarantine, "POST", "/quarantine/purge", Quarantine.purge, "admin"),
)

OPERATIONS: Final[tuple[Operation, ...]] = (*_STORE, *_SESSIONS, *_AUDIT, *_MAINTENANCE)
BY_NAME: Final[dict[str, Operation]] = {operation.name: operation for operation in OPERATIONS}
BY_METHOD: Final[dict[Method, Operation]] = {operation.method: operation for operation in OPERATIONS} | {
    operation.same_as: operation for operation in OPERATIONS if operation.same_as is not None
}

LEFT_OUT: Final[dict[Method, str]] = {
    MemoryStore.open: "the server opens the store",
    MemoryStore.close: "the server closes the store",
    MemoryStore.within: "connect(..., scope=...) limits a store to scopes",
    Session.messages: "made of turns: read these with `last`, as the client does",
    AuditService.append_head: "the file belongs to the caller: GET /head returns what to append to it",
    ModelService.add: "a model is a folder or a download on the server: run it there",
    AdminService.quarantine: "its own methods are offered",
    Quarantine.add: "the store itself moves files there",
    Quarantine.delete: "POST /quarantine/purge deletes all of them",
    Quarantine.paths: "paths of the server: GET /quarantine lists the items",
}
"""Public methods that the server does not offer, and why."""

LEFT_OUT_ARGUMENTS: Final[dict[str, str]] = {
    "progress": "a function of the caller's process",
    "tokenizer": "a function of the caller's process",
    "default": "an answer without `value` says that there is none",
    "heads": "a file of the caller: pass its last line as `expect_head`",
    "file": "the export is the body of the answer",
    "target": "the server's configuration names the folder of backups",
    "keys": "the server's configuration names the folder of copied keys",
    "replace": "each backup gets a folder of its own",
}
"""Arguments that no operation takes, and what there is instead."""
