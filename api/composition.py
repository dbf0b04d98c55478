"""The one place where the parts are joined: infra fitted to the ports that projections name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime.atomic_files import make_folder
from mnemolog.infra.runtime.os_errors import mapped_to_store_errors
from mnemolog.projections.health.drift import UNCOVERED, Drift
from mnemolog.projections.health.quarantine import DATABASE_PARTS, Quarantine, identity
from mnemolog.projections.ports import Encoder
from mnemolog.projections.sql import file_checksum
from mnemolog.projections.sql.conversation_views import Views, standing
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.projection import Tables
from mnemolog.projections.sql.snapshots import SnapshotStore, create_tables
from mnemolog.projections.vectors.grouping import recipe

if TYPE_CHECKING:
    from mnemolog.projections.vectors.projection import VectorProjection

Opened = TypeVar("Opened")
Followed = TypeVar("Followed", bound=Tables)

PROJECTIONS: Final = "projections"
VIEWS_FILE: Final = "views.db"
EMBEDDINGS_FILE: Final = "embeddings.db"
SNAPSHOTS_FILE: Final = "snapshots.db"
VECTORS: Final = "vectors"
QUARANTINE: Final = "quarantine"
EMBEDDINGS_CACHE_BYTES: Final = 64 << 20
"""Of pages in memory, where texts are looked up by their hash: in no order, over all of the index."""


def open_engine(
    path: Path, *, cache_bytes: int = sqlite.CACHE_BYTES, busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S
) -> sa.Engine:
    """Open or create the database of a projection. It may lose its last moments: the log has them."""
    with mapped_to_store_errors(path.parent):
        make_folder(path.parent)
    return sqlite.create_engine(
        path, synchronous="NORMAL", create=True, cache_bytes=cache_bytes, busy_timeout_s=busy_timeout_s
    )


class _Uncovered(errors.ProjectionUnreadable):
    """Views of what this log cannot tell again."""

    def __init__(self, path: Path, state: str) -> None:
        super().__init__(path, f"it is {state}: this log cannot tell again what is in it")
        self.state = state


class _NotAsWritten(errors.ProjectionUnreadable):
    """A database with bytes that were never written to it, which SQLite need not notice."""


def open_views(folder: Path, log: EventLog) -> Views:
    """Open the views of a store. Those of no use go to quarantine and are begun anew.

    That is damaged ones, and those that another history has filled: they may hold the only copy of turns that
    the log has lost, so they are not written over.
    """
    path = folder / PROJECTIONS / VIEWS_FILE

    def open_covered(database: ProjectionDatabase) -> Views:
        with database.reading() as connection:
            state, _ = standing(connection, log)
        if state.value in UNCOVERED:
            raise _Uncovered(path, state.value)
        return Views(database, log)

    quarantine = folder / PROJECTIONS / QUARANTINE
    return _open_or_begin_anew(path, open_covered, quarantine, busy_timeout_s=log.busy_timeout_s, sealed=True)


def open_tables(folder: Path, log: EventLog, file_name: str, kind: type[Followed]) -> Followed:
    """Open the tables that an adapter follows the log with, in a file of their own among the projections.

    Those of no use go to quarantine and are begun anew, as with the views.
    """
    path = folder / PROJECTIONS / file_name

    def open_covered(database: ProjectionDatabase) -> Followed:
        with database.reading() as connection:
            state, _ = standing(connection, log, kind.name)
        if state.value in UNCOVERED:
            raise _Uncovered(path, state.value)
        return kind(database, log)

    quarantine = folder / PROJECTIONS / QUARANTINE
    return _open_or_begin_anew(path, open_covered, quarantine, busy_timeout_s=log.busy_timeout_s)


def open_quarantine(folder: Path) -> Quarantine:
    """Return the quarantine of a store."""
    return Quarantine(folder / PROJECTIONS / QUARANTINE)


def open_snapshots(folder: Path, log: EventLog) -> SnapshotStore:
    """Return the snapshots of a store. Nothing is opened before there is one."""
    path = folder / PROJECTIONS / SNAPSHOTS_FILE

    def open_database() -> ProjectionDatabase:
        quarantine = folder / PROJECTIONS / QUARANTINE
        return _open_or_begin_anew(path, create_tables, quarantine, busy_timeout_s=log.busy_timeout_s)

    return SnapshotStore(path, log, open_database)


class Vectors:
    """The vector leg of a store, put together when it is first needed.

    One vector stands for `every` turns of a session in a row. The recipe says so, hence the fingerprint:
    vectors of other groups are another generation's. Without `download` a name is looked up on this machine only.
    """

    def __init__(self, folder: Path, log: EventLog, model: Any, *, every: int = 1, download: bool = True) -> None:
        self._folder = folder / PROJECTIONS
        self._log = log
        self.every = every
        self.encoder = make_encoder(model, recipe=recipe(every), download=download)
        self._lock = threading.Lock()
        self._projection: VectorProjection | None = None
        self._engine: sa.Engine | None = None

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""
        return self.encoder.fingerprint

    @property
    def known_fingerprint(self) -> str | None:
        """Identity of the model, None as long as nothing has needed it."""
        return self.encoder.fingerprint if self._projection is not None else None

    @property
    def loaded(self) -> bool:
        """Whether a query is answered at once: the model and what is on disk have been loaded."""
        return self._projection is not None and self.encoder.loaded

    def load(self) -> None:
        """Load the model and what is on disk, if they are not loaded. Raises `ModelUnavailable`."""
        self.encoder.load()
        self.projection()

    def projection(self) -> VectorProjection:
        """Return the projection, loading FAISS and what is on disk the first time."""
        with self._lock:
            if self._projection is None:
                from mnemolog.projections.sql.embeddings import EmbeddingCache
                from mnemolog.projections.vectors.projection import VectorProjection

                def open_cache(database: ProjectionDatabase) -> EmbeddingCache:
                    self._engine = database.engine
                    return EmbeddingCache(
                        database,
                        fingerprint=self.encoder.fingerprint,
                        dimension=self.encoder.dimension,
                        epoch=self._log.epoch,
                    )

                quarantine = self._folder / QUARANTINE
                cache = _open_or_begin_anew(
                    self._folder / EMBEDDINGS_FILE,
                    open_cache,
                    quarantine,
                    busy_timeout_s=self._log.busy_timeout_s,
                    cache_bytes=EMBEDDINGS_CACHE_BYTES,
                )
                self._projection = VectorProjection(
                    self._folder / VECTORS,
                    log=self._log,
                    encoder=self.encoder,
                    cache=cache,
                    quarantine=quarantine,
                    every=self.every,
                )
            return self._projection

    def close(self) -> None:
        """Let go of the files. What is embedded and not in a segment yet stays in the cache."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = self._projection = None


