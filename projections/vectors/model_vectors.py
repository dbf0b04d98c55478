"""The vectors of one model, put together when they are first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from mnemolog.domain.store_layout import StoreLayout
from mnemolog.projections.ports import Log, MakeEncoder
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import open_or_rebuild
from mnemolog.projections.vectors.rendering import RECIPE

if TYPE_CHECKING:
    from mnemolog.projections.vectors.projection import VectorProjection

EMBEDDINGS_CACHE_BYTES: Final = 64 << 20
"""Of pages in memory, where texts are looked up by their hash: in no order, over all of the index."""


class Vectors:
    """The vector leg of a store, put together when it is first needed.

    Without `download` a name is looked up on this machine only.
    """

    def __init__(
        self,
        layout: StoreLayout,
        log: Log,
        model: Any,
        *,
        make_encoder: MakeEncoder,
        busy_timeout_s: float,
        download: bool = True,
    ) -> None:
        self._layout, self._log, self._busy_timeout_s = layout, log, busy_timeout_s
        self.encoder = make_encoder(model, recipe=RECIPE, download=download)
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

                cache = open_or_rebuild(
                    self._layout.embeddings,
                    open_cache,
                    self._layout.quarantine,
                    busy_timeout_s=self._busy_timeout_s,
                    cache_bytes=EMBEDDINGS_CACHE_BYTES,
                )
                self._projection = VectorProjection(
                    self._layout.vectors,
                    log=self._log,
                    encoder=self.encoder,
                    cache=cache,
                    quarantine=self._layout.quarantine,
                )
            return self._projection

    def close(self) -> None:
        """Let go of the files. What is embedded and not in a segment yet stays in the cache."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = self._projection = None
