"""The projections of a store, opened when they are first needed, and what is asked of them."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mnemolog import bootstrap
from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.domain.spans import Spans
from mnemolog.indexing import Indexing
from mnemolog.infra.log import EventLog
from mnemolog.projections import queries
from mnemolog.projections.catch_up import catch_up
from mnemolog.projections.ports import Progress
from mnemolog.projections.queries import Filters
from mnemolog.projections.read_models import Turn
from mnemolog.projections.recall import Mode, Recall, checked_question, recall
from mnemolog.projections.views import Views
from mnemolog.projector import Projector
from mnemolog.projector_state import ProjectorStatus, read_status


class OpenedProjections:
    """Views and vectors of one log."""

    def __init__(self, folder: Path, log: EventLog, model: Any, *, every: int = 1, background: bool = False) -> None:
        self._folder, self._log, self._model, self._every = folder, log, model, every
        self._opening = threading.Lock()
        self._views: Views | None = None
        self._vectors: bootstrap.Vectors | None = None
        self.indexing = Indexing(folder, self.vectors)
        """The way by which the vectors follow the log."""
        self.projector: Projector | None = None
        """Does so in the background, where it was asked for and there is a model."""
        if background and model is not None:
            self.projector = Projector(folder / bootstrap.PROJECTIONS, log, self.indexing)

    def views(self) -> Views:
        """Return the views as they are, however far they have read."""
        with self._opening:
            if self._views is None:
                self._views = bootstrap.open_views(self._folder, self._log)
            return self._views

    def current_views(self, progress: Progress | None = None) -> Views:
        """Return the views, brought up to the head of the log."""
        views = self.views()
        catch_up(self._log, views, upto=self._log.head().position, progress=progress)
        return views

    def vectors(self) -> bootstrap.Vectors:
        """Return the vector leg. Raises `ModelUnavailable` when the store was opened without a model."""
        if self._model is None:
            raise errors.ModelUnavailable("None", "the store was opened with model=None, for text only")
        with self._opening:
            if self._vectors is None:
                self._vectors = bootstrap.Vectors(self._folder, self._log, self._model, every=self._every)
            return self._vectors

    def known_fingerprint(self) -> str | None:
        """Return the fingerprint of the model, None as long as nothing has needed it."""
        vectors = self._vectors
        return None if vectors is None else vectors.known_fingerprint

    def recall(
        self, query: str, filters: Filters, *, k: int, mode: Mode, at_least: int | None = None, timeout_s: float = 0.0
    ) -> Recall:
        """Answer a query from what `filters` leave, the vectors covering `at_least` if that is given.

        Raises `InvalidInput`, `ProjectionBehind`.
        """
        checked_question(query, k=k, mode=mode)
        views = self.current_views()
        head = views.position()

        def answered() -> Recall:
            return recall(views, self._leg, query=query, k=k, mode=mode, filters=filters, head=head)

        if at_least is None:
            return answered()
        return self.indexing.answer_at_least(at_least, answered, head=head, mode=mode, timeout_s=timeout_s)

    def turns_in(
        self, spans: Spans, *, after: Position, before: Position | None, limit: int, newest_first: bool
    ) -> list[Turn]:
        """Return up to `limit` turns of the spans between two positions, both left out."""
        with self.current_views().database.reading() as connection:
            return queries.turns_in(
                connection, spans, after=after, before=before, limit=limit, newest_first=newest_first
            )

    def _leg(self) -> Indexing:
        self.vectors()  # Raises where there is no model.
        return self.indexing

    def projector_status(self) -> ProjectorStatus:
        """Return what the own projector does, or where there is none, one of another process."""
        if self.projector is not None:
            return self.projector.status()
        return read_status(self._folder / bootstrap.PROJECTIONS, now=datetime.now(UTC))

    def poke(self) -> None:
        """Have the projector look now: what kept it from its work may be gone."""
        if self.projector is not None:
            self.projector.poke()

    def stop(self) -> None:
        """End the projector. To be called while the log is still open."""
        if self.projector is not None:
            self.projector.close()

    def close(self) -> None:
        """Let go of all files."""
        with self._opening:
            if self._vectors is not None:
                self._vectors.close()
            if self._views is not None:
                self._views.database.engine.dispose()
            self._vectors = self._views = None