def make_encoder(model: Any, *, recipe: str, download: bool = True) -> Encoder:
    """Return the encoder for a model name, a model folder, or an object with `encode` and `fingerprint`.

    `recipe` says how turns become the texts that are embedded; it is part of the encoder's fingerprint.
    """
    if isinstance(model, str | Path):
        from mnemolog.infra.embedding.encoder import SentenceTransformerEncoder

        return SentenceTransformerEncoder(model, recipe=recipe, download=download)
    from mnemolog.infra.embedding.object_encoder import ObjectEncoder

    return ObjectEncoder(model, recipe=recipe)


def _open_or_begin_anew(
    path: Path,
    open_projection: Callable[[ProjectionDatabase], Opened],
    quarantine: Path,
    *,
    busy_timeout_s: float,
    sealed: bool = False,
    cache_bytes: int = sqlite.CACHE_BYTES,
) -> Opened:
    aside = Quarantine(quarantine)
    for attempt in (1, 2):
        judged = identity(path)
        engine = open_engine(path, cache_bytes=cache_bytes, busy_timeout_s=busy_timeout_s)
        try:
            if (why_not := _misfit(path, sealed=sealed)) is not None:
                raise _NotAsWritten(path, why_not)
            return open_projection(ProjectionDatabase(engine, path, sealed))
        except BaseException as error:
            engine.dispose()  # Else a connection would stay open until it is collected.
            # Only a file that is of no use here is moved; a busy or full disk is for the caller.
            if attempt == 2 or not isinstance(error, errors.ProjectionUnreadable) or not _is_of_no_use(error):
                raise
            state = error.state if isinstance(error, _Uncovered) else Drift.DAMAGED.value
            # Another process may have been first, and begun it anew under this name: that one is opened then.
            moved = aside.set_aside(path, reason=error.cause, state=state, parts=DATABASE_PARTS, judged=judged)
            if moved is None and aside.status().full:
                why = f"{error.cause}; it cannot be set aside, for the quarantine is full: `mnemolog quarantine purge`"
                raise errors.ProjectionUnreadable(path, why) from error
    raise AssertionError("unreachable")


def _misfit(path: Path, *, sealed: bool) -> str | None:
    if sqlite.is_marked_read_only(path):
        return sqlite.MARKED_READ_ONLY
    return file_checksum.misfit(path) if sealed else None


def _is_of_no_use(error: errors.ProjectionUnreadable) -> bool:
    return isinstance(error, _Uncovered | _NotAsWritten) or is_damage(error)


def is_damage(error: errors.ProjectionUnreadable) -> bool:
    """Whether it is the file that is damaged, and not only busy, full or not ours."""
    cause = error.__cause__
    return cause is not None and isinstance(sqlite.map_error(cause, error.path), errors.LogDamaged)
