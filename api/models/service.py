"""The models service: build the vectors of a new model while readers continue, then activate it with one event."""

import re
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from mnemolog.application import commands
from mnemolog.domain import errors
from mnemolog.domain.choices import (
    FINGERPRINT_DIGITS,
    MODELS_STREAM,
    SHORT_DIGITS,
    Activation,
    activation_of,
    short,
)
from mnemolog.domain.events import ModelActivated, TurnRecorded
from mnemolog.domain.result import Results
from mnemolog.domain.scope import Boundary
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import ORIGIN
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.runtime import files
from mnemolog.projections.maintenance.context import RebuildReport
from mnemolog.projections.maintenance.vectors import catch_up_vectors
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet
from mnemolog.projections.projector import Indexing
from mnemolog.projections.sql.opening import opened
from mnemolog.projections.vectors.folders import GenerationStatus, generation_folders, generations, prefix_of
from mnemolog.projections.vectors.model_vectors import Models, Vectors, opened_from_anywhere
from mnemolog.results import Model, ModelActivation, ModelDrop

CATCH_UP_PASSES_MAX: Final = 10
"""The most passes over events recorded meanwhile before an activation. Each is shorter than the one before."""

_FINGERPRINT: Final = re.compile(rf"[0-9a-f]{{{SHORT_DIGITS},{FINGERPRINT_DIGITS}}}")


