"""How a store is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

from mnemolog.defaults import DEFAULT_MODEL
from mnemolog.domain.limits import MEMORY_LIMITS, MemoryLimits
from mnemolog.domain.options import Option
from mnemolog.domain.position import Clock
from mnemolog.domain.redaction import Redact
from mnemolog.infra.sqlite import BUSY_TIMEOUT_S, Synchronous
from mnemolog.observability.telemetry import Telemetry

_MODEL = "name or folder of a SentenceTransformer, or an object; None for text only (docs/models.md)"
_RERANKER = "name or folder of a CrossEncoder, or an object, that reorders the best turns (docs/recall.md)"


class StoreOptions(TypedDict, total=False):
    """Arguments of `MemoryStore.open` besides the path: the usual ones, then those that are rarely needed."""

    model: Annotated[Any, Option(_MODEL, DEFAULT_MODEL)]
    scope: Annotated[
        str | Sequence[str],
        Option("nothing outside of this scope, or several, can be read or written (docs/scopes.md)", ""),
    ]
    create: Annotated[bool, Option("create a store if there is none, instead of raising `StoreNotFound`", True)]
    receipts: Annotated[bool, Option("record each recall and context, unless called with `receipt=False`", False)]
    redact: Annotated[
        bool | Redact | None,
        Option("True: the store replaces secrets in what is recorded from now on; or a function (docs/redaction.md)"),
    ]
    language: Annotated[str | None, Option("language of a new store: sets which word endings text recall ignores")]
    read_only: Annotated[bool, Option("change no file of a folder; recording raises `StoreNotWritable`", False)]
    log: Annotated[str | None, Option("with a URL, the name of the log in the database")]
    local: Annotated[str | Path | None, Option("with a URL, the folder of this machine's projections")]
    keys: Annotated[str | None, Option("with a URL, the URL of another database for the keys of the content")]
    models: Annotated[Sequence[Any], Option("further models that this process can use", ())]
    synchronous: Annotated[Synchronous, Option("`NORMAL` is faster; a power cut may lose the newest turns", "FULL")]
    busy_timeout_s: Annotated[float, Option("seconds that a write waits for other processes", BUSY_TIMEOUT_S)]
    clock: Annotated[Clock | None, Option("its `now()` returns microseconds since 1970; None for this machine's")]
    limits: Annotated[MemoryLimits, Option("how much the working memory of one session may hold", MEMORY_LIMITS)]
    encrypt: Annotated[bool | None, Option("False: a new store encrypts nothing and so can never forget anything")]
    background: Annotated[bool, Option("embed new turns in a background thread (docs/projector.md)", True)]
    reranker: Annotated[Any, Option(_RERANKER)]
    four_eyes: Annotated[bool, Option("nobody approves what they proposed (docs/proposals.md)", False)]
    audit_reads: Annotated[str | Path | None, Option("a file that gets a line for each read (docs/reads.md)")]
    witness: Annotated[str | Path | None, Option("a file outside that keeps heads of the log (docs/audit.md)")]
    allow_network_filesystem: Annotated[bool, Option("open a store on a network file system, which is unsafe", False)]
    telemetry: Annotated[Telemetry | None, Option("receives measurements (docs/observability.md)")]
