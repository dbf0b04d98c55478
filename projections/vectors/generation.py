"""A generation: all vectors of one log under one model, in segments on disk and a newer tail in memory.

The segments in use are the longest chain from position 0 that matches the log, the model and the recipe.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.runtime import files, fork_guard
from mnemolog.projections.ports import Encoder, Log, Progress, tell
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.sql.embeddings import EmbeddingCache, Packed
from mnemolog.projections.sql.filtering import PositionMask
from mnemolog.projections.vectors import segment as segments
from mnemolog.projections.vectors.folders import (
    Damaged,
    Manifest,
    SegmentState,
    Skipped,
    covered_by,
    log_range_of,
    next_of_chain,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
)
from mnemolog.projections.vectors.rendering import RECIPE, RenderedTurn, rendered_turns
from mnemolog.projections.vectors.segment import TEMPORARY, Description, Segment, load, publish
from mnemolog.projections.vectors.turn_vectors import Embedded, Embedder, salvage, text_hashes_of

LISTINGS_MAX: Final = 100
"""How often a folder is listed again because a segment was merged away while it was read."""


Chain = tuple[tuple[Segment, ...], tuple[Segment, ...]]
"""The usable segments of a generation: those of which each begins where the one before ends, and those that follow a
gap, whose vectors are found by look-ups by text."""
SetAside = Callable[[Path, str], None]
"""Moves a damaged segment to quarantine, with the reason."""


class _Vanished(Exception):
    """A segment was merged away while it was read."""


def load_chain(
    folder: Path, *, log: Log, fingerprint: str, set_aside: SetAside, known: Mapping[Path, Segment] | None = None
) -> Chain:
    """Read the matching segments in `folder`.

    Segments in `known` (by folder) are not read again. Damaged ones are quarantined if the log covers them; others
    that do not match are ignored and stay. Raises `ProjectionUnreadable` if a file cannot be read just now.
    """
    for _ in range(LISTINGS_MAX):
        try:
            return _chain(_usable(folder, log, fingerprint, set_aside), log, known or {}, set_aside)
        except _Vanished:
            continue
    raise errors.ProjectionUnreadable(folder, "its segments change more quickly than they can be read")


def _usable(folder: Path, log: Log, fingerprint: str, set_aside: SetAside) -> list[tuple[Manifest, Path]]:
    """Return the segments whose manifests match."""
    found: list[tuple[Manifest, Path]] = []
    for part in segment_folders(folder):
        try:
            manifest = read_manifest(part)
            if range_of(part) != (manifest.after, manifest.upto):
                raise Damaged(part, "its name and its manifest have different positions")
            if manifest.recipe != RECIPE:
                raise Damaged(part, f"it was made by another recipe, {manifest.recipe!r}")
            if state_of(manifest, log=log, fingerprint=fingerprint) is SegmentState.USABLE:
                found.append((manifest, part))
        except Damaged as error:
            _quarantine(part, error.cause, log, set_aside)
    return found


def _chain(found: list[tuple[Manifest, Path]], log: Log, known: Mapping[Path, Segment], set_aside: SetAside) -> Chain:
    def read(manifest: Manifest, part: Path) -> Segment | None:
        try:
            return known[part] if part in known else load(part, manifest)
        except Damaged as error:
            _quarantine(part, error.cause, log, set_aside)
            return None
        except MemoryError as error:  # The files are fine.
            raise errors.ProjectionUnreadable(part, "there is too little memory to read it") from error

    used: list[Segment] = []
    reached = ORIGIN
    while (following := next_of_chain(found, reached)) is not None:
        if (segment := read(*following)) is None:
            found.remove(following)
        else:
            used.append(segment)
            reached = following[0].upto
    beyond = [read(manifest, part) for manifest, part in found if manifest.upto > reached]
    return tuple(used), tuple(segment for segment in beyond if segment is not None)


def _quarantine(folder: Path, why: str, log: Log, set_aside: SetAside) -> None:
    """Quarantine a damaged segment, if the log has the events it was built from."""
    if not folder.exists():
        raise _Vanished
    offsets = range_of(folder)
    if offsets is not None and covered_by(log, offsets):
        set_aside(folder, why)


READ_BATCH: Final = 512
STEP_TEXTS: Final = 128
"""Texts per model step, while other threads wait to extend."""
EVENTS_TOGETHER_MAX: Final = 20_000
"""Events per step while a caller waits, if their texts are cached."""
SHARE_MAX: Final = 1 / 3
"""Maximum fraction of all rows that one merge rewrites."""
ROWS_FREE: Final = 1_024
"""Rows that a merge may always rewrite, however small the total."""
UNEVEN_MAX: Final = 2
"""Maximum ratio of the largest segment of a run to the others together. Beyond it, much is copied for little."""


class Step(NamedTuple):
    """What one step of an extension did."""

    encoded: int
    events: int
    goes_on: bool
    """Whether more work may remain."""


class Snapshot(NamedTuple):
    """An immutable view of a generation for searches. Each turn is in at most one of its segments."""

    written: tuple[Segment, ...]
    """Segments on disk; each begins where the one before ends."""
    tail: tuple[Segment, ...]
    """Segments in memory, continuing from there."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments."""
        return (*self.written, *self.tail)

    @property
    def written_to(self) -> Position:
        """The end of the last segment on disk."""
        return self.written[-1].upto if self.written else ORIGIN

    @property
    def covers(self) -> Position:
        """The position up to which every turn has its vector, or is known to have none."""
        return self.tail[-1].upto if self.tail else self.written_to

    def allowed_as_of(self, upto: Position | None, allowed: PositionMask | None) -> PositionMask | None:
        """Return the positions in `allowed` (None for all turns) up to `upto`; None if that is all turns."""
        if upto is None or self.covers <= upto:
            return allowed
        return PositionMask(np.ones(upto + 1, dtype=np.bool_)) if allowed is None else allowed.upto(upto)


