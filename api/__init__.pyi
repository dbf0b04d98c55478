"""What `mnemolog` offers, for type checkers: `__init__.py` imports each name when it is first used."""

from . import errors
from .aio.store import AsyncMemoryStore, AsyncSession
from .audit.exports import import_log
from .domain.head import Head
from .domain.request import acting_as
from .domain.values import MemoryLimits
from .domain.working_memory import MISSING
from .errors import (
    DuplicateKey,
    InvalidInput,
    LimitExceeded,
    LogBusy,
    LogDamaged,
    MnemologError,
    ModelUnavailable,
    NotAStore,
    SessionAlreadyEnded,
    SessionExists,
    StorageFull,
    StoreClosed,
    StoreNotFound,
    UnknownSession,
)
from .forgetting.history import ForgetReport
from .operations.copies import copy_store, restore_backup
from .operations.service import Status
from .projections.context.answer import Context
from .projections.history.timeline import Replay
from .projections.history.verify import Verification
from .projections.read_models import (
    AgentSummary,
    Fact,
    ScopeSummary,
    SessionSummary,
    StandingStatement,
    Turn,
)
from .projections.recall.answer import Hit, Recall
from .projections.recall.passages import Passage
from .projections.recall.question import Weights
from .results import Checkpoint, NewTurn, Note, Task
from .server.client.connect import connect, connect_async
from .session import Session, SessionAt
from .store import MemoryStore

__version__: str

__all__ = [
    "MISSING",
    "AgentSummary",
    "AsyncMemoryStore",
    "AsyncSession",
    "Checkpoint",
    "Context",
    "DuplicateKey",
    "Fact",
    "ForgetReport",
    "Head",
    "Hit",
    "InvalidInput",
    "LimitExceeded",
    "LogBusy",
    "LogDamaged",
    "MemoryLimits",
    "MemoryStore",
    "MnemologError",
    "ModelUnavailable",
    "NewTurn",
    "NotAStore",
    "Note",
    "Passage",
    "Recall",
    "Replay",
    "ScopeSummary",
    "Session",
    "SessionAlreadyEnded",
    "SessionAt",
    "SessionExists",
    "SessionSummary",
    "StandingStatement",
    "Status",
    "StorageFull",
    "StoreClosed",
    "StoreNotFound",
    "Task",
    "Turn",
    "UnknownSession",
    "Verification",
    "Weights",
    "acting_as",
    "connect",
    "connect_async",
    "copy_store",
    "errors",
    "import_log",
    "restore_backup",
]
