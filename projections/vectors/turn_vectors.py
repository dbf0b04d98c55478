"""The vectors of turns: embed them, find those that are stored, rescue them from damaged segments, and forget them.

A turn is embedded from the cache or a segment if one has the text, by its hash, otherwise with the model. Damaged
segments go to quarantine. Their undamaged vectors are kept: only the others need the model. A segment with forgotten
turns is rewritten without their rows, and no model has to be loaded for that.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors, structured_log
from mnemolog.domain.display import Bytes
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.values import ORIGIN, Position
from mnemolog.infra.runtime import files
from mnemolog.projections.ports import Encoder, Log, Progress, tell
from mnemolog.projections.sql import embeddings
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import EmbeddingCache, Packed, content_hash, pack, width_of
from mnemolog.projections.vectors.checked_rows import SomeRows
from mnemolog.projections.vectors.folders import (
    VECTORS_FILE,
    WAIT_S,
    Damaged,
    IndexerLock,
    Manifest,
    SegmentState,
    generation_folders,
    prefix_of,
    range_of,
    read_manifest,
    segment_folders,
    state_of,
    why_size_invalid,
)
from mnemolog.projections.vectors.rendering import RECIPE, RenderedTurn, rendered_turns
from mnemolog.projections.vectors.segment import (
    CONTENT_BYTES,
    HASH,
    TEMPORARY,
    Description,
    Hashes,
    Positions,
    Segment,
    TextHashes,
    hashes_of,
    load,
    places_in,
    publish,
)

READ_BATCH: Final = 1_000


def find_vectors(segments: Iterable[Segment], contents: Iterable[bytes]) -> dict[bytes, Packed]:
    """Return the packed vectors of those of these content hashes that a segment has, one row for each chunk.

    Damaged rows count as missing.
    """
    found: dict[bytes, Packed] = {}
    missing = list(dict.fromkeys(contents))
    for segment in segments:
        if not missing:
            break
        found |= vectors_at(segment, segment.text_hashes.numbers_of(missing))
        missing = [content for content in missing if content not in found]
    return found


def vectors_at(segment: Segment, numbers: Mapping[bytes, int]) -> dict[bytes, Packed]:
    """Return the packed vectors of these turns, given by number, without those that are damaged."""
    if not numbers:
        return {}
    starts = segment.row_starts
    in_order = sorted(numbers.items(), key=lambda item: item[1])
    spans = [(content, int(starts[number]), int(starts[number + 1])) for content, number in in_order]
    try:
        rows = segment.exact.packed(np.concatenate([np.arange(start, end) for _, start, end in spans]))
        ends = np.cumsum([end - start for _, start, end in spans])
        return dict(zip([content for content, *_ in spans], np.split(rows, ends[:-1]), strict=True))
    except Damaged:
        found: dict[bytes, Packed] = {}
        for content, start, end in spans:  # One block of rows is damaged; the others are as they were written.
            with suppress(Damaged):
                found[content] = segment.exact.packed(np.arange(start, end))
        return found


def text_hashes_of(segment: Segment, log: Log) -> TextHashes:
    """Return the hashes of a segment's texts: from the log if their file is damaged."""
    with suppress(Damaged):
        return segment.read_text_hashes()
    made = np.zeros(len(segment.turns), dtype=HASH)
    for numbers, hashes in hashes_in_log(log, segment):
        made[numbers] = hashes_of(hashes)
    return TextHashes.of(made)


def hashes_in_log(log: Log, segment: Segment) -> Iterator[tuple[Positions, list[bytes]]]:
    """Yield numbers of turns of a segment, with the whole content hashes of the texts that the log has for them."""
    for events in log.read(after=segment.after, upto=segment.upto, batch_max=READ_BATCH):
        turns = rendered_turns(events)
        positions = np.asarray([turn.position for turn in turns], dtype=np.int64)
        held = np.isin(positions, segment.turns)
        if held.any():
            hashes = [content_hash(turn.text) for turn, is_held in zip(turns, held.tolist(), strict=True) if is_held]
            yield np.searchsorted(segment.turns, positions[held]), hashes


