"""A generation: all vectors that one model made of one log, in segments, with what is newer in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections import durable
from mnemolog.projections.embeddings import EmbeddingCache, Vectors, content_hash
from mnemolog.projections.ports import Encoder, Log, Progress
from mnemolog.projections.rendering import RECIPE, render
from mnemolog.projections.vectors import segment as segments
from mnemolog.projections.vectors.manifest import Manifest, SegmentState, read_manifest, state_of
from mnemolog.projections.vectors.segment import Description, Positions, Segment

READ_BATCH: Final = 512
SEGMENTS_MAX: Final = 8
"""Written segments a generation may have before they are merged into one."""
TAIL_PARTS_MAX: Final = 16
"""Parts the tail in memory may have before they are merged into one."""


class Coverage(NamedTuple):
    """What an extension of the vectors did."""

    upto: Position
    turns: int
    encoded: int
    """Turns the model was called for; the others came from the cache."""


class Generation:
    """Vectors of `log` under `encoder`. Readers search an immutable snapshot; one thread extends at a time."""

    def __init__(self, folder: Path, *, log: Log, encoder: Encoder, cache: EmbeddingCache, quarantine: Path) -> None:
        self.folder = folder
        self._log, self._encoder, self._cache, self._quarantine = log, encoder, cache, quarantine
        self._extending = threading.Lock()
        self.snapshot: tuple[Segment, ...] = ()
        """Written segments, then the tail in memory, each beginning where the one before ends."""
        self._load()

    @property
    def covers(self) -> Position:
        """The offset up to which every turn has its vector here."""
        return self.snapshot[-1].upto if self.snapshot else ORIGIN

    @property
    def written(self) -> Position:
        """The offset up to which the vectors are on disk."""
        return max((part.upto for part in self.snapshot if part.folder is not None), default=ORIGIN)

    def extend(self, *, upto: Position, encode_max: int | None = None, progress: Progress | None = None) -> Coverage:
        """Take in turns of `(covers, upto]`, from the cache where it knows them, else through the model.

        Stops early before the turn that would be the `encode_max + 1`-th to encode. Raises
        `EncodingFailed`, naming the position; what came before is kept.
        """
        with self._extending:
            start, turns, encoded = self.covers, 0, 0
            for events in self._log.read(after=start, upto=upto, batch_max=READ_BATCH):
                batch = [(e.position, render(e.event)) for e in events if isinstance(e.event, TurnRecorded)]
                left = None if encode_max is None else encode_max - encoded
                taken, calls = self._take(batch, encode_max=left)
                turns, encoded = turns + taken, encoded + calls
                stop = batch[taken][0] if taken < len(batch) else Position(upto + 1)
                self._move_to(max((e.position for e in events if e.position < stop), default=self.covers))
                if progress is not None:
                    progress(self.covers - start, upto - start)
                if taken < len(batch):
                    break
            return Coverage(self.covers, turns, encoded)

    def count_unknown(self, *, upto: Position) -> int:
        """Return how many distinct texts of `(covers, upto]` the cache does not know."""
        unknown: set[bytes] = set()
        for events in self._log.read(after=self.covers, upto=upto, batch_max=READ_BATCH):
            hashes = {content_hash(render(e.event)) for e in events if isinstance(e.event, TurnRecorded)}
            unknown |= hashes - self._cache.look_up(hashes).keys()
        return len(unknown)

    def write(self) -> None:
        """Write the tail as a segment; merge all into one when they have become many."""
        with self._extending:
            written = tuple(part for part in self.snapshot if part.folder is not None)
            tail = [part for part in self.snapshot if part.folder is None]
            if not tail:
                return
            parts: Sequence[Segment] = tail
            if len(written) >= SEGMENTS_MAX:
                parts, written = [*written, *tail], ()
            merged = self._merge(parts)
            old = [part.folder for part in parts if part.folder is not None]
            self.snapshot = (*written, segments.publish(merged, self.folder, self._description(merged.upto)))
            for folder in old:
                durable.remove_folder(folder)

    def _take(self, batch: Sequence[tuple[Position, str]], *, encode_max: int | None) -> tuple[int, int]:
        """Add the turns of `batch` to the tail, in order. Return how many, and how many were encoded."""
        hashes = [content_hash(text) for _, text in batch]
        known = self._cache.look_up(hashes)
        missing: dict[bytes, tuple[Position, str]] = {}
        taken = 0
        for (position, text), content in zip(batch, hashes, strict=True):
            if content not in known and content not in missing:
                if encode_max is not None and len(missing) >= encode_max:
                    break
                missing[content] = (position, text)
            taken += 1
        fresh = self._encode(missing)
        self._cache.store(fresh)
        known |= fresh
        if taken:
            rows = [known[content] for content in hashes[:taken]]
            positions = np.repeat([position for position, _ in batch[:taken]], [len(row) for row in rows])
            self._append(positions.astype(np.int64), np.concatenate(rows), upto=batch[taken - 1][0])
        return taken, len(missing)

    def _encode(self, missing: dict[bytes, tuple[Position, str]]) -> dict[bytes, Vectors]:
        if not missing:
            return {}
        chunks = self._encoder.chunks([text for _, text in missing.values()])
        try:
            vectors = self._encoder.encode([piece for pieces in chunks for piece in pieces])
        except errors.EncodingFailed as error:
            self._name_the_culprit(missing, chunks)
            raise error from None
        ends = np.cumsum([len(pieces) for pieces in chunks])
        return dict(zip(missing, np.split(vectors, ends[:-1]), strict=True))

    def _name_the_culprit(self, missing: dict[bytes, tuple[Position, str]], chunks: list[list[str]]) -> None:
        for (position, _), pieces in zip(missing.values(), chunks, strict=True):
            try:
                self._encoder.encode(pieces)
            except errors.EncodingFailed as error:
                raise errors.EncodingFailed(str(error), position=position) from error

    def _append(self, positions: Positions, vectors: Vectors, *, upto: Position) -> None:
        """Make the tail longer. Searches under way keep the snapshot they have."""
        done = tuple(part for part in self.snapshot if part.folder is not None)
        tail = [part for part in self.snapshot if part.folder is None]
        tail.append(segments.build(positions, vectors, after=self.covers, upto=upto, dimension=self._encoder.dimension))
        self.snapshot = (*done, *(tail if len(tail) <= TAIL_PARTS_MAX else [self._merge(tail)]))

    def _move_to(self, upto: Position) -> None:
        """Say that there is nothing more to embed up to `upto`."""
        if upto > self.covers:
            none = np.empty((0, self._encoder.dimension), dtype=np.float32)
            self._append(np.empty(0, dtype=np.int64), none, upto=upto)

    def _merge(self, parts: Sequence[Segment]) -> Segment:
        if len(parts) == 1:
            return parts[0]
        return segments.build(
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.vectors for part in parts]),
            after=parts[0].after,
            upto=parts[-1].upto,
            dimension=self._encoder.dimension,
        )

    def _description(self, upto: Position) -> Description:
        digest = self._log.digest_at(upto)
        if digest is None:
            raise errors.LogDamaged("the event that the vectors reach to is gone", position=upto)
        return Description(self._log.log_id, self._encoder.fingerprint, self._encoder.name, RECIPE, digest.hex())

    def _load(self) -> None:
        """Read the longest chain of segments from 0. What cannot be used goes to quarantine."""
        found: list[tuple[Manifest, Path]] = []
        for folder in sorted(self.folder.glob("[0-9]*-[0-9]*")):
            try:
                manifest = read_manifest(folder)
                state = state_of(manifest, log=self._log, fingerprint=self._encoder.fingerprint)
                if state is not SegmentState.USABLE or manifest.recipe != RECIPE:
                    raise errors.ProjectionUnreadable(folder, f"the segment is {state.value}")
                found.append((manifest, folder))
            except errors.ProjectionUnreadable as error:
                self._set_aside(folder, error)
        chain: list[Segment] = []
        reached = ORIGIN
        # Ranges may overlap when two processes wrote at once: of those that begin here, take the longest.
        while options := [(m, f) for m, f in found if m.after == reached and m.upto > reached]:
            manifest, folder = max(options, key=lambda option: option[0].upto)
            try:
                chain.append(segments.load(folder, manifest))
                reached = manifest.upto
            except errors.ProjectionUnreadable as error:
                self._set_aside(folder, error)
                found.remove((manifest, folder))
        self.snapshot = tuple(chain)

    def _set_aside(self, folder: Path, error: errors.ProjectionUnreadable) -> None:
        # A folder that vanished meanwhile was merged away by another process: nothing is wrong with it.
        if folder.exists():
            durable.quarantine(folder, self._quarantine, reason=error.cause)