class ModelService:
    """Lists, adds, activates and drops embedding models: `store.models`.

    Every call but the activation itself may be repeated after a crash.
    """

    def __init__(self, layout: StoreLayout, log: EventLog, projections: ProjectionSet, *, boundary: Boundary) -> None:
        self._layout = layout
        self._log = log
        self._projections = projections
        self._boundary = boundary

    def list(self) -> Results[Model]:
        """Return every model that has vectors on disk or was ever activated. Reads no vectors, only manifests."""
        self._boundary.require_none("models.list")
        return Results(_catalogue(self._layout.vectors, self._log))

    def add(
        self,
        model: Any,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> RebuildReport:
        """Build the vectors of a model for the whole log, beside those of other models, which stay in use.

        - `model`: a name, a folder or an object as in `open`; this store object can use it from now on
        - `dry_run`: build nothing; the report is what would be built
        - `progress`: called now and then with what is done and what there is to do

        Embedded texts are saved as it works: after a crash, the same call resumes.
        Raises `ModelUnavailable`, `EncodingFailed`, `IndexerBusy`.
        """
        self._boundary.require_none("models.add")
        models = self._projections.models
        vectors = models.vectors_of(model := opened_from_anywhere(model))
        models.give(model)
        if not dry_run:
            self._begin_anew_if_gone(vectors)
            return catch_up_vectors(self._log, Indexing(self._layout.vectors, lambda: vectors), progress=progress)
        head = self._log.head().position
        return RebuildReport(
            projection="vectors",
            dry_run=True,
            upto=head,
            expected_turns=self._log.count(topic=TurnRecorded.topic, after=vectors.projection().covers, upto=head),
            built_turns=0,
            encoded_texts=vectors.projection().missing(upto=head),
            seconds=0.0,
        )

    def activate(self, model: Any, *, progress: Progress | None = None) -> ModelActivation:
        """Make a model the active one: bring its vectors up to date, then append `model.activated`.

        - `model`: one that `list` returns, a name, a folder, an object, or a fingerprint prefix of 8 digits or more
        - `progress`: called now and then with what is done and what there is to do

        Readers in every process switch when they have read the event. Returning to a model that still has its vectors
        builds nothing. Activating the active model appends nothing.

        Raises `ModelRefused` for a model without vectors or an ambiguous name, `ModelUnavailable`
        if this process cannot open it, `EncodingFailed`, `IndexerBusy`: the active model has not changed.
        """
        self._boundary.require_none("models.activate")
        vectors = self._to_activate(model)
        encoded = self._catch_up(vectors, progress)
        wanted = ModelActivated(
            fingerprint=vectors.fingerprint,
            model=vectors.encoder.name,
            dimension=vectors.encoder.dimension,
        )
        # `drop` takes this lock too: a model activated here still has its vectors.
        with self._indexing(wanted.fingerprint):
            if not self._may_answer(vectors):
                raise errors.ModelRefused(wanted.model, "its vectors were dropped meanwhile: add it again")
            activated = self._log.appends.transact(
                partial(commands.activate_model, wanted=wanted, known=self._projections.models.known)
            )
        return ModelActivation(
            model=activated.now.model,
            fingerprint=activated.now.fingerprint,
            position=activated.now.position,
            appended=activated.appended,
            previous=None if activated.before is None else activated.before.fingerprint,
            covers=vectors.projection().covers,
            encoded_texts=encoded,
        )

    def drop(self, model: Model | str, *, dry_run: bool = False) -> ModelDrop:
        """Remove a model's vectors, and its texts in the embedding cache. Adding it again embeds every text again.

        - `model`: a model as `list` returns it, its name, or a fingerprint prefix of 8 digits or more
        - `dry_run`: remove nothing; the report is what would be removed

        The log keeps its activations. Raises `ModelRefused` for the active model (before any
        activation: the model this store was opened with) and for an ambiguous name; `IndexerBusy`,
        `ProjectionUnreadable`.
        """
        self._boundary.require_none("models.drop")
        found = self._named(model.fingerprint if isinstance(model, Model) else str(model))
        with nullcontext() if dry_run else self._indexing(found.fingerprint):
            self._refuse_in_use(found)
            folders = _folders_of(self._layout.vectors, found.fingerprint)
            # The cache first: after a crash in between the model is still listed, and the same call drops the rest.
            forgotten = self._forget(found.fingerprint, dry_run=dry_run)
            if not dry_run:
                self._projections.models.let_go(found.fingerprint)
                for folder in folders:
                    _remove(folder)
        return ModelDrop(
            model=found.name,
            fingerprint=found.fingerprint,
            dry_run=dry_run,
            generations=tuple(folder.name for folder in folders),
            vectors=found.vectors,
            embeddings=forgotten,
        )

    def load(self) -> None:
        """Load the model in use and its vectors, so that no recall waits for them.

        Raises `ModelUnavailable`, `ModelMismatch`.
        """
        self._projections.vectors().load()

    def _indexing(self, fingerprint: str) -> AbstractContextManager[None]:
        """Hold the right to write a model's vectors. Raises `IndexerBusy`."""
        from mnemolog.projections.vectors.folders import IndexerLock

        return IndexerLock(self._layout.vectors, fingerprint).held()

    def _catch_up(self, vectors: Vectors, progress: Progress | None) -> int:
        """Bring vectors up to date with the log, which may grow meanwhile. Return how many texts were embedded."""
        encoded = 0
        self._begin_anew_if_gone(vectors)
        for _ in range(CATCH_UP_PASSES_MAX):
            encoded += catch_up_vectors(
                self._log, Indexing(self._layout.vectors, lambda: vectors), progress=progress
            ).encoded_texts
            if vectors.projection().covers >= self._log.head().position:
                break
        return encoded

    def _begin_anew_if_gone(self, vectors: Vectors) -> None:
        """Start over if another process dropped the vectors that this one has open: they must be on disk."""
        if not _folders_of(self._layout.vectors, vectors.fingerprint):
            self._projections.models.let_go(vectors.fingerprint)

    def _to_activate(self, asked: Any) -> Vectors:
        """Return the vectors to activate."""
        asked = asked.fingerprint if isinstance(asked, Model) else asked
        if isinstance(asked, str) and _FINGERPRINT.fullmatch(asked) and not Path(asked).is_dir():
            return self._by_fingerprint(asked)
        models = self._projections.models
        asked = opened_from_anywhere(asked)
        choice = (models.called(asked) if isinstance(asked, str) else []) or [asked]
        ready: dict[str, Vectors] = {}
        for model in choice:
            vectors = models.vectors_of(model)
            if self._may_answer(vectors):
                models.give(model)
                ready[vectors.fingerprint] = vectors
        if len(ready) > 1:
            which = ", ".join(short(fingerprint) for fingerprint in ready)
            raise errors.ModelRefused(_called(asked), f"there are several; choose one by its fingerprint: {which}")
        for only in ready.values():
            return only
        raise errors.ModelRefused(_called(asked), "it has no vectors here: add it first")

    def _by_fingerprint(self, asked: str) -> Vectors:
        found = self._named(asked)
        if len(found.fingerprint) < FINGERPRINT_DIGITS:  # Its manifests do not identify it.
            raise errors.ModelRefused(found.name, "its vectors are damaged or of another version: add it again")
        wanted = Activation(position=ORIGIN, fingerprint=found.fingerprint, model=found.name, dimension=0)
        try:
            return self._projections.models.find(wanted)
        except errors.ModelMismatch as error:
            why = f"no model that this process can open has the fingerprint {short(found.fingerprint)}"
            raise errors.ModelUnavailable(found.name, why) from error

    def _may_answer(self, vectors: Vectors) -> bool:
        """Whether a model may be activated: it has vectors, is the store's own, or the log is empty."""
        models = self._projections.models
        return (
            bool(_folders_of(self._layout.vectors, vectors.fingerprint))
            or self._log.head().position == ORIGIN
            or (models.own is not None and vectors is models.opened(models.own))
        )

    def _named(self, name: str) -> Model:
        """Return the one model with that name or fingerprint prefix. Raises `ModelRefused`."""
        known = self.list()
        found = [item for item in known if item.name in (name, opened_from_anywhere(name))]
        if not found and _FINGERPRINT.fullmatch(name):
            found = [item for item in known if item.fingerprint.startswith(name)]
        if not found:
            raise errors.ModelRefused(name, "no model with that name or fingerprint prefix")
        if len(found) > 1:
            which = ", ".join(short(item.fingerprint) for item in found)
            raise errors.ModelRefused(name, f"there are several; choose one by its fingerprint: {which}")
        return found[0]

    def _refuse_in_use(self, found: Model) -> None:
        models = self._projections.models
        active = models.active()
        if active is not None:
            if active.fingerprint.startswith(found.fingerprint):
                raise errors.ModelRefused(found.name, "it is active: activate another one first")
        elif _is_own(models, found):
            why = "no model was ever activated, so this store uses it: activate another one first"
            raise errors.ModelRefused(found.name, why)

    def _forget(self, fingerprint: str, *, dry_run: bool) -> int:
        from mnemolog.projections.sql import embeddings

        if not self._layout.embeddings.exists():
            return 0
        with opened(self._layout.embeddings) as database:
            return embeddings.delete(database, lambda contents: contents, model=fingerprint, dry_run=dry_run)


def _called(model: Any) -> str:
    return str(model) if isinstance(model, str | Path) else str(getattr(model, "name", type(model).__name__))


def _is_own(models: Models, found: Model) -> bool:
    if models.own is None:
        return False
    own = models.opened(models.own)
    try:
        return own.fingerprint.startswith(found.fingerprint)
    except errors.ModelUnavailable:  # It may be available again later; until then only its name identifies it.
        return own.encoder.name == found.name


def _remove(folder: Path) -> None:
    try:
        files.remove_folder(folder)
    except OSError as error:
        raise errors.ProjectionUnreadable(folder, f"it cannot be removed: {error.strerror or error}") from error


def _catalogue(root: Path, log: EventLog) -> list[Model]:
    """Return every model that has vectors below `root` or was ever activated, by name."""
    head = log.head().position
    activations: dict[str, Activation] = {}
    active: Activation | None = None
    for events in log.read_stream(MODELS_STREAM, upto=head):
        for recorded in events:
            if (activation := activation_of(recorded)) is not None:
                active = activations[activation.fingerprint] = activation
    # The last of several is the newest: an older one exists only until a rebuild has removed it.
    built = {prefix_of(status.fingerprint): status for status in generations(root, log)}
    known = {prefix_of(fingerprint): activation for fingerprint, activation in activations.items()}
    return sorted(
        [_model(built.get(key), known.get(key), active, behind=head) for key in {*built, *known}],
        key=lambda item: (item.name, item.fingerprint),
    )


def _folders_of(root: Path, fingerprint: str) -> list[Path]:
    """Return the folders of a model's vectors, oldest first."""
    return [folder.path for folder in generation_folders(root, fingerprint)]


def _model(
    built: GenerationStatus | None, known: Activation | None, active: Activation | None, *, behind: int
) -> Model:
    return Model(
        name=known.model if known is not None else built.model if built is not None else "",
        fingerprint=known.fingerprint if known is not None else built.fingerprint if built is not None else "",
        state="missing" if built is None else built.state,
        covers=ORIGIN if built is None else built.covers,
        behind_events=behind if built is None else built.behind_events,
        vectors=0 if built is None else built.vectors,
        active=known is not None and active is not None and known.fingerprint == active.fingerprint,
        activated_at=None if known is None else known.position,
    )
