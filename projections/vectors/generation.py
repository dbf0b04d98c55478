"""A generation: all vectors that one model made of one log, in segments, with what is newer in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.events import RecordedEvent
from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections import durable
from mnemolog.projections.embeddings import EmbeddingCache, Vectors
from mnemolog.projections.ports import Encoder, Log, Progress
from mnemolog.projections.vectors import segment as segments
from mnemolog.projections.vectors.chain import Maker, load_chain
from mnemolog.projections.vectors.embedder import Embedder
from mnemolog.projections.vectors.grouping import Folded, fold, recipe
from mnemolog.projections.vectors.manifest import FORMAT_GROUPS, FORMAT_SINGLE_TURNS
from mnemolog.projections.vectors.open_groups import NOTHING_OPEN, OpenGroups
from mnemolog.projections.vectors.segment import Description, Segment

READ_BATCH: Final = 512
SEGMENTS_MAX: Final = 8
"""Written segments a generation may have before they are merged into one."""
TAIL_PARTS_MAX: Final = 16
"""Parts the tail in memory may have before they are merged into one."""


class Coverage(NamedTuple):
    """What an extension of the vectors did."""

    upto: Position
    turns: int
    """Turns that are covered now and were not before."""
    encoded: int
    """Texts the model was called for; the others came from the cache."""


class Snapshot(NamedTuple):
    """What searches see: never changed, only replaced as a whole. Every turn is in one group of it at most."""

    written: tuple[Segment, ...]
    """Closed groups on disk; each segment begins where the one before ends."""
    tail: tuple[Segment, ...]
    """Closed groups in memory, going on from there."""
    partials: Segment | None
    """Groups that are still open, as they were when they were embedded."""
    covers: Position

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Everything there is to search."""
        return (*self.written, *self.tail, *(() if self.partials is None else (self.partials,)))

    @property
    def written_to(self) -> Position:
        """The offset up to which closed groups are on disk."""
        return self.written[-1].upto if self.written else ORIGIN

    @property
    def closed_to(self) -> Position:
        """The offset up to which every closed group is here, and from which on the log is to be read."""
        return self.tail[-1].upto if self.tail else self.written_to


