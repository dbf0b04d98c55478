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
    DuplicateKey,
    EncodingFailed,
    FormatTooNew,
    ImportRefused,
    InvalidInput,
    LimitExceeded,
    LogBusy,
    LogDamaged,
    LogWriteFailed,
    MnemologError,
    ModelError,
    ModelMismatch,
    ModelUnavailable,
    NotAStore,
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
    UndecodableEvent,
    UnknownSession,
    WrongExpectedVersion,
)
from mnemolog.projections.read_models import SessionSummary, Turn
from mnemolog.projections.recall import Hit, Recall
from mnemolog.projections.replay import Replay, SessionReplay
from mnemolog.projections.vectors.inventory import GenerationStatus
from mnemolog.projections.verify import Finding, Verification
from mnemolog.results import HeadAt, ImportReport, NewTurn, RebuildReport, Status, ViewsStatus
from mnemolog.session import Session
from mnemolog.store import MemoryStore

__all__ = [
    "AmbiguousSession",
    "AppendError",
    "AppendOnly",
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
    "MemoryStore",
    "MnemologError",
    "ModelError",
    "ModelMismatch",
    "ModelUnavailable",
    "NewTurn",
    "NotAStore",
    "ProjectionBehind",
    "ProjectionError",
    "ProjectionUnreadable",
    "RebuildReport",
    "Recall",
    "Replay",
    "Session",
    "SessionEnded",
    "SessionError",
    "SessionExists",
    "SessionReplay",
    "SessionSummary",
    "Status",
    "StorageFull",
    "StoreClosed",
    "StoreError",
    "StoreForked",
    "StoreNotFound",
    "StoreNotWritable",
    "Turn",
    "UndecodableEvent",
    "UnknownSession",
    "Verification",
    "ViewsStatus",
    "WrongExpectedVersion",
]
