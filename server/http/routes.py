"""The routes of the API: how a request reaches each operation, and what its body and its headers may be.

Arguments, the OpenAPI document and the client are derived from them (`mnemolog.server.http.serialization`). What is not
offered over HTTP is listed with the reason.
"""

from typing import Final, Literal, cast

from msgspec.structs import asdict

from mnemolog.audit.service import AuditService
from mnemolog.models.service import ModelService
from mnemolog.operation_table import OPERATIONS, Method, Operation
from mnemolog.operations.service import AdminService
from mnemolog.projections.quarantine import Quarantine
from mnemolog.session import Session
from mnemolog.store import MemoryStore

HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

PREFIX: Final = "/v1"
"""The version of the API: every path of the table is below it."""
MCP_PATH: Final = "/mcp"
KEY_HEADER: Final = "idempotency-key"
SCOPE_HEADER: Final = "mnemolog-scope"
"""Limits a request to some of the scopes of its caller."""
JSON: Final = "application/json"
JSON_LINES: Final = "application/jsonl"
OCTETS: Final = "application/octet-stream"
ZIP: Final = "application/zip"
FILES: Final[dict[Method, tuple[str, ...]]] = {
    AuditService.export: (JSON_LINES, OCTETS),
    AuditService.subject: (ZIP, OCTETS),
}
"""Operations whose answer is a file, with its media types. The second one is sent to who asks for it (`Accept`)."""
EVENT_STREAM: Final = "text/event-stream"


class HttpOperation(Operation, frozen=True, kw_only=True):
    """An operation, as a request reaches it."""

    http: HttpMethod
    path: str
    """Below `PREFIX`. A parameter in braces is an argument of the method; `{session}` may also name its session."""

    @property
    def takes_key(self) -> bool:
        """Whether a request with an `Idempotency-Key` writes nothing when it is sent again."""
        return self.verb in ("record", "propose") or self.method in (
            AdminService.create_token,
            AdminService.rotate_token,
        )


