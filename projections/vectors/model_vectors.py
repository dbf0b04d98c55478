"""The embedding models of a process, the vectors of each, and the choice of the active one for answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mnemolog.domain import errors
from mnemolog.domain.choices import MODELS_STREAM, Activation, evolve_active, short
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.stream_fold import FoldedState, nothing_folded
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.caller_warnings import warn
from mnemolog.projections.ports import MakeEncoder, StoreLog
from mnemolog.projections.sql.opening import Schema, open_or_rebuild
from mnemolog.projections.vectors.rendering import RECIPE

if TYPE_CHECKING:
    from mnemolog.projections.sql.embeddings import EmbeddingCache
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
        download: bool = True,
    ) -> None:
        self._layout = layout
        self._log = log
        self.encoder = make_encoder(model, recipe=RECIPE, download=download)
        self._lock = fork_guard.lock()
        self._projection: VectorProjection | None = None
        self._cache: EmbeddingCache | None = None

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

                self._cache = open_or_rebuild(
                    self._layout.embeddings,
                    partial(
                        EmbeddingCache,
                        fingerprint=self.encoder.fingerprint,
                        dimension=self.encoder.dimension,
                        epoch=self._log.epoch,
                    ),
                    self._layout.quarantine,
                    schema=Schema(METADATA.create_all),
                    busy_timeout_s=self._log.busy_timeout_s,
                )
                self._projection = VectorProjection(
                    self._layout.vectors,
                    log=self._log,
                    encoder=self.encoder,
                    cache=self._cache,
                    quarantine=self._layout.quarantine,
                )
            return self._projection

    def close(self) -> None:
        """Close the files. Vectors that are not in a segment yet stay in the cache."""
        with self._lock:
            if self._cache is not None:
                self._cache.database.close()
            self._cache = self._projection = None


class Models:
    """The model that a store was opened with, and others. Each is opened on first use."""

    def __init__(
        self,
        layout: StoreLayout,
        log: StoreLog,
        own: Any,
        *,
        make_encoder: MakeEncoder,
        others: Sequence[Any] = (),
    ) -> None:
        self._log = log
        self._vectors_of = partial(Vectors, layout, log, make_encoder=make_encoder)
        self.own = opened_from_anywhere(own)
        self._given = [opened_from_anywhere(model) for model in (own, *others) if model is not None]
        self._lock = fork_guard.lock()
        self._opened: dict[tuple[str | int, bool], Vectors] = {}
        """By name, folder, or id of a model object that is kept here, and whether it may be downloaded."""
        self._found: dict[str, Vectors] = {}
        self._folded: FoldedState[Activation] = nothing_folded()
        self._active_at: tuple[Position, Activation | None] = (ORIGIN, None)
        """The last answer for a position. It cannot become stale: the log up to a position never changes."""
        self.trouble: errors.MnemologError | None = None
        """Why the last recall could not use the model; None if it could, or none needed it yet."""
        self._warned = False

    def failed(self, error: errors.MnemologError) -> None:
        """Note why a recall could not use the model. One that cannot be loaded is a `ModelWarning`, once."""
        self.trouble = error
        if isinstance(error, errors.ModelUnavailable) and not self._warned:
            self._warned = True
            warn(errors.ModelWarning(f"recalls search by words only: {error}; {error.hint}"))

    def active(self, *, upto: Position | None = None) -> Activation | None:
        """Return the active model at position `upto`, by default the head; None before any activation."""
        position, active = self._active_at
        if upto == position:
            return active
        folded = self._log.fold(MODELS_STREAM, evolve_active, upto=upto, known=self.known)
        if folded.version >= self._folded.version:
            self._folded = folded
        if upto is not None:
            self._active_at = upto, folded.state
        return folded.state

    def known(self, _stream: str, position: Position | None) -> FoldedState[Activation] | None:
        """Return the cached state of the stream of models, without reading the stream."""
        return self._folded if position is None or self._folded.position <= position else None

    def answering(self, active: Activation | None) -> Vectors:
        """Return the vectors of the active model, or before any activation those of the store's own model.

        Raises `ModelUnavailable` if the store was opened without a model, and `ModelMismatch` if no model of this
        process has the fingerprint of the active one.
        """
        if self.own is None:
            raise errors.ModelUnavailable(None, "the store was opened without a model")
        return self.opened(self.own) if active is None else self.find(active)

    def find(self, wanted: Activation) -> Vectors:
        """Return the vectors with that fingerprint, from a model of this process or one with that name on this machine.

        Compares fingerprints, never names: for a SentenceTransformer this reads the weights once. A name that is
        known only from the log is never downloaded. Raises `ModelMismatch`.
        """
        with self._lock:
            found = self._found.get(wanted.fingerprint)
        if found is not None:
            return found
        tried: list[str] = []
        for vectors, given in self._candidates(wanted):
            try:
                fingerprint = vectors.fingerprint
            except errors.ModelError as error:
                tried.append(str(error) if given else f"{wanted.model} (not on this machine)")
                continue
            if fingerprint == wanted.fingerprint:
                return self._only(fingerprint, vectors)
            tried.append(f"{vectors.encoder.name} ({short(fingerprint)})")
        raise errors.ModelMismatch(built_with=str(wanted), asked_with=", ".join(tried))

    def opened(self, model: Any, *, download: bool = True) -> Vectors:
        """Return the vectors of a model, without computing its fingerprint."""
        key = str(model) if isinstance(model, str | Path) else id(model), download
        with self._lock:
            if key not in self._opened:
                self._opened[key] = self._vectors_of(model, download=download)
            return self._opened[key]

    def give(self, model: Any) -> None:
        """Register a model, so that it can answer."""
        with self._lock:
            if not any(known is model or (isinstance(model, str) and known == model) for known in self._given):
                self._given.append(model)

    def called(self, name: str) -> list[Any]:
        """Return the registered models with this name."""
        with self._lock:
            given = list(self._given)
        return [model for model in given if self.opened(model).encoder.name == name]

    def vectors_of(self, model: Any) -> Vectors:
        """Return the vectors of a model. Models with the same fingerprint share them. Raises `ModelUnavailable`."""
        vectors = self.opened(model)
        return self._only(vectors.fingerprint, vectors)

    def known_fingerprint(self) -> str | None:
        """Return the fingerprint of the model that answers; None if it was not needed yet or there is none."""
        if self.own is None:
            return None
        active = self.active()
        return self.opened(self.own).known_fingerprint if active is None else active.fingerprint

    def let_go(self, fingerprint: str) -> None:
        """Close the files of a model's vectors. They are opened again when needed."""
        with self._lock:
            vectors = [item for item in self._opened.values() if item.known_fingerprint == fingerprint]
        for item in vectors:
            item.close()

    def close(self) -> None:
        """Close the files of all vectors."""
        with self._lock:
            vectors = list(self._opened.values())
            self._opened.clear()
            self._found.clear()
        for item in vectors:
            item.close()

    def _candidates(self, wanted: Activation) -> Iterator[tuple[Vectors, bool]]:
        """Yield vectors that may have the fingerprint, and whether their model was registered here.

        Models with that name come first, then objects, whose fingerprint is available at once.
        """
        with self._lock:
            given = list(self._given)
        opened = [(model, self.opened(model)) for model in given]
        opened.sort(key=lambda pair: (pair[1].encoder.name != wanted.model, isinstance(pair[0], str | Path)))
        yield from ((vectors, True) for _, vectors in opened)
        if not any(isinstance(model, str | Path) and str(model) == wanted.model for model in given):
            yield self.opened(wanted.model, download=False), False

    def _only(self, fingerprint: str, vectors: Vectors) -> Vectors:
        with self._lock:
            used = next((item for item in self._opened.values() if item.known_fingerprint == fingerprint), vectors)
            return self._found.setdefault(fingerprint, used)


def opened_from_anywhere(model: Any) -> Any:
    """Return a model in a form that any working directory can open: folders as absolute paths."""
    if isinstance(model, str | Path) and (folder := Path(model).expanduser()).is_dir():
        return str(folder.absolute())
    return model
