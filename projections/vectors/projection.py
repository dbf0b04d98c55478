"""The vector projection: selects a generation, updates it from the log, searches and rebuilds it.

A search looks for nearest neighbours over segments, with or without a filter. Every score is exact. The index of a
segment, if it has one, proposes the rows to score. If a filter leaves few rows, these are scored directly, without the
index. Rows that the high bits of their vectors rule out are not scored.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.store_layout import PROJECTIONS
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.runtime import files, fork_guard
from mnemolog.infra.runtime.lru_cache import LruCache
from mnemolog.projections.ports import Encoder, Progress, StoreLog, tell
from mnemolog.projections.sql.embeddings import EmbeddingCache, Packed, Vectors, content_hash, unpack
from mnemolog.projections.sql.filtering import Bits, PositionMask
from mnemolog.projections.vectors.ann_index import Coarse
from mnemolog.projections.vectors.checked_rows import Rows, bounds, floats, products, scores
from mnemolog.projections.vectors.folders import (
    WAIT_S,
    Damaged,
    IndexerLock,
    Rebuilt,
    generation_folders,
    generation_name,
    look,
    prefix_of,
    segment_folders,
)
from mnemolog.projections.vectors.generation import EVENTS_TOGETHER_MAX, Generation, Snapshot
from mnemolog.projections.vectors.segment import Positions, Segment
from mnemolog.projections.vectors.turn_vectors import Embedder

SCANNED_ROWS: Final = 1_000
SCANNED_SHARE: Final = 1 / 128
"""Rows left by a filter up to which all are scored, beside those a share of all: as fast as asking the index."""
WIDER: Final = 4
"""The factor by which more candidates are requested if the first were too few."""

Scores = NDArray[np.float32]


class _Part(NamedTuple):
    """Turns of a segment by number, with their rows: a turn's rows reach from its start to the next start."""

    turns: Rows
    rows: Rows
    starts: Rows


class _Offer(NamedTuple):
    """Turns of a segment by number, with bounds on the score of their best row. Shapes (n,)."""

    segment: Segment
    turns: Rows
    least: Scores
    most: Scores
    starts: Rows
    packed: Packed | None
    """The rows to score; None where `least` is the exact score."""

    def settled(self, query: Vectors, floor: float) -> tuple[Rows, Scores]:
        """Return the turns that may reach `floor`, with their scores."""
        if self.packed is None:
            return self.turns, self.least
        those = self.most >= floor
        sizes = np.diff(self.starts, append=len(self.packed))
        left = sizes[those]
        rows = unpack(self.packed[np.repeat(those, sizes)], query.shape[1])
        return self.turns[those], _best_of_each(products(rows, query), np.cumsum(left) - left)


def nearest(
    segments: Sequence[Segment], query: Vectors, *, k: int, allowed: PositionMask | None
) -> list[tuple[Position, float]]:
    """Return the positions of the nearest `k` turns with their cosine similarity, best first.

    `query` has shape (1, dimension), length 1. `allowed` restricts the answer to these turns; None does not restrict.
    A turn of several chunks counts once, with its best chunk; of equal scores the earlier turn comes first.
    Raises `Damaged`.
    """
    offered = (_offer(segment, query, k=k, allowed=allowed) for segment in segments)
    offers = [offer for offer in offered if offer is not None]
    if not offers:
        return []
    floor = _best_but(k, np.concatenate([offer.least for offer in offers]))
    settled = [offer.settled(query, floor) for offer in offers]
    found = np.concatenate([scored for _, scored in settled])
    turns = np.concatenate([offer.segment.turns[numbers] for offer, (numbers, _) in zip(offers, settled, strict=True)])
    best = _best(found, turns, k)
    return list(zip(map(Position, turns[best].tolist()), found[best].tolist(), strict=True))


def similarities(segments: Sequence[Segment], query: Vectors, wanted: Positions) -> dict[Position, float]:
    """Return the cosine similarity of these turns (ascending); those without vectors are left out.

    `query` has shape (1, dimension), length 1. Raises `Damaged`.
    """
    found: dict[Position, float] = {}
    for segment in segments:
        numbers = segment.numbers_of(wanted)
        if len(numbers):
            scored = _exactly(segment, query, _part(segment, numbers))
            found.update(zip(segment.turns[numbers].tolist(), scored.tolist(), strict=True))
    return found


