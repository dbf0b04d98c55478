"""mnemolog: an event-sourced memory store for AI agents.

from mnemolog import MemoryStore

with MemoryStore.open("memory/") as store:
    session = store.session("trip", agent="assistant", scope="acme/support/alice")
    session.record("user", "I moved to Lisbon in March.", key="t1")
    store.recall("where does she live?", scope="acme/support").hits[0].text

All errors are in `mnemolog.errors`. Other results are in the package of their service: `mnemolog.audit.results`.
"""

from importlib import import_module as _import_module

# A name is imported when it is first used, so that `import mnemolog` stays quick (ADR 20). Types: `__init__.pyi`.
_HOMES = {
    "AgentSummary": "projections.read_models",
    "AsyncMemoryStore": "aio.store",
    "AsyncSession": "aio.store",
    "Checkpoint": "results",
    "Context": "projections.context.answer",
    "DuplicateKey": "domain.errors",
    "Fact": "projections.read_models",
    "ForgetReport": "forgetting.results",
    "Head": "domain.head",
    "Hit": "projections.recall.answer",
    "InvalidInput": "domain.errors",
    "LimitExceeded": "domain.errors",
    "LogBusy": "domain.errors",
    "LogDamaged": "domain.errors",
    "MISSING": "domain.working_memory",
    "MemoryLimits": "domain.limits",
    "MemoryStore": "store",
    "MnemologError": "domain.errors",
    "ModelUnavailable": "domain.errors",
    "NewTurn": "results",
    "NotAStore": "domain.errors",
    "Note": "results",
    "Passage": "projections.recall.passages",
    "Recall": "projections.recall.answer",
    "Replay": "projections.history.replay",
    "ScopeSummary": "projections.read_models",
    "Session": "session",
    "SessionAlreadyEnded": "domain.errors",
    "SessionAt": "session",
    "SessionExists": "domain.errors",
    "SessionSummary": "projections.read_models",
    "StandingStatement": "projections.read_models",
    "Status": "operations.status",
    "StorageFull": "domain.errors",
    "StoreClosed": "domain.errors",
    "StoreNotFound": "domain.errors",
    "Task": "results",
    "Turn": "projections.read_models",
    "UnknownSession": "domain.errors",
    "Verification": "projections.health.verify",
    "Weights": "projections.recall.weights",
    "acting_as": "domain.request",
    "connect": "server.client.connect",
    "connect_async": "server.client.connect",
    "copy_store": "operations.moving",
    "import_log": "audit.exports",
    "restore_backup": "operations.restore",
}

__all__ = [*_HOMES, "errors"]


def __getattr__(name: str) -> object:
    if name == "errors":
        found: object = _import_module("mnemolog.domain.errors")
    elif name == "__version__":
        found = _import_module("mnemolog.infra.version").this_version()
    elif name in _HOMES:
        found = getattr(_import_module(f"mnemolog.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