def sweep(
    database: ProjectionDatabase,
    log: Log,
    *,
    upto: Position,
    covered: Mapping[str, Position] | None = None,
    progress: Progress | None = None,
) -> int:
    """Delete the cached vectors of texts that no turn up to `upto` has (mark and sweep). Return how many.

    `covered` has the position up to which segments have the vectors of each model, by the prefix of its fingerprint:
    only later turns need the cache.
    Those of a forgotten text cannot be found by its hash, because the text is gone. This also clears a cache that was
    restored from an older copy. Call it after raising the forgetting epoch: then no writer stores a text that it has
    read before (`EmbeddingCache.store`), and those that have begun to are waited for. Raises `ProjectionUnreadable`.
    """
    found = bytearray()
    models = embeddings.models(database)
    after = min(((covered or {}).get(prefix_of(model), ORIGIN) for model in models), default=upto)
    for events in log.read(after=after, upto=upto, batch_max=READ_BATCH) if after < upto else ():
        for turn in rendered_turns(events):
            found += content_hash(turn.text)[:CONTENT_BYTES]
        tell(progress, events[-1].position, upto)
    alive: Hashes = np.frombuffer(found, dtype=HASH)
    alive.sort()

    def doomed(contents: Sequence[bytes]) -> list[bytes]:
        if not len(alive):
            return list(contents)
        _, held = places_in(alive, hashes_of(contents))
        return [content for content, is_held in zip(contents, held.tolist(), strict=True) if not is_held]

    return embeddings.delete(database, doomed)


class Embedded(NamedTuple):
    """The outcome of embedding a list of turns."""

    vectors: list[Packed | None]
    """For each turn, one packed row for each chunk; None for turns after the limit of model calls.

    No rows if the model refused the text.
    """
    encoded: int
    """Texts that the model encoded."""
    refused: dict[int, str]
    """Why the model refused the text, by index in the list of turns."""
    hashes: list[bytes]
    """The content hash of each turn."""

    def leading(self) -> list[Packed]:
        """Return the vectors of the turns before the first one without."""
        return [made for made in takewhile(lambda made: made is not None, self.vectors) if made is not None]