def _offer(segment: Segment, query: Vectors, *, k: int, allowed: PositionMask | None) -> _Offer | None:
    """Return the turns that a segment offers; None if there are none."""
    left = None if allowed is None else allowed.holds(segment.turns)
    count = segment.exact.count
    rows_left = count if left is None else _rows_of(segment, left)
    if rows_left == 0:
        return None
    part = None
    if segment.coarse is not None and (left is None or rows_left > SCANNED_ROWS + SCANNED_SHARE * count):
        part = _proposed(segment, segment.coarse, query, left, k=k, rows_left=rows_left)
    if part is None:
        if left is None:
            scored = _best_of_each(scores(segment.exact, query), segment.row_starts[:-1])
            return _Offer(segment, np.arange(len(scored)), scored, scored, segment.row_starts[:-1], None)
        part = _part(segment, np.flatnonzero(left))
    return _bounded(segment, query, part, k=k)


def _bounded(segment: Segment, query: Vectors, part: _Part, *, k: int) -> _Offer:
    if segment.coarse is None or len(part.turns) <= k:
        scored = _exactly(segment, query, part)
        return _Offer(segment, part.turns, scored, scored, part.starts, None)
    packed = segment.exact.packed(part.rows)
    least, most = (_best_of_each(bound, part.starts) for bound in bounds(packed, query))
    return _Offer(segment, part.turns, least, most, part.starts, packed)


def _proposed(
    segment: Segment, coarse: Coarse, query: Vectors, left: Bits | None, *, k: int, rows_left: int
) -> _Part | None:
    """Return at least `k` turns proposed by the index, requesting more as needed; None if scoring all is cheaper."""
    among = left if left is None or len(segment.rows) == len(left) else left[segment.rows]
    wanted = coarse.wanted(k)
    while wanted < rows_left // 2:
        rows = np.sort(coarse.candidates(query, wanted, among=among))
        numbers = segment.rows[rows]
        if len(starts := np.flatnonzero(np.diff(numbers, prepend=-1))) >= k:
            return _Part(numbers[starts], rows, starts)
        wanted *= WIDER
    return None


def _part(segment: Segment, numbers: Rows) -> _Part:
    """Return these turns with all their rows."""
    first = segment.row_starts[numbers]
    sizes = segment.row_starts[numbers + 1] - first
    starts = np.cumsum(sizes) - sizes
    rows = first if len(first) == sizes.sum() else np.repeat(first - starts, sizes) + np.arange(sizes.sum())
    return _Part(numbers, rows, starts)


def _exactly(segment: Segment, query: Vectors, part: _Part) -> Scores:
    return _best_of_each(scores(segment.exact, query, at=part.rows), part.starts)


def _best_of_each(made: Scores, starts: Rows) -> Scores:
    return made if len(made) == len(starts) else np.maximum.reduceat(made, starts)


def _rows_of(segment: Segment, left: Bits) -> int:
    """Return the number of rows of these turns."""
    if len(segment.rows) == len(segment.turns):
        return int(np.count_nonzero(left))
    return int(np.diff(segment.row_starts)[left].sum())


def _best_but(k: int, scored: Scores) -> float:
    """Return the `k`-th best score; minus infinity if there are no more than `k`."""
    return -np.inf if len(scored) <= k else float(np.partition(scored, len(scored) - k)[len(scored) - k])


def _best(scored: Scores, turns: Positions, k: int) -> Rows:
    """Return the indexes of the best `k`, ties by position."""
    where = np.flatnonzero(scored >= _best_but(k, scored))
    best: Rows = where[np.lexsort((turns[where], -scored[where]))][:k]
    return best


QUESTIONS_KEPT: Final = 256
"""Questions whose vectors are kept in memory, by the hash of their text."""
REFRESH_WAIT_S: Final = 0.5
"""How long a refresh waits for another thread that is embedding, in seconds."""
TAIL_ROWS_MAX: Final = 2_048
"""Vectors in memory above which the next caller writes a segment."""
SEGMENTS_MAX: Final = 12
"""Number of segments above which even a recall merges some."""
BUILD_ROWS: Final = 20_000
"""Vectors that a rebuild holds in memory. If it is killed, they are still in the embedding cache."""
ATTEMPTS_MAX: Final = 20
"""Damaged segments that one search skips before it gives up."""

BUILDING: Final = ".building-"
PROBE: Final = "probe"


