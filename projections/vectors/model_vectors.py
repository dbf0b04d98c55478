"""The vectors of one model, loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.runtime import fork_guard
from mnemolog.projections.ports import MakeEncoder, StoreLog
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.opening import Schema, open_or_rebuild
from mnemolog.projections.vectors.rendering import RECIPE

if TYPE_CHECKING:
    from mnemolog.projections.vectors.projection import VectorProjection


class Vectors:
    """The vector leg of a store, loaded on first use.

    With `download=False`, a name is looked up on this machine only.
    """

    def __init__(
        self,
        layout: StoreLayout,
        log: StoreLog,
        model: Any,
        *,
        make_encoder: MakeEncoder,
        busy_timeout_s: float,
        download: bool = True,
    ) -> None:
        self._layout, self._log, self._busy_timeout_s = layout, log, busy_timeout_s
        self.encoder = make_encoder(model, recipe=RECIPE, download=download)
        self._lock = fork_guard.lock()
        self._projection: VectorProjection | None = None
        self._engine: sa.Engine | None = None

    @property
    def fingerprint(self) -> str:
        """Identity of the model."""
        return self.encoder.fingerprint

    @property
    def known_fingerprint(self) -> str | None:
        """Identity of the model; None until it is first needed."""
        return self.encoder.fingerprint if self._projection is not None else None

    @property
    def loaded(self) -> bool:
        """Whether the model and the vectors on disk are loaded, so that a query is answered at once."""
        return self._projection is not None and self.encoder.loaded

    def load(self) -> None:
        """Load the model and the vectors on disk, unless they are loaded. Raises `ModelUnavailable`."""
        self.encoder.load()
        self.projection()

    def projection(self) -> VectorProjection:
        """Return the projection. The first call loads FAISS and the vectors on disk."""
        with self._lock:
            if self._projection is None:
                from mnemolog.projections.sql.embeddings import METADATA, EmbeddingCache
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
                    schema=Schema(METADATA.create_all),
                    busy_timeout_s=self._busy_timeout_s,
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
        """Close the files. Vectors that are not in a segment yet stay in the cache."""
        with self._lock:
            if self._engine is not None:
                self._engine.dispose()
            self._engine = self._projection = None