NOTHING = Snapshot((), ())


class Generation:
    """Vectors of `log` under one model.

    Readers search an immutable snapshot. Any number of threads may extend: they take turns, step by step. Only one
    process at a time may write (`IndexerLock`); `refresh` loads what other processes have written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        log: Log,
        encoder: Encoder,
        embedder: Embedder,
        cache: EmbeddingCache,
        quarantine: Path,
    ) -> None:
        self.folder = folder
        self._log = log
        self._encoder = encoder
        self._embedder = embedder
        self._cache, self._quarantine = cache, quarantine
        self._extending = fork_guard.lock()
        self._writing = False
        self._listed: list[Path] | None = None
        self._work = self.snapshot = NOTHING
        self._beyond: tuple[Segment, ...] = ()
        """Usable segments that follow a gap."""
        self._epoch = log.epoch()
        """The forgetting epoch in which the tail was read."""
        with self._extending:
            self._take_in_written()
            self.snapshot = self._work

    @property
    def covers(self) -> Position:
        """The position up to which every turn has its vector here."""
        return self.snapshot.covers

    @property
    def is_untidy(self) -> bool:
        """Whether there are vectors to write, or files left by an interrupted writer."""
        unused = len(segment_folders(self.folder)) != len(self.snapshot.written)
        return bool(self.snapshot.tail) or unused or bool(files.leftovers(self.folder, TEMPORARY))

    @property
    def stored(self) -> tuple[Segment, ...]:
        """The segments on disk that may have the vectors of a text."""
        return (*self._work.written, *self._beyond)

    def refresh(self, *, wait_s: float = -1) -> None:
        """Load what other processes have written. Does nothing if another thread extends for `wait_s` seconds.

        Vectors of the tail after that come from the cache. Raises `ProjectionUnreadable`.
        """
        changed = segment_folders(self.folder) != self._listed or self._epoch != self._log.epoch()
        if changed and self._extending.acquire(timeout=wait_s):
            try:
                self._refresh()
            finally:
                self._extending.release()

    def extend(
        self,
        *,
        upto: Position,
        encode_max: int | None = None,
        events_max: int | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Embed the turns of the log up to `upto`, from what is stored or else with the model.

        Return how many texts the model encoded. Stops early before the turn that would be the `encode_max + 1`-th text
        to encode, or after `events_max` events: `covers` then ends there. Raises `EncodingFailed` with the position;
        vectors of earlier turns are kept.
        """
        start = self._work.covers
        encoded = 0
        events = 0
        while True:
            left = None if encode_max is None else encode_max - encoded
            with self._extending:
                if self._epoch != self._log.epoch():
                    self._refresh()
                step = self._step(upto, encode_max=left)
            encoded, events = encoded + step.encoded, events + step.events
            tell(progress, self._work.covers - start, upto - start)
            if not step.goes_on or (events_max is not None and events >= events_max):
                break
        with self._extending:
            self.snapshot = self._work
        return encoded

    def count_unknown(self, *, upto: Position) -> int:
        """Return how many distinct texts `extend` would encode with the model."""
        unknown = set[bytes]()
        for events in self._log.read(after=self._work.covers, upto=upto, batch_max=READ_BATCH):
            unknown |= self._embedder.unknown(rendered_turns(events))
        return len(unknown)

    def write(self, *, merge: bool = True, index: bool = True, new_since: Position | None = None) -> None:
        """Write the tail as a segment, then merge segments if there are many.

        `index=False` writes no index, for callers that merge everything in the end. `new_since` is for callers that
        have embedded much at once: a merge may rewrite as many rows as were added after that position.

        The caller holds the indexer lock. Raises `StorageFull`, `ProjectionUnreadable`: existing segments stay, and
        unwritten vectors stay in memory.
        """
        with self._alone_writing() as tail:
            if tail:
                self._publish(tail, index=index)
            written = self._work.written
            new = sum(part.exact.count for part in written if new_since is not None and part.after >= new_since)
            if merge and (run := run_to_merge([part.exact.count for part in written], rows_free=new)):
                self._publish(written[run])

    def settle(self) -> None:
        """Delete from the cache what segments have now. The caller holds the indexer lock."""

        def held(hashes: Sequence[bytes]) -> Collection[bytes]:
            return {found for part in self.snapshot.written for found in part.text_hashes.numbers_of(hashes)}

        # Nothing but space is lost: the next writer tries again, and who needs the cache finds its damage.
        with suppress(errors.ProjectionUnreadable, errors.StorageFull):
            self._cache.delete_held(held)

    def take_over(self, parts: Sequence[Segment]) -> None:
        """Begin with these vectors, which are adjacent and from position 0 on. `write` copies them."""
        self._work = self.snapshot = Snapshot((), tuple(replace(part, coarse=None, folder=None) for part in parts))

    def write_as_one(self) -> None:
        """Write everything as one segment. Locks and errors as for `write`."""
        with self._alone_writing() as tail:
            parts = (*self._work.written, *tail)
            if tail or len(parts) > 1:
                self._publish(parts)

    def quarantine(self, segment: Path, *, why: str) -> None:
        """Move a damaged segment to quarantine and continue without it."""
        with self._extending:
            if segment.exists():
                self._set_aside(segment, why)
            if segment_folders(self.folder) != self._listed:
                self._refresh()

    def _set_aside(self, segment: Path, why: str) -> None:
        salvage(segment, self._log, self._cache.database)
        Quarantine(self._quarantine).add(segment, reason=why, built_from=log_range_of(segment))

    @contextmanager
    def _alone_writing(self) -> Iterator[tuple[Segment, ...]]:
        """Yield the tail to write, and block other threads from changing it meanwhile."""
        with self._extending:
            self._refresh()
            tail = self._work.tail
            self._writing = True
        try:
            with files.mapped_to_projection_errors(self.folder):
                # An interrupted writer may have left an incomplete segment, or segments that it had merged.
                files.remove_leftovers(self.folder, TEMPORARY)
                used = {part.folder for part in self._work.written}
                for folder in segment_folders(self.folder):
                    if folder not in used and self._is_merged_away(folder):
                        files.remove_folder(folder)
                yield tail
        finally:
            self._writing = False

    def _is_merged_away(self, folder: Path) -> bool:
        """Whether a valid segment lies entirely within one that is in use."""
        try:
            manifest = read_manifest(folder)
        except errors.ProjectionUnreadable:
            return False
        within = any(part.after <= manifest.after and manifest.upto <= part.upto for part in self._work.written)
        return within and state_of(manifest, log=self._log, fingerprint=None) is SegmentState.USABLE

    def _publish(self, parts: Sequence[Segment], *, index: bool = True) -> None:
        """Write adjacent parts as one segment, replace them by it for readers, and delete their files."""
        digest = self._log.digest_at(parts[-1].upto)
        if digest is None:
            raise errors.LogDamaged("the event that the vectors reach to is gone", position=parts[-1].upto)
        model = self._encoder
        description = Description(
            self._log.log_id, model.fingerprint, model.name, RECIPE, model.dimension, digest.hex()
        )
        made = publish([self._with_text_hashes(part) for part in parts], self.folder, description, index=index)
        gone = {part.folder for part in parts if part.folder is not None}
        with self._extending:
            written = [part for part in self._work.written if part.folder not in gone]
            written = sorted([*written, made], key=lambda part: part.after)
            tail = tuple(part for part in self._work.tail if part.upto > made.upto)
            self._work = self._work._replace(written=tuple(written), tail=tail)
            self.snapshot = self._work
        for folder in gone:
            files.remove_folder(folder)
        self._listed = segment_folders(self.folder)

    def _with_text_hashes(self, part: Segment) -> Segment:
        """Return a segment whose text hashes are readable."""
        hashes = text_hashes_of(part, self._log)
        return replace(part, read_text_hashes=lambda: hashes)

    def _refresh(self) -> None:
        epoch = self._log.epoch()
        forgot = epoch != self._epoch
        if self._writing or (not forgot and segment_folders(self.folder) == self._listed):
            return
        before = self._work.covers
        self._epoch = epoch
        self._take_in_written(keep_tail=not forgot)
        read = 0
        while self._work.covers < before and read < EVENTS_TOGETHER_MAX:
            step = self._step(before, encode_max=0)
            read += step.events
            if not step.goes_on:
                break
        self.snapshot = self._work

    def _take_in_written(self, *, keep_tail: bool = True) -> None:
        """Read new segments. With `keep_tail`, the tail is kept if it still begins where they end."""
        with files.mapped_to_projection_errors(self.folder):
            listed = segment_folders(self.folder)
            known = {part.folder: part for part in (*self._work.written, *self._beyond) if part.folder is not None}
            chain, self._beyond = load_chain(
                self.folder,
                log=self._log,
                fingerprint=self._encoder.fingerprint,
                set_aside=self._set_aside,
                known=known,
            )
        self._listed = listed
        stays = keep_tail and (chain[-1].upto if chain else ORIGIN) == self._work.written_to
        self._work = Snapshot(chain, self._work.tail if stays else ())

    def _step(self, upto: Position, *, encode_max: int | None) -> Step:
        """Embed the next events up to `upto`, with at most `STEP_TEXTS` texts for the model."""
        events = next(iter(self._log.read(after=self._work.covers, upto=upto, batch_max=READ_BATCH)), None)
        if events is None:
            return Step(0, 0, False)
        texts_max = STEP_TEXTS if encode_max is None else min(encode_max, STEP_TEXTS)
        turns = rendered_turns(events)
        embedded = self._embedder.embed(turns, encode_max=texts_max, read_in=self._epoch)
        vectors, whole = embedded.leading(), True
        if len(vectors) < len(turns):
            stop, whole = turns[len(vectors)].position, False
            events = [event for event in events if event.position < stop]
        if events:
            self._advance(turns[: len(vectors)], vectors, embedded, upto=events[-1].position)
        return Step(embedded.encoded, len(events), whole or encode_max is None or embedded.encoded < encode_max)

    def _advance(
        self,
        turns: Sequence[RenderedTurn],
        vectors: Sequence[Packed],
        embedded: Embedded,
        *,
        upto: Position,
    ) -> None:
        """Append these turns to the tail. Searches use it once it covers at least what they see now."""
        refused, hashes = embedded.refused, embedded.hashes
        part = segments.build(
            [turn.position for n, turn in enumerate(turns) if n not in refused],
            [made for n, made in enumerate(vectors) if n not in refused],
            after=self._work.covers,
            upto=upto,
            dimension=self._encoder.dimension,
            skipped=[
                Skipped(position=turn.position, topic=TurnRecorded.topic, why=refused[n])
                for n, turn in enumerate(turns)
                if n in refused
            ],
            hashes=[hashes[n] for n in range(len(turns)) if n not in refused],
        )
        tail = (*self._work.tail, part)
        if not self._writing:
            tail = _fewer(tail)
        self._work = self._work._replace(tail=tail)
        if self._work.covers >= self.snapshot.covers:
            self.snapshot = self._work


