"""What `mnemolog.types` offers, for type checkers: `types.py` imports each name when it is first used."""

from .aio.store import AsyncMemoryView
from .aio.wrappers import AsyncWrapper
from .audit.effects import CameAfter, Effects, ShownIn
from .audit.receipt_audit import AuditedReceipt, Judgement, Receipt, ReceiptAudit, Verdict
from .audit.secret_scan import Secret
from .audit.subject import SubjectFile
from .domain.chain import Finding, Kind
from .domain.choices import Hold, Retention, RetentionRule
from .domain.event import Event
from .domain.events import Act, AssertFact, DistrustSources, EndStanding, Forget, ForgetTarget, RetractFact
from .domain.message import Role
from .domain.proposals import Proposal, ProposalState
from .domain.result import Result, Results, Stale
from .domain.scope import Scope
from .domain.session import Original, SessionHandle
from .domain.standing import StandingKind
from .domain.switching import SwitchReason
from .domain.tokens import CreatedToken, Token
from .domain.values import Clock, Position, Version
from .domain.working_memory import Missing
from .forgetting.history import (
    AskedQuestion,
    Certificate,
    Erasure,
    ForgettingStatus,
    ForgottenEvent,
    NodeStatus,
    PendingErasure,
    ReapplyReport,
    Remainder,
    Requested,
    Statements,
)
from .forgetting.service import RetentionReport
from .infra.runtime.fork_guard import OfOneProcess
from .operations.copies import BackupReport
from .operations.doctor import DoctorReport
from .operations.nodes import Nodes
from .operations.service import WalStatus
from .projections.context.answer import BlockKind, ContextBlock, ContextPassage, LeftOut, WhyLeftOut
from .projections.history.timeline import Moment, SessionReplay
from .projections.maintenance.context import CacheStatus, Issue, RebuildReport, TablesStatus, TableStatus, ViewsStatus
from .projections.ports import Progress
from .projections.projector import ProjectorStatus
from .projections.quarantine import QuarantineStatus
from .projections.recall.prefetch import PrefetchReason, PrefetchResult, Ticket
from .projections.vectors.folders import GenerationStatus, SkippedTurn, UnusedSegment
from .results import Model, ModelActivation, ModelDrop, PlannedEvent, RestorePreview, SwitchPreview, ValueChange
from .session import MemoryView, WorkingMemory

__all__ = [
    "Act",
    "AskedQuestion",
    "AssertFact",
    "AsyncMemoryView",
    "AsyncWrapper",
    "AuditedReceipt",
    "BackupReport",
    "BlockKind",
    "CacheStatus",
    "CameAfter",
    "Certificate",
    "Clock",
    "ContextBlock",
    "ContextPassage",
    "CreatedToken",
    "DistrustSources",
    "DoctorReport",
    "Effects",
    "EndStanding",
    "Erasure",
    "Event",
    "Finding",
    "Forget",
    "ForgetTarget",
    "ForgettingStatus",
    "ForgottenEvent",
    "GenerationStatus",
    "Hold",
    "Issue",
    "Judgement",
    "Kind",
    "LeftOut",
    "MemoryView",
    "Missing",
    "Model",
    "ModelActivation",
    "ModelDrop",
    "Moment",
    "NodeStatus",
    "Nodes",
    "OfOneProcess",
    "Original",
    "PendingErasure",
    "PlannedEvent",
    "Position",
    "PrefetchReason",
    "PrefetchResult",
    "Progress",
    "ProjectorStatus",
    "Proposal",
    "ProposalState",
    "QuarantineStatus",
    "ReapplyReport",
    "RebuildReport",
    "Receipt",
    "ReceiptAudit",
    "Remainder",
    "Requested",
    "RestorePreview",
    "Result",
    "Results",
    "Retention",
    "RetentionReport",
    "RetentionRule",
    "RetractFact",
    "Role",
    "Scope",
    "Secret",
    "SessionHandle",
    "SessionReplay",
    "ShownIn",
    "SkippedTurn",
    "Stale",
    "StandingKind",
    "Statements",
    "SubjectFile",
    "SwitchPreview",
    "SwitchReason",
    "TableStatus",
    "TablesStatus",
    "Ticket",
    "Token",
    "UnusedSegment",
    "ValueChange",
    "Verdict",
    "Version",
    "ViewsStatus",
    "WalStatus",
    "WhyLeftOut",
    "WorkingMemory",
]