class Embedder:
    """The one way from a turn to its vectors.

    `segments` returns those that may have the vectors of a text. With `skip_bad` a text that the model refuses is
    skipped.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: EmbeddingCache,
        *,
        segments: Callable[[], Iterable[Segment]],
        skip_bad: bool = False,
    ) -> None:
        self._encoder = encoder
        self._cache = cache
        self._segments = segments
        self._skip_bad = skip_bad

    def embed(self, turns: Sequence[RenderedTurn], *, encode_max: int | None, read_in: int = 0) -> Embedded:
        """Embed turns from what is stored, and with the model up to `encode_max` distinct texts that are not.

        `read_in` is the forgetting epoch in which the texts were read. If the epoch has changed, nothing is cached.

        Raises `EncodingFailed` with the turn that the model refuses; nothing is cached.
        """
        hashes = [content_hash(turn.text) for turn in turns]
        known = self._known(hashes)
        missing: dict[bytes, RenderedTurn] = {}
        for turn, content in zip(turns, hashes, strict=True):
            if content not in known and (encode_max is None or len(missing) < encode_max):
                missing.setdefault(content, turn)
        fresh, refused = self._encode(missing)
        self._cache.store(fresh, read_in=read_in)
        nothing = np.empty((0, width_of(self._encoder.dimension)), dtype=np.uint8) if refused else None
        known |= fresh | {content: nothing for content in refused if nothing is not None}
        why = {number: refused[content] for number, content in enumerate(hashes) if content in refused}
        return Embedded([known.get(content) for content in hashes], len(missing), why, hashes)

    def unknown(self, turns: Iterable[RenderedTurn]) -> set[bytes]:
        """Return the content hashes of the texts that would need the model."""
        hashes = {content_hash(turn.text) for turn in turns}
        return hashes - self._known(hashes).keys()

    def _known(self, hashes: Iterable[bytes]) -> dict[bytes, Packed]:
        """Return the vectors that are stored for these content hashes."""
        found = self._cache.look_up(hashes)
        return found | find_vectors(self._segments(), [content for content in hashes if content not in found])

    def _encode(self, missing: Mapping[bytes, RenderedTurn]) -> tuple[dict[bytes, Packed], dict[bytes, str]]:
        """Return vectors, and reasons for missing ones, by content hash."""
        if not missing:
            return {}, {}
        chunks = self._encoder.chunks([turn.text for turn in missing.values()])
        try:
            vectors = self._encoder.encode([piece for pieces in chunks for piece in pieces])
        except errors.EncodingFailed:
            return self._one_by_one(missing, chunks)
        ends = np.cumsum([len(pieces) for pieces in chunks])
        return dict(zip(missing, np.split(pack(vectors), ends[:-1]), strict=True)), {}

    def _one_by_one(
        self, missing: Mapping[bytes, RenderedTurn], chunks: list[list[str]]
    ) -> tuple[dict[bytes, Packed], dict[bytes, str]]:
        """Embed one text at a time after a batch failed: to name the bad one, or to skip it."""
        made: dict[bytes, Packed] = {}
        refused: dict[bytes, str] = {}
        for (content, turn), pieces in zip(missing.items(), chunks, strict=True):
            try:
                made[content] = pack(self._encoder.encode(pieces))
            except errors.EncodingFailed as culprit:
                if not self._skip_bad:
                    raise errors.EncodingFailed(f"{TurnRecorded.topic}: {culprit}", position=turn.position) from culprit
                refused[content] = str(culprit)
        if refused:
            self._encoder.encode(["hello"])  # A model that refuses everything is broken; the text is not the cause.
        return made, refused


def why_bytes_invalid(folder: Path, manifest: Manifest, *, progress: Progress | None = None) -> str | None:
    """Return why a segment is damaged; None if every byte is as it was written.

    Opens the segment as a recall does, then checks the exact vectors block by block. `progress` counts
    bytes. Raises `ProjectionUnreadable` if memory runs out, which says nothing about the segment.
    """
    if (found := why_size_invalid(folder, manifest)) is not None:
        return found
    total = Bytes(sum(tag.size_bytes for tag in manifest.files.values()))
    try:
        segment = load(folder, manifest)
        segment.read_text_hashes()
        done = total - manifest.files[VECTORS_FILE].size_bytes
        tell(progress, done, total)
        for piece in segment.exact.pieces():
            done += piece.nbytes
            tell(progress, done, total)
    except errors.ProjectionUnreadable as error:
        return error.cause if error.path == folder else f"{error.path.name}: {error.cause}"
    except MemoryError as error:
        raise errors.ProjectionUnreadable(folder, "there is too little memory to read it") from error
    return None


def salvage(folder: Path, log: Log, database: ProjectionDatabase) -> None:
    """Store the undamaged vectors of a segment in the embedding cache, by the texts that the log has for its turns.

    Does nothing for a segment of another log. If the log cannot be read or the cache cannot be written, or what says
    where its vectors are is damaged, the rest is for the model.
    """
    epoch = log.epoch()
    try:
        manifest = read_manifest(folder)
        if manifest.recipe != RECIPE or state_of(manifest, log=log, fingerprint=None) is not SegmentState.USABLE:
            return
        segment = load(folder, manifest, with_index=False)
        cache = EmbeddingCache(
            database, fingerprint=manifest.fingerprint, dimension=manifest.dimension, epoch=log.epoch
        )
        for numbers, hashes in hashes_in_log(log, segment):
            cache.store(vectors_at(segment, dict(zip(hashes, numbers.tolist(), strict=True))), read_in=epoch)
    except errors.MnemologError as error:
        structured_log.warning("vectors.not_salvaged", segment=str(folder), error=error)


BUILDING: Final = ".building-*"


def purge(
    root: Path,
    log: Log,
    forgotten: Sequence[Position],
    *,
    salvage: Callable[[Path], None],
) -> None:
    """Remove the turns at these positions from every segment of this log below `root`.

    `salvage` keeps the undamaged vectors of a segment elsewhere before it is deleted. Segments past the head of this
    log, or of another history, are deleted: it is unknown whose vectors they hold.
    Raises `IndexerBusy` if another process writes vectors for too long, `ProjectionUnreadable`, and `StorageFull`.
    Segments purged before the error stay purged.
    """
    gone = np.asarray(sorted(forgotten), dtype=np.int64)
    for model in sorted({generation.prefix for generation in generation_folders(root)}):
        with IndexerLock(root, model).held(wait_s=WAIT_S), files.mapped_to_projection_errors(root):
            # Listed under the lock: a rebuild that held it may have copied the vectors to a new generation.
            for generation in generation_folders(root, model):
                for folder in segment_folders(generation.path):
                    _purge(folder, log, gone, salvage)
                for place in (generation.path, root):
                    for left in files.leftovers(place, TEMPORARY):
                        shutil.rmtree(left, ignore_errors=True)
                        if left.exists():
                            raise errors.ProjectionUnreadable(left, "it cannot be deleted")
    with files.mapped_to_projection_errors(root):
        for folder in root.glob(BUILDING):
            # Not a generation yet, but left by an interrupted rebuild. A running rebuild would hold the lock.
            with IndexerLock(root, folder.name.removeprefix(BUILDING[:-1])).held(wait_s=WAIT_S):
                files.remove(folder)


def _purge(folder: Path, log: Log, gone: Positions, salvage: Callable[[Path], None]) -> None:
    """Rewrite a segment without these turns, or delete it if that is not possible."""
    try:
        manifest = read_manifest(folder)
    except Damaged:
        if (span := range_of(folder)) is not None and _any_within(gone, *span):
            _remove(folder)
        return
    state = state_of(manifest, log=log, fingerprint=None)
    if state is SegmentState.OTHER_LOG:
        return
    if state is SegmentState.USABLE:
        if not _any_within(gone, manifest.after, manifest.upto):
            return
        try:
            segment = load(folder, manifest)
            skipped = tuple(item for item in segment.skipped if not _any_within(gone, item.position - 1, item.position))
            held = np.isin(segment.turns, gone)
            if not held.any() and len(skipped) == len(segment.skipped):
                return
            left = replace(_without(segment, held, text_hashes_of(segment, log)), skipped=skipped)
            description = Description(
                manifest.log_id,
                manifest.fingerprint,
                manifest.model,
                manifest.recipe,
                manifest.dimension,
                manifest.digest_at_upto,
            )
            publish([left], folder.parent, description)
        except Damaged:
            salvage(folder)
    _remove(folder)


def _without(segment: Segment, held: np.typing.NDArray[np.bool_], hashes: TextHashes) -> Segment:
    """Return a segment without the turns marked in `held`. Its rows stay on disk."""
    left = TextHashes.of(hashes.by_turn()[~held])
    kept = np.flatnonzero(~held[segment.rows])
    numbers = np.cumsum(~held) - 1
    return replace(
        segment,
        turns=segment.turns[~held],
        rows=numbers[segment.rows[kept]],
        exact=SomeRows(segment.exact, kept),
        coarse=None,
        read_text_hashes=lambda: left,
    )


def _remove(folder: Path) -> None:
    """Delete a segment: renamed first, so that no reader sees half of it."""
    doomed = folder.with_name(files.temporary_name("removed"))
    folder.rename(doomed)
    shutil.rmtree(doomed)


def _any_within(gone: Positions, after: int, upto: int) -> bool:
    return bool(np.searchsorted(gone, after, side="right") < np.searchsorted(gone, upto, side="right"))