def _fewer(tail: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return the tail with its last parts merged, back to a part that is much larger than all later ones together.

    So a row is copied about as often as the tail doubles in size, and a search reads only a few parts.
    """
    first, rows = len(tail) - 1, tail[-1].exact.count
    while first and tail[first - 1].exact.count <= UNEVEN_MAX * rows:
        first -= 1
        rows += tail[first].exact.count
    return (*tail[:first], segments.merge(tail[first:]))


def run_to_merge(sizes: Sequence[int], *, rows_free: int = ROWS_FREE) -> slice | None:
    """Return the adjacent segments to merge, given the rows of each; None if no merge is needed.

    Keeps segments few while each merge rewrites a bounded number of rows: log-structured merging (O'Neil and others,
    "The log-structured merge-tree", 1996). docs/adr/0012-segments-and-their-index.md has the figures.
    Picks the longest run within the bounds, and of several the one with the fewest rows. `rows_free` rows may always be
    rewritten, whatever their share: rewriting as many rows as are new costs only a part of embedding them.
    """
    rows_max = max(rows_free, ROWS_FREE, int(sum(sizes) * SHARE_MAX))
    best: slice | None = None
    best_rank = (0, 0)
    for start in range(len(sizes)):
        rows = largest = 0
        for end in range(start + 1, len(sizes) + 1):
            rows, largest = rows + sizes[end - 1], max(largest, sizes[end - 1])
            if rows > rows_max:
                break
            rank = (end - start, -rows)
            if end - start > 1 and largest <= UNEVEN_MAX * (rows - largest) and rank > best_rank:
                best, best_rank = slice(start, end), rank
    return best