_PATHS: Final = {
    "sessions": "GET /sessions",
    "start_session": "POST /sessions",
    "find_session": "GET /sessions/{id}",
    "session": "PUT /sessions/{id}",
    "end_session": "POST /sessions/{session}/end",
    "record": "POST /sessions/{session}/turns",
    "record_many": "POST /turns",
    "turns": "GET /sessions/{session}/own-turns",
    "assert_fact": "POST /facts",
    "retract_fact": "POST /facts/retract",
    "retract_facts": "POST /facts/retract-made",
    "facts": "GET /facts",
    "fact": "GET /facts/{key}",
    "fact_history": "GET /facts/{key}/history",
    "scopes": "GET /scopes",
    "agents": "GET /agents",
    "current": "GET /agents/{agent}/session",
    "switch": "POST /switch",
    "preview_switch": "POST /switch/preview",
    "recall": "POST /recall",
    "context": "POST /context",
    "standing": "POST /standing",
    "end_standing": "POST /standing/{statement}/end",
    "find": "POST /find",
    "head": "GET /head",
    "position_at": "GET /position",
    "events": "GET /events",
    "replay": "GET /replay",
    "status": "GET /status",
    "verify": "POST /verify",
    "forget": "POST /forget",
    "distrust": "POST /distrust",
    "trust_again": "POST /distrusts/{distrust}/end",
    "distrusts": "GET /distrusts",
    "propose": "POST /proposals",
    "proposals": "GET /proposals",
    "approve": "POST /proposals/approve",
    "decline": "POST /proposals/decline",
    "backup": "POST /backup",
    "rebuild": "POST /rebuild",
    "session.at": "GET /sessions/{session}/at",
    "session.turns": "GET /sessions/{session}/turns",
    "session.assert_fact": "POST /sessions/{session}/facts",
    "session.recall": "POST /sessions/{session}/recall",
    "session.context": "POST /sessions/{session}/context",
    "session.prefetch": "POST /sessions/{session}/prefetch",
    "session.prefetch_result": "POST /sessions/{session}/prefetch/result",
    "session.rewind": "POST /sessions/{session}/rewind",
    "session.branch": "POST /sessions/{session}/branch",
    "session.lineage": "GET /sessions/{session}/lineage",
    "session.keys": "GET /sessions/{session}/keys",
    "session.all": "GET /sessions/{session}/values",
    "session.clear": "DELETE /sessions/{session}/values",
    "session.get": "GET /sessions/{session}/values/{key}",
    "session.set": "PUT /sessions/{session}/values/{key}",
    "session.delete": "DELETE /sessions/{session}/values/{key}",
    "session.task": "GET /sessions/{session}/task",
    "session.set_task": "PUT /sessions/{session}/task",
    "session.update_task": "PATCH /sessions/{session}/task",
    "session.notes": "GET /sessions/{session}/notes",
    "session.note": "POST /sessions/{session}/notes",
    "session.clear_notes": "DELETE /sessions/{session}/notes",
    "session.checkpoints": "GET /sessions/{session}/checkpoints",
    "session.checkpoint": "POST /sessions/{session}/checkpoints",
    "session.delete_checkpoint": "DELETE /sessions/{session}/checkpoints/{checkpoint}",
    "session.restore": "POST /sessions/{session}/checkpoints/{checkpoint}/restore",
    "audit.timeline": "GET /timeline",
    "audit.event": "GET /events/{position}",
    "audit.diff": "GET /diff",
    "audit.scan_secrets": "GET /secrets",
    "audit.export": "GET /export",
    "audit.subject": "GET /subject",
    "audit.receipts": "GET /receipts",
    "audit.effects": "GET /turns/{position}/effects",
    "audit.judge": "POST /receipts/{receipt}/judgement",
    "audit.judgements": "GET /judgements",
    "audit.forgotten": "GET /forgotten",
    "audit.erasures": "GET /erasures",
    "audit.pending_erasures": "GET /erasures/pending",
    "models.list": "GET /models",
    "models.load": "POST /models/load",
    "models.activate": "POST /models/{model}/activate",
    "models.drop": "DELETE /models/{model}",
    "admin.doctor": "POST /doctor",
    "admin.catch_up_views": "POST /catch-up/views",
    "admin.catch_up_vectors": "POST /catch-up/vectors",
    "admin.language": "GET /language",
    "admin.set_language": "PUT /language",
    "admin.redaction": "GET /redaction",
    "admin.set_redaction": "PUT /redaction",
    "admin.retention": "GET /retention",
    "admin.set_retention": "PUT /retention",
    "admin.apply_retention": "POST /retention/apply",
    "admin.hold": "POST /holds",
    "admin.lift_hold": "POST /holds/{hold}/lift",
    "admin.nodes": "GET /nodes",
    "admin.remove_node": "DELETE /nodes/{node}",
    "admin.create_token": "POST /tokens",
    "admin.tokens": "GET /tokens",
    "admin.rotate_token": "POST /tokens/{token}/rotate",
    "admin.revoke_token": "DELETE /tokens/{token}",
    "admin.reapply_erasures": "POST /erasures",
    "admin.quarantine.items": "GET /quarantine",
    "admin.quarantine.status": "GET /quarantine/status",
    "admin.quarantine.purge": "POST /quarantine/purge",
}


def _route(operation: Operation) -> HttpOperation:
    http, path = _PATHS[operation.name].split()
    return HttpOperation(**asdict(operation), http=cast(HttpMethod, http), path=path)


ROUTES: Final[tuple[HttpOperation, ...]] = tuple(map(_route, OPERATIONS))
BY_NAME: Final[dict[str, HttpOperation]] = {route.name: route for route in ROUTES}
BY_METHOD: Final[dict[Method, HttpOperation]] = {route.method: route for route in ROUTES} | {
    route.same_as: route for route in ROUTES if route.same_as is not None
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
    "file": "what is exported is the body of the answer",
    "target": "the server's configuration names the folder of backups",
    "keys": "the server's configuration names the folder of copied keys",
    "replace": "each backup gets a folder of its own",
}
"""Arguments that no operation takes, and what there is instead."""