class Generation:
    """Vectors of `log` under `encoder`, one for every group of `every` turns.

    Readers search an immutable snapshot; one thread extends at a time.
    """

    def __init__(
        self, folder: Path, *, log: Log, encoder: Encoder, cache: EmbeddingCache, quarantine: Path, every: int
    ) -> None:
        self.folder = folder
        self._log, self._encoder, self._embedder = log, encoder, Embedder(encoder, cache)
        self._maker = Maker(
            encoder.fingerprint, recipe(every), FORMAT_SINGLE_TURNS if every == 1 else FORMAT_GROUPS, every
        )
        self._extending = threading.Lock()
        chain = load_chain(folder, log=log, maker=self._maker, quarantine=quarantine)
        self.snapshot = Snapshot(chain.segments, (), None, ORIGIN)
        self._open = NOTHING_OPEN
        self._show((), self._open.after(chain.opened))
        self._embed_open(encode_max=0)

    @property
    def covers(self) -> Position:
        """The offset up to which every turn has its vector here."""
        return self.snapshot.covers

    @property
    def unwritten(self) -> int:
        """How many offsets the tail in memory spans."""
        return self.snapshot.closed_to - self.snapshot.written_to

    def extend(self, *, upto: Position, encode_max: int | None = None, progress: Progress | None = None) -> Coverage:
        """Take in the log up to `upto`: texts from the cache where it knows them, else through the model.

        Stops early before a group that would be the `encode_max + 1`-th text to encode closes; groups still
        open come last. What is left out lowers `covers`. Raises `EncodingFailed`, naming the position; what
        came before is kept.
        """
        with self._extending:
            before, start, encoded = self.covers, self.snapshot.closed_to, 0
            for events in self._log.read(after=start, upto=upto, batch_max=READ_BATCH):
                calls, whole = self._take(events, encode_max=_left(encode_max, encoded))
                encoded += calls
                if progress is not None:
                    progress(self.snapshot.closed_to - start, upto - start)
                if not whole:
                    break
            encoded += self._embed_open(encode_max=_left(encode_max, encoded))
            return Coverage(self.covers, self._count_turns(after=before, upto=self.covers), encoded)

    def count_unknown(self, *, upto: Position) -> int:
        """Return how many distinct texts `extend` would call the model for."""
        folded, unknown = Folded(dict(self._open.groups), []), set[bytes]()
        for events in self._log.read(after=self.snapshot.closed_to, upto=upto, batch_max=READ_BATCH):
            folded = fold(folded.opened, events, every=self._maker.every)
            unknown |= self._embedder.unknown([closed.group for closed in folded.closed])
        return len(unknown | self._embedder.unknown(folded.opened.values()))

    def write(self) -> None:
        """Write the tail as a segment; merge all into one when they have become many. Open groups stay in memory."""
        with self._extending:
            snapshot = self.snapshot
            if not snapshot.tail:
                return
            parts, written = snapshot.tail, snapshot.written
            if len(written) >= SEGMENTS_MAX:
                parts, written = (*written, *parts), ()
            open_turns = np.asarray(self._open.turns(), dtype=np.int64)
            merged = segments.merge(parts)._replace(open_turns=open_turns)
            published = segments.publish(merged, self.folder, self._description(merged.upto))
            self.snapshot = snapshot._replace(written=(*written, published), tail=())
            for part in parts:
                if part.folder is not None:
                    durable.remove_folder(part.folder)

    def _take(self, events: Sequence[RecordedEvent], *, encode_max: int | None) -> tuple[int, bool]:
        """Embed the groups that `events` close. Return how many were encoded, and whether that was all."""
        folded = fold(self._open.groups, events, every=self._maker.every)
        embedded = self._embedder.embed([closed.group for closed in folded.closed], encode_max=encode_max)
        vectors, whole = embedded.leading(), True
        if len(vectors) < len(folded.closed):
            stop, whole = folded.closed[len(vectors)].at, False
            events = [event for event in events if event.position < stop]
            folded = fold(self._open.groups, events, every=self._maker.every)
        if events:
            self._advance(folded, vectors, upto=events[-1].position)
        return embedded.encoded, whole

    def _advance(self, folded: Folded, vectors: Sequence[Vectors], *, upto: Position) -> None:
        """Make the tail longer, in one step with what is open behind it. Searches under way see the old."""
        groups = [closed.group for closed in folded.closed]
        after, dimension = self.snapshot.closed_to, self._encoder.dimension
        part = segments.build(groups, vectors, after=after, upto=upto, dimension=dimension)
        tail = (*self.snapshot.tail, part)
        self._show(tail if len(tail) <= TAIL_PARTS_MAX else (segments.merge(tail),), self._open.after(folded.opened))

    def _embed_open(self, *, encode_max: int | None) -> int:
        """Embed groups that are open, as they are. Return how many texts were encoded."""
        encoded, pending = 0, self._open.pending()
        for start in range(0, len(pending), READ_BATCH):
            streams = pending[start : start + READ_BATCH]
            groups = [self._open.groups[stream] for stream in streams]
            embedded = self._embedder.embed(groups, encode_max=_left(encode_max, encoded))
            made = {s: vectors for s, vectors in zip(streams, embedded.vectors, strict=True) if vectors is not None}
            self._show(self.snapshot.tail, self._open.with_vectors(made))
            encoded += embedded.encoded
        return encoded

    def _show(self, tail: tuple[Segment, ...], opened: OpenGroups) -> None:
        """Replace the snapshot by one with this tail and these open groups."""
        self._open = opened
        snapshot = self.snapshot._replace(tail=tail)
        at = snapshot.closed_to
        partials = opened.segment(at=at, dimension=self._encoder.dimension) if opened.partials else None
        self.snapshot = snapshot._replace(partials=partials, covers=opened.covers(at))

    def _count_turns(self, *, after: Position, upto: Position) -> int:
        """Return how many turns of `(after, upto]` have their vector here."""
        later = [segment.members.turns for segment in self.snapshot.segments if segment.upto > after]
        return sum(int(np.count_nonzero((turns > after) & (turns <= upto))) for turns in later)

    def _description(self, upto: Position) -> Description:
        digest = self._log.digest_at(upto)
        if digest is None:
            raise errors.LogDamaged("the event that the vectors reach to is gone", position=upto)
        maker, log = self._maker, self._log
        return Description(log.log_id, maker.fingerprint, self._encoder.name, maker.recipe, digest.hex(), maker.format)


def _left(encode_max: int | None, encoded: int) -> int | None:
    return None if encode_max is None else encode_max - encoded