class VectorAnswer(NamedTuple):
    """The answer of the vectors to a query, from one snapshot."""

    found: list[tuple[Position, float]]
    """Positions of turns with cosine similarity, best first."""
    covers: Position
    """The position up to which every turn was searched."""
    look_up: Callable[[list[Position]], dict[Position, float]]
    """Returns the similarities of these turns (ascending) from the same snapshot, also of those that were not allowed.

    Turns that have no vector are left out.
    """
    near: Callable[[Position, list[Position]], dict[Position, float]]
    """Returns the similarities of turns (ascending) to another turn, from the same snapshot."""
    like: Callable[[Position, int, PositionMask], list[tuple[Position, float]]]
    """Returns so many of these turns that are most similar to another one, best first, from the same snapshot."""
    lag: str | None = None
    """Why the vectors reach no further, if something went wrong."""


class VectorProjection:
    """Vectors of one log under one model. Other models' generations are left alone.

    Safe for many threads and processes: one at a time writes, the others load what it has written.
    """

    def __init__(self, root: Path, *, log: StoreLog, encoder: Encoder, cache: EmbeddingCache, quarantine: Path) -> None:
        self._root = root
        self._log = log
        self._encoder = encoder
        self._cache = cache
        self._quarantine = quarantine
        self._lock = IndexerLock(root, encoder.fingerprint)
        self._switching = fork_guard.lock()
        self._generation = self._open(self._current_folder())
        self._questions = LruCache[bytes, Vectors](QUESTIONS_KEPT)

    @property
    def covers(self) -> Position:
        """The position up to which every turn has its vector."""
        return self._generation.snapshot.covers

    def catch_up(self, *, upto: Position, encode_max: int) -> int:
        """Embed turns up to `upto` in one step. Return how many texts the model encoded.

        These are at most `encode_max`, of at most `EVENTS_TOGETHER_MAX` events. New vectors are in memory and in the
        cache; a segment is written once there are many. Raises `EncodingFailed` with the position; vectors of earlier
        turns are kept.
        """
        generation = self._refreshed()
        try:
            return generation.extend(upto=upto, encode_max=encode_max, events_max=EVENTS_TOGETHER_MAX)
        finally:
            if sum(part.exact.count for part in generation.snapshot.tail) > TAIL_ROWS_MAX:
                with suppress(errors.IndexerBusy):  # Another process is writing.
                    self._write(generation, merge=len(generation.snapshot.written) >= SEGMENTS_MAX, wait_s=0)

    def write(self, *, new_since: Position | None = None) -> None:
        """Write the vectors in memory, and merge segments if there are many.

        `new_since` as for `Generation.write`. Raises `IndexerBusy` if another process writes for more than `WAIT_S`
        seconds, and `StorageFull`.
        """
        generation = self._refreshed()
        upto = generation.snapshot.covers
        for _ in range(ATTEMPTS_MAX):
            if self._write(generation, new_since=new_since):
                return
            # Vectors of a damaged segment come from the cache, as far as it has them.
            generation.extend(upto=upto, encode_max=0)
        raise errors.ProjectionUnreadable(generation.folder, "segment after segment turns out to be damaged")

    def refresh(self) -> None:
        """Load what other processes have written or removed. Raises `ProjectionUnreadable`."""
        self._refreshed(wait_s=REFRESH_WAIT_S)

    def answer(self, query: str, *, k: int, allowed: PositionMask | None, upto: Position | None = None) -> VectorAnswer:
        """Return the best `k` turns that were embedded at the last `refresh` or since, best first.

        With `upto`, turns after it are ignored. With `allowed`, only these are returned.
        Raises `ModelUnavailable`, `ProjectionUnreadable`, or `EncodingFailed` for the query.
        """
        vector, generation = self._embed(query), self._generation
        for _ in range(ATTEMPTS_MAX):
            snapshot = generation.snapshot
            try:
                found = nearest(snapshot.segments, vector, k=k, allowed=snapshot.allowed_as_of(upto, allowed))
            except Damaged as error:
                generation.quarantine(error.path.parent, why=error.cause)
                continue
            look_up = partial(self._similarities, generation, snapshot, snapshot.allowed_as_of(upto, None), vector)
            near = partial(self._near, generation, snapshot)
            like = partial(self._like, generation, snapshot)
            covers = snapshot.covers if upto is None else min(snapshot.covers, upto)
            return VectorAnswer(found, covers, look_up=look_up, near=near, like=like)
        raise errors.ProjectionUnreadable(generation.folder, "segment after segment turns out to be damaged")

    def _similarities(
        self,
        generation: Generation,
        snapshot: Snapshot,
        seen: PositionMask | None,
        vector: Vectors,
        wanted: list[Position],
    ) -> dict[Position, float]:
        """Return the similarities of these turns. Turns without an undamaged vector are left out."""
        allowed = np.asarray(wanted, dtype=np.int64)
        if seen is not None:
            allowed = allowed[seen.holds(allowed)]
        try:
            return similarities(snapshot.segments, vector, allowed)
        except Damaged as error:
            generation.quarantine(error.path.parent, why=error.cause)
            return {}

    def _near(
        self, generation: Generation, snapshot: Snapshot, of: Position, wanted: list[Position]
    ) -> dict[Position, float]:
        turn = self._vector_of(generation, snapshot, of) if wanted else None
        return {} if turn is None else self._similarities(generation, snapshot, None, turn, wanted)

    def _like(
        self, generation: Generation, snapshot: Snapshot, of: Position, k: int, allowed: PositionMask
    ) -> list[tuple[Position, float]]:
        turn = self._vector_of(generation, snapshot, of)
        try:
            return [] if turn is None else nearest(snapshot.segments, turn, k=k, allowed=allowed)
        except Damaged as error:
            generation.quarantine(error.path.parent, why=error.cause)
            return []

    def _vector_of(self, generation: Generation, snapshot: Snapshot, of: Position) -> Vectors | None:
        """Return a turn as one vector: the mean of its chunks, length 1; None if it has no undamaged vector."""
        try:
            for segment in snapshot.segments:
                for number in segment.numbers_of(np.asarray([of], dtype=np.int64)).tolist():
                    return _direction(floats(segment.exact, np.arange(*segment.row_starts[number : number + 2])))
        except Damaged as error:
            generation.quarantine(error.path.parent, why=error.cause)
        return None

    def rebuild(
        self,
        *,
        upto: Position,
        skip_bad: bool = False,
        progress: Progress | None = None,
    ) -> Rebuilt:
        """Build a new generation from the log, while the current one keeps answering.

        Resumes an interrupted rebuild and takes stored vectors.
        With `skip_bad`, a text that the model refuses is skipped and listed in the manifest.
        Raises `EncodingFailed` with the position, and `IndexerBusy`: the current generation stays in use.
        """
        with self._lock.held(), files.mapped_to_projection_errors(self._root):
            building = self._root / f"{BUILDING}{prefix_of(self._encoder.fingerprint)}"
            files.remove_leftovers(self._root, PROBE)
            if building.is_symlink():  # Not ours: the folder that it leads to would be written.
                building.unlink()
            files.make_folder(building, root=PROJECTIONS)
            built, encoded = self._build_whole(building, self._embedder(skip_bad=skip_bad), upto, progress)
            replaced = generation_folders(self._root, self._encoder.fingerprint)
            final = self._name(replaced[-1].serial + 1 if replaced else 1)
            files.publish_folder(building, final)
            rebuilt = Rebuilt(
                turns=sum(len(part.turns) for part in built.segments),
                encoded=encoded,
                skipped=sum(len(part.skipped) for part in built.segments),
            )
            del built  # Its index is read again: with it, there would be two in memory.
            self._switch(final)
            self._generation.settle()
            for folder in replaced:
                self._remove(folder.path)
        return rebuilt

    def missing(self, *, upto: Position) -> int:
        """Return how many texts up to `upto` a rebuild would encode with the model."""
        return self._open(self._root / files.temporary_name(PROBE)).count_unknown(upto=upto)

    def _build_whole(
        self, folder: Path, embedder: Embedder, upto: Position, progress: Progress | None
    ) -> tuple[Snapshot, int]:
        """Build in a folder, without segments that turn out to be damaged. Return what was built, and texts encoded."""
        for _ in range(ATTEMPTS_MAX):
            fresh = self._open(folder, embedder)
            try:
                if fresh.covers == ORIGIN:
                    fresh.take_over(self._whole_segments(upto))
                encoded = self._build(fresh, upto, progress)
                return fresh.snapshot, encoded
            except Damaged as error:
                damaged = error.path.parent
                (fresh if damaged.parent == folder else self._generation).quarantine(damaged, why=error.cause)
        raise errors.ProjectionUnreadable(folder, "segment after segment turns out to be damaged")

    def _whole_segments(self, upto: Position) -> list[Segment]:
        """Return the first segments of the current generation that have a vector for every turn that the log has."""
        whole: list[Segment] = []
        for part in self._refreshed().snapshot.written:
            turns = self._log.count(topic=TurnRecorded.topic, after=part.after, upto=part.upto)
            if part.upto > upto or turns != len(part.turns):
                break
            whole.append(part)
        return whole

    def _build(self, fresh: Generation, upto: Position, progress: Progress | None) -> int:
        """Extend `fresh` up to `upto`, writing as it goes. Return how many texts were encoded."""
        if fresh.snapshot.tail and fresh.covers < upto:
            fresh.write(merge=False, index=False)
        encoded, start = 0, fresh.covers
        while True:
            before = fresh.snapshot.covers
            at = Position(min(upto, before + BUILD_ROWS))
            encoded += fresh.extend(
                upto=at, progress=lambda done, _, before=before: tell(progress, before + done - start, upto - start)
            )
            if at >= upto:
                break
            fresh.write(merge=False, index=False)
        fresh.write_as_one()
        return encoded

    def _write(
        self, generation: Generation, *, merge: bool = True, wait_s: float = WAIT_S, new_since: Position | None = None
    ) -> bool:
        """Write the vectors in memory, if this generation is still the current one.

        Return False if a merge found a damaged segment: it is in quarantine now, and the vectors end before it. A merge
        reads bytes that nothing else reads, so it may be the first to find damage.
        """
        if not generation.is_untidy and new_since is None:
            return True
        with self._lock.held(wait_s=wait_s), files.mapped_to_projection_errors(self._root):
            # Read before embedding, checked before writing: meanwhile a rebuild may have replaced the generation. Its
            # new vectors are in the cache.
            if self._current_folder() == generation.folder:
                try:
                    generation.write(merge=merge, new_since=new_since)
                    generation.settle()
                except Damaged as error:
                    generation.quarantine(error.path.parent, why=error.cause)
                    return False
        return True

    def _refreshed(self, *, wait_s: float = -1) -> Generation:
        """Return the current generation with what other processes have written."""
        self._switch(self._current_folder())
        self._generation.refresh(wait_s=wait_s)
        return self._generation

    def _switch(self, folder: Path) -> None:
        """Use a generation, once it covers what the one before does: its newest vectors are in the cache."""
        with self._switching:
            if self._generation.folder != folder:
                generation = self._open(folder)
                generation.extend(upto=self.covers, encode_max=0)
                self._generation = generation

    def _embed(self, query: str) -> Vectors:
        """Return the query as one vector of shape (1, dimension): the mean of its chunks, length 1.

        The vectors of the last questions are kept, because pages, audits and prefetches ask the same one again.
        """
        content = content_hash(query)
        known = self._questions.get(content)
        if known is not None:
            return known
        made = _direction(self._encoder.encode(self._encoder.chunks([query])[0]))
        if made is None:
            raise errors.EncodingFailed("the model gives no direction for this query")
        self._questions.put(content, made)
        return made

    def _embedder(self, *, skip_bad: bool = False) -> Embedder:
        return Embedder(self._encoder, self._cache, segments=lambda: self._generation.stored, skip_bad=skip_bad)

    def _open(self, folder: Path, embedder: Embedder | None = None) -> Generation:
        return Generation(
            folder,
            log=self._log,
            encoder=self._encoder,
            embedder=embedder or self._embedder(),
            cache=self._cache,
            quarantine=self._quarantine,
        )

    def _remove(self, generation: Path) -> None:
        """Delete a replaced generation, unless it has turns that this log lacks: then it is a witness."""
        found = (look(part, self._log) for part in segment_folders(generation))
        if all(segment is None or segment.covered for segment in found):
            files.remove_folder(generation)

    def _current_folder(self) -> Path:
        folders = generation_folders(self._root, self._encoder.fingerprint)
        return folders[-1].path if folders else self._name(1)

    def _name(self, serial: int) -> Path:
        """Return the path of the first generation from `serial` on whose name is not that of a symbolic link."""
        while (path := self._root / generation_name(self._encoder.fingerprint, serial)).is_symlink():
            serial += 1
        return path


def _direction(rows: Vectors) -> Vectors | None:
    """Return the mean of vectors with length 1, shape (1, dimension); None if they have no direction together."""
    mean = rows.mean(axis=0, keepdims=True)
    length = float(np.linalg.norm(mean)) if len(rows) else 0.0
    return np.ascontiguousarray(mean / length, dtype=np.float32) if np.isfinite(length) and length else None
