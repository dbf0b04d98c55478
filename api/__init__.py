"""mnemolog: an event-sourced memory store for AI agents.

from mnemolog import MemoryStore

with MemoryStore.open("memory/") as store:
    session = store.session("trip", agent="assistant", scope="acme/support/alice")
    session.record("user", "I moved to Lisbon in March.", key="t1")
    store.recall("where does she live?", scope="acme/support").hits[0].text

All errors are in `mnemolog.errors`. Types of other values are in `mnemolog.types`.
"""

from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from sys import modules as _modules

# A name is imported when it is first used, so that `import mnemolog` stays quick (ADR 20). Types: `__init__.pyi`.
_HOMES = {
    "AgentSummary": "projections.read_models",
    "AsyncMemoryStore": "aio.store",
    "AsyncSession": "aio.store",
    "Checkpoint": "results",
    "Context": "projections.context.answer",
    "DuplicateKey": "errors",
    "Fact": "projections.read_models",
    "ForgetReport": "forgetting.history",
    "Head": "domain.head",
    "Hit": "projections.recall.answer",
    "InvalidInput": "errors",
    "LimitExceeded": "errors",
    "LogBusy": "errors",
    "LogDamaged": "errors",
    "MISSING": "domain.working_memory",
    "MemoryLimits": "domain.values",
    "MemoryStore": "store",
    "MnemologError": "errors",
    "ModelUnavailable": "errors",
    "NewTurn": "results",
    "NotAStore": "errors",
    "Note": "results",
    "Passage": "projections.recall.passages",
    "Recall": "projections.recall.answer",
    "Replay": "projections.history.timeline",
    "ScopeSummary": "projections.read_models",
    "Session": "session",
    "SessionAlreadyEnded": "errors",
    "SessionAt": "session",
    "SessionExists": "errors",
    "SessionSummary": "projections.read_models",
    "StandingStatement": "projections.read_models",
    "Status": "operations.service",
    "StorageFull": "errors",
    "StoreClosed": "errors",
    "StoreNotFound": "errors",
    "Task": "results",
    "Turn": "projections.read_models",
    "UnknownSession": "errors",
    "Verification": "projections.history.verify",
    "Weights": "projections.recall.question",
    "acting_as": "domain.request",
    "connect": "server.client.connect",
    "connect_async": "server.client.connect",
    "copy_store": "operations.copies",
    "import_log": "audit.exports",
    "restore_backup": "operations.copies",
}

__all__ = [*_HOMES, "errors"]


def __getattr__(name: str) -> object:
    if name in ("errors", "types"):
        found: object = _import_module(f"mnemolog.{name}")
    elif name == "__version__":
        found = _import_module("mnemolog.infra.version").this_version()
    else:
        found = _imported(name, __name__, _HOMES)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


def _imported(name: str, module: str, homes: _Mapping[str, str]) -> object:
    if name not in homes:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    found = getattr(_import_module(f"mnemolog.{homes[name]}"), name)
    _name_as_imported()
    return found


def _name_as_imported() -> None:
    """Let all that is loaded say where users import it from: in `help`, signatures and pickles (ADR 71)."""
    from inspect import get_annotations
    from typing import get_type_hints

    from mnemolog.domain.public_names import named_as

    for module, homes in ((__name__, _HOMES), ("mnemolog.types", _import_module("mnemolog.types")._HOMES)):
        for name, home in homes.items():
            found = getattr(_modules.get(f"mnemolog.{home}"), name, None)
            if home != "errors" and getattr(found, "__module__", None) == f"mnemolog.{home}":
                if isinstance(found, type):  # Else its annotations would be looked up among the names of `module`.
                    hints = get_type_hints(found, include_extras=True)
                    found.__annotations__ = {name: hints[name] for name in get_annotations(found) if name[0] != "_"}
                named_as(module, found)
