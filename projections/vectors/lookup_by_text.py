"""Find the vectors of texts, by the hashes of the texts: in segments, and those in the cache that no turn has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import numpy as np

from mnemolog.domain.position import ORIGIN, Position
from mnemolog.projections.ports import Log, Progress, tell
from mnemolog.projections.sql import embeddings
from mnemolog.projections.sql.database import ProjectionDatabase
from mnemolog.projections.sql.embeddings import content_hash
from mnemolog.projections.sql.packed_vectors import Packed
from mnemolog.projections.vectors.manifest import Damaged, prefix_of
from mnemolog.projections.vectors.rendering import rendered_turns
from mnemolog.projections.vectors.segment import Positions, Segment
from mnemolog.projections.vectors.text_hashes import CONTENT_BYTES, HASH, Hashes, TextHashes, hashes_of, places_in

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
