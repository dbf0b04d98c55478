"""Update the vectors of a store from its log, in small steps, one thread of this process at a time.

Used by the background projector, by a recall that embeds a few new texts, and by one that waits for a position. No
caller waits longer than its timeout for its turn, even if the model is stuck.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.infra.runtime import cancellation
from mnemolog.infra.runtime.condition import InterruptSafeCondition
from mnemolog.projections.vectors.lock import IndexerLock
from mnemolog.projections.vectors.model_vectors import Vectors

if TYPE_CHECKING:
    from mnemolog.projections.sql.position_mask import PositionMask
    from mnemolog.projections.vectors.projection import VectorAnswer

STEP_TEXTS: Final = 128
"""Texts per model call of a step. A step that is stopped loses at most these."""
STEP_EVENTS: Final = 2_048
"""Events per step, so that texts from the cache are read in bounded pieces too."""
RECALL_TEXTS: Final = 64
"""Texts that a recall embeds before it answers. Further ones are found by text until they are embedded."""
RECALL_WAIT_S: Final = 3.0
"""How long a recall waits for its turn to embed, before it answers from existing vectors. The model is loaded then."""
BUSY_POLL_S: Final = 0.05
_PURPOSE: Final = "projector"


class Indexing:
    """Extends the vectors to positions of the log. Safe for many threads."""

    def __init__(self, root: Path, vectors: Callable[[], Vectors]) -> None:
        self._root, self._vectors = root, vectors
        self._changes = InterruptSafeCondition()
        self._turn: object | None = None
        """The token of the thread that extends the vectors now."""
        self.trouble: Callable[[], str | None] = lambda: None
        """Returns what is wrong with the projector; called when vectors are behind."""

    def covers(self) -> Position:
        """Return the position up to which every turn has its vector."""
        return self._vectors().projection().covers

    def bring_up(
        self,
        upto: Position,
        *,
        stop: Callable[[], bool],
        wait_s: float = 0.0,
        moved: Callable[[Position], None] = lambda _: None,
    ) -> int:
        """Embed all missing turns up to `upto`, one process at a time. Return how many texts the model encoded.

        `moved` is called with the position at the start and after every step. If the model refuses a text, all turns
        before it are embedded first.

        Raises `IndexerBusy` if another process embeds for more than `wait_s` seconds, `Stopped` when `stop()` is true,
        `EncodingFailed` with the position, `ProjectionBehind` if a step changes nothing.
        """
        start = self.covers()
        if start >= upto:
            return 0
        vectors, encoded, limit = self._vectors(), 0, upto
        refused: errors.EncodingFailed | None = None
        with (
            IndexerLock(self._root, vectors.fingerprint, purpose=_PURPOSE).held(wait_s=wait_s),
            cancellation.when(stop),
        ):
            moved(start)
            while (before := self.covers()) < limit:
                cancellation.check()
                step = Position(min(limit, before + STEP_EVENTS))
                try:
                    made = self._extend(vectors, step, texts=STEP_TEXTS, timeout_s=None)
                except errors.EncodingFailed as error:
                    refused = refused or error
                    if error.position is None or error.position - 1 <= self.covers():
                        raise refused from None
                    limit = Position(error.position - 1)
                    continue
                encoded += made or 0
                if not made and self.covers() == before:
                    raise errors.ProjectionBehind("vectors", behind_events=limit - before, why="a step changed nothing")
                moved(self.covers())
        if refused is not None:
            raise refused
        return encoded

    def cover(self, vectors: Vectors, upto: Position, *, timeout_s: float) -> None:
        """Embed missing turns in the caller's thread until these vectors cover `upto`.

        Does not wait for the projector or other processes. A call of the model is not interrupted, so one call may
        exceed `timeout_s`. Raises `ProjectionBehind` with the distance and the reason.
        """
        end = time.monotonic() + timeout_s
        why = f"not there within {timeout_s:g} s"
        try:
            with cancellation.when(lambda: time.monotonic() >= end):
                while vectors.projection().covers < upto:
                    cancellation.check()
                    try:
                        self._extend(vectors, upto, texts=RECALL_TEXTS, timeout_s=max(0.0, end - time.monotonic()))
                    except errors.IndexerBusy as error:
                        why = str(error)
                        self._changes.wait_for(lambda: None, timeout_s=BUSY_POLL_S)
            return
        except cancellation.Stopped:
            cancellation.check()  # Raises again if the caller was stopped; else the time is over.
            why = "; ".join(filter(None, [why, self.trouble()]))
            behind = upto - vectors.projection().covers
            raise errors.ProjectionBehind("vectors", behind_events=behind, why=why) from None
        except (errors.ModelError, errors.ProjectionError, errors.StorageFull) as error:
            behind = _distance(vectors, upto)
            raise errors.ProjectionBehind("vectors", behind_events=behind, why=str(error)) from error

    def search(
        self, vectors: Vectors, query: str, *, k: int, allowed: PositionMask | None, upto: Position
    ) -> VectorAnswer:
        """Embed the few texts that are new, unless another thread is embedding, and return up to `k` turns."""
        projection = vectors.projection()
        projection.refresh()
        lag, reached = None, upto
        if projection.covers < upto:
            lag = self._embed_new(vectors, upto)
            reached = min(projection.covers, upto)
        answer = projection.answer(query, k=k, allowed=allowed, upto=upto)
        if answer.covers < reached:
            # The search found a damaged segment, and the cache lacks some of its vectors.
            lag = self._embed_new(vectors, upto)
            answer = projection.answer(query, k=k, allowed=allowed, upto=upto)
        return answer._replace(lag=lag or self.trouble()) if answer.covers < upto else answer

    def _embed_new(self, vectors: Vectors, upto: Position) -> str | None:
        """Embed up to `RECALL_TEXTS` new texts. Return why that failed; None if it did not."""
        vectors.encoder.load()  # The thread whose turn it is may be waiting for the model, too.
        # A thread that embeds an import will not finish in time.
        wait_s = RECALL_WAIT_S if upto - vectors.projection().covers <= RECALL_TEXTS else 0.0
        try:
            if self._extend(vectors, upto, texts=RECALL_TEXTS, timeout_s=wait_s) is None and wait_s:
                return f"another thread of this process has been embedding for over {wait_s:g} s"
        except (errors.EncodingFailed, errors.IndexerBusy) as error:
            return str(error)
        except errors.ProjectionUnreadable as error:  # A damaged cache: existing vectors can still answer.
            return f"{error}; {error.hint}"
        return None

    def write(self, *, new_since: Position | None = None) -> None:
        """Write the vectors in memory, and merge those after `new_since` into few segments."""
        projection = self._vectors().projection()

        def written() -> int:
            projection.write(new_since=new_since)
            return 0

        self._alone(written, needless=lambda: False, timeout_s=None)

    def _extend(self, vectors: Vectors, upto: Position, *, texts: int, timeout_s: float | None) -> int | None:
        """Make one step. Return how many texts were encoded; None if the turn did not come in time."""
        projection = vectors.projection()
        return self._alone(
            lambda: projection.catch_up(upto=upto, encode_max=texts),
            needless=lambda: projection.covers >= upto,
            timeout_s=timeout_s,
        )

    def _alone(self, work: Callable[[], int], *, needless: Callable[[], bool], timeout_s: float | None) -> int | None:
        """Run `work` when no other thread does. Return 0 if it became needless, None after `timeout_s` seconds."""
        mine = object()

        def begin() -> bool | None:
            if self._turn is None and not needless():
                self._turn = mine
            return True if self._turn is mine or needless() else None

        # The turn is a field and not a lock: an interrupt between taking a lock and the `try` would leave it locked.
        try:
            if self._changes.wait_for(begin, timeout_s=timeout_s) is None:
                return None
            return work() if self._turn is mine else 0
        finally:
            with self._changes.mutex:
                if self._turn is mine:
                    self._turn = None
                self._changes.notify_all()


def _distance(vectors: Vectors, upto: Position) -> int:
    """Return how many positions are missing: all of them if the vectors cannot be opened."""
    try:
        return upto - vectors.projection().covers
    except (errors.ModelError, errors.ProjectionError, errors.StorageFull):
        return upto
