"""The models of a store: those with vectors on disk, and those activated according to the log."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain import errors
from mnemolog.domain.embedding_model import FINGERPRINT_DIGITS, MODELS_STREAM, Activation, activation_of
from mnemolog.domain.position import ORIGIN
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.vectors.folders import generation_folders, prefix_of
from mnemolog.projections.vectors.inventory import GenerationStatus, generations
from mnemolog.results import Model


def catalogue(root: Path, log: EventLog) -> list[Model]:
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
    found = [_model(built.get(key), known.get(key), active, behind=head) for key in {*built, *known}]
    return sorted(found, key=lambda item: (item.name, item.fingerprint))


def folders_of(root: Path, fingerprint: str) -> list[Path]:
    """Return the folders of a model's vectors, oldest first."""
    return [folder.path for folder in generation_folders(root, fingerprint)]


def known_as(found: Model) -> Activation:
    """Return the activation of a listed model. Raises `ModelRefused` if its manifests do not identify it."""
    if len(found.fingerprint) < FINGERPRINT_DIGITS:
        raise errors.ModelRefused(found.name, "its vectors are damaged or of another version: add it again")
    return Activation(
        position=ORIGIN,
        fingerprint=found.fingerprint,
        model=found.name,
        dimension=0,
    )


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
