"""The projections of a store, opened lazily."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

from mnemolog.domain import errors
from mnemolog.domain.events import ContentErased, SessionStarted
from mnemolog.domain.head import page_bounds
from mnemolog.domain.result import Results, Stale
from mnemolog.domain.session import Spans, session_of
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position, When, checked_whole
from mnemolog.infra.runtime import fork_guard
from mnemolog.projections.ports import MakeEncoder, Progress, Reranker, TimedLog
from mnemolog.projections.projector import Indexing, Projector, ProjectorStatus, read_status
from mnemolog.projections.read_models import Turn
from mnemolog.projections.sql import queries
from mnemolog.projections.sql.conversation_views import VIEWS, Views
from mnemolog.projections.sql.database import tracked
from mnemolog.projections.sql.opening import open_unproved, open_views
from mnemolog.projections.vectors.model_vectors import Models, Vectors


class ProjectionSet:
    """The views and vectors of one log."""

    def __init__(
        self,
        layout: StoreLayout,
        log: TimedLog,
        model: Any,
        *,
        make_encoder: MakeEncoder,
        models: Sequence[Any] = (),
        background: bool = False,
        reranker: Reranker | None = None,
        answers_alone: bool = True,
    ) -> None:
        """With `answers_alone`, `to_answer` returns the views also while the log does not answer."""
        self._layout, self.log = layout, log
        self.reranker, self._answers_alone = reranker, answers_alone
        self._opening = fork_guard.lock()
        self._views: Views | None = None
        self._unproved = False
        """Whether the views were opened while the log did not answer."""
        self._was_alone = False
        """Whether the last answer was given while the log did not answer: much may have been forgotten since."""
        self.models = Models(
            layout,
            log,
            model,
            make_encoder=make_encoder,
            others=models,
        )
        self.indexing = Indexing(layout.vectors, self.vectors)
        """Extends the vectors."""
        self.projector: Projector | None = None
        """Extends them in the background, if that was requested and there is a model."""
        if background and model is not None:
            self.projector = Projector(layout.projections, log, self.indexing)
            self.projector.look = self._look
        self.showing: Callable[[], AbstractContextManager[Progress | None]] = nullcontext
        """Gives what the progress of the views is reported to, where the caller of `caught_up` names nothing."""
        self._looks: list[Callable[[Position], None]] = []
        self._reached: Callable[[Position], None] = lambda _: None

    def views(self) -> Views:
        """Return the views as they are, however far they have read. Raises `HistoryLost`: they are the evidence."""
        self.log.require_whole()
        with self._opening:
            if self._views is None or self._unproved:
                opened, before = open_views(self._layout, self.log, busy_timeout_s=self.log.busy_timeout_s), self._views
                self._views, self._unproved = opened, False
                if before is not None:
                    before.database.close()
            return self._views

    def to_answer(self) -> tuple[Views, Position, Stale | None]:
        """Return what `caught_up` does, and None. If the log does not answer: the views as they are, and why."""
        try:
            return *self.caught_up(), None
        except errors.LogUnreachable as error:
            if not self._answers_alone:
                raise
            views, self._was_alone = self._views_alone(error), True
            with views.database.reading() as connection:
                position, newest = tracked(connection, VIEWS).position, queries.last_recorded_at(connection)
            return views, position, Stale(position=position, recorded_at=newest, why=str(error))

    def _views_alone(self, why: errors.LogUnreachable) -> Views:
        with self._opening:
            if self._views is None:
                self._views = open_unproved(self._layout, self.log, why, busy_timeout_s=self.log.busy_timeout_s)
                self._unproved = True
            return self._views

    def current_views(self, progress: Progress | None = None) -> Views:
        """Return the views, up to date with the log."""
        return self.caught_up(progress)[0]

    def caught_up(self, progress: Progress | None = None) -> tuple[Views, Position]:
        """Return the views, up to date with the log, and their position."""
        head = self.log.head().position
        if self.projector is None or self._was_alone or self._layout.scratch is not None:
            self._look(head)
            self._was_alone = False
        views = self.views()
        with self.showing() as shown:
            reached = views.catch_up(upto=head, progress=progress or shown)
        self._reached(reached)
        return views, reached

    def views_position(self) -> Position | None:
        """Return the position of the views; None if they were not needed yet."""
        return None if self._views is None else self._views.position()

    def vectors(self) -> Vectors:
        """Return the vectors of the active model; before any activation, of the one the store was opened with.

        Raises `ModelUnavailable` if the store was opened without a model, and `ModelMismatch` if this process does not
        have the active model.
        """
        return self.models.answering(self.models.active())

    @property
    def has_model(self) -> bool:
        """Whether the store was opened with a model."""
        return self.models.own is not None

    def active_fingerprint(self, *, upto: Position | None = None) -> str | None:
        """Return the fingerprint of the model that is active at `upto` or at the head; None before any activation."""
        active = self.models.active(upto=upto)
        return None if active is None else active.fingerprint

    def turns_in(
        self,
        spans: Spans,
        *,
        after: When,
        before: When | None = None,
        limit: int,
        newest_first: bool = False,
        last: int | None = None,
    ) -> Results[Turn]:
        """Return up to `limit` turns of the spans between two positions or times, both left out; or the `last` ones."""
        begin, end = page_bounds(after, before, self.log)
        falls = newest_first or last is not None
        limit = checked_whole("limit", limit) if last is None else checked_whole("last", last)
        with self.current_views().database.reading() as connection:
            room = min(limit, INTEGER_MAX - 1)
            page = queries.positions_in(connection, spans, after=begin, before=end, newest_first=falls, limit=room + 1)
            turns = queries.turns_at(connection, page[:limit])
        found = Results(turns[at] for at in (page[:limit] if falls is newest_first else reversed(page[:limit])))
        found.next = page[limit - 1] if len(page) > limit else None
        return found

    def session_titles(self) -> dict[str, str]:
        """Return the titles of all sessions by id; without the title where the views have not read that far.

        A title that was forgotten since is not returned either.
        """
        with self.views().database.reading() as connection:
            titles, position = queries.session_titles(connection), tracked(connection, VIEWS).position
        head = self.log.head().position
        started = self.log.streams_with(SessionStarted.topic, after=position, upto=head)
        for stream in self.log.streams_with(ContentErased.topic, after=position, upto=head):
            if (session := session_of(stream)) in titles:
                titles[session] = ""
        return {session_of(stream) or stream: "" for stream in started} | titles

    def projector_status(self) -> ProjectorStatus:
        """Return the status of the own projector, or of one of another process if there is none."""
        if self.projector is not None:
            return self.projector.status()
        return read_status(self._layout.projections, now=datetime.now(UTC))

    def watch(self, *, look: Callable[[Position], None], reached: Callable[[Position], None] | None = None) -> None:
        """Add a callback that gets the head: from the projector; before a read without one, or from a temporary folder.

        `reached` gets the position of the views after a read.
        """
        self._looks.append(look)
        self._reached = reached or self._reached

    def _look(self, head: Position) -> None:
        for look in self._looks:
            look(head)

    def poke(self) -> None:
        """Let the projector retry now, because the cause of a failure may be gone."""
        if self.projector is not None:
            self.projector.poke()

    def start(self) -> None:
        """Start the projector if the log has events; otherwise the first append starts it."""
        if self.projector is None:
            return
        with suppress(errors.LogUnreachable):  # It waits for the log.
            if self.log.head().position == ORIGIN:
                return
        self.projector.start()

    def stop(self) -> None:
        """Stop the projector. Call it while the log is still open."""
        if self.projector is not None:
            self.projector.close()

    def close(self) -> None:
        """Close all files."""
        self.models.close()
        with self._opening:
            if self._views is not None:
                self._views.database.close()
            self._views = None
