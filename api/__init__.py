"""mnemolog: an event-sourced memory store for AI agents.

from mnemolog import MemoryStore

with MemoryStore.open("memory/") as store:
    session = store.start_session("trip", agent="assistant", scope="acme/support/alice")
    session.record("user", "I moved to Lisbon in March.", key="t1")
    store.recall("where does she live?", scope="acme/support").hits[0].text
"""

from mnemolog.domain.errors import (
    AmbiguousSession,
    AppendError,
    AppendOnly,
    CheckpointExists,
    DuplicateKey,
    EncodingFailed,
    FormatTooNew,
    ImportRefused,
    InvalidInput,
    LimitExceeded,
    LogBusy,
    LogDamaged,
    LogWriteFailed,
    MemoryFull,
    MnemologError,
    ModelError,
    ModelMismatch,
    ModelUnavailable,
    NoTask,
    NotAStore,
    OutsideSession,
    ProjectionBehind,
    ProjectionError,
    ProjectionUnreadable,
    SessionEnded,
    SessionError,
    SessionExists,
    StorageFull,
    StoreClosed,
    StoreError,
    StoreForked,
    StoreNotFound,
    StoreNotWritable,
    SwitchRefused,
    UndecodableEvent,
    UnknownCheckpoint,
    UnknownSession,
    WrongExpectedVersion,
)
from mnemolog.domain.limits import MemoryLimits
from mnemolog.domain.switching import SwitchReason
from mnemolog.domain.values import MISSING
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall import Hit, Recall
from mnemolog.projections.replay import Replay, SessionReplay
from mnemolog.projections.vectors.inventory import GenerationStatus
from mnemolog.projections.verify import Finding, Verification
from mnemolog.results import (
    CheckpointAt,
    HeadAt,
    ImportReport,
    MemoryStats,
    NewTurn,
    NoteAt,
    RebuildReport,
    Status,
    TaskAt,
    ViewsStatus,
)
from mnemolog.session import Session, SessionAt
from mnemolog.store import MemoryStore
from mnemolog.tickets import PrefetchReason, Stamp, Taken, Ticket

__all__ = [
    "MISSING",
    "AmbiguousSession",
    "AppendError",
    "AppendOnly",
    "CheckpointAt",
    "CheckpointExists",
    "DuplicateKey",
    "EncodingFailed",
    "Finding",
    "FormatTooNew",
    "GenerationStatus",
    "HeadAt",
    "Hit",
    "ImportRefused",
    "ImportReport",
    "InvalidInput",
    "LimitExceeded",
    "LogBusy",
    "LogDamaged",
    "LogWriteFailed",
    "MemoryFull",
    "MemoryLimits",
    "MemoryStats",
    "MemoryStore",
    "MnemologError",
    "ModelError",
    "ModelMismatch",
    "ModelUnavailable",
    "NewTurn",
    "NoTask",
    "NotAStore",
    "NoteAt",
    "OutsideSession",
    "PrefetchReason",
    "ProjectionBehind",
    "ProjectionError",
    "ProjectionUnreadable",
    "RebuildReport",
    "Recall",
    "Replay",
    "Session",
    "SessionAt",
    "SessionEnded",
    "SessionError",
    "SessionExists",
    "SessionReplay",
    "SessionSummary",
    "Stamp",
    "Status",
    "StorageFull",
    "StoreClosed",
    "StoreError",
    "StoreForked",
    "StoreNotFound",
    "StoreNotWritable",
    "SwitchReason",
    "SwitchRefused",
    "Taken",
    "TaskAt",
    "Ticket",
    "Turn",
    "UndecodableEvent",
    "UnknownCheckpoint",
    "UnknownSession",
    "Verification",
    "ViewsStatus",
    "WrongExpectedVersion",
]
