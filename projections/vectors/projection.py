"""The vector leg: picks the generation to use, keeps it in step with the log, answers and rebuilds."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from mnemolog.domain import errors
from mnemolog.domain.position import Position
from mnemolog.projections import durable
from mnemolog.projections.embeddings import EmbeddingCache, Vectors
from mnemolog.projections.ports import Encoder, Log, Progress
from mnemolog.projections.recall import VectorAnswer
from mnemolog.projections.vectors.generation import Coverage, Generation
from mnemolog.projections.vectors.search import nearest

TAIL_ENCODED_MAX: Final = 64
"""Texts a recall embeds by itself before it answers; what is beyond them is found by text until then."""
TAIL_WRITTEN_AT: Final = 2_048
"""Offsets the tail in memory may span before it is written as a segment."""

_SERIAL: Final = re.compile(r"[0-9a-f]{16}-(\d{4,})")


class Rebuilt(NamedTuple):
    """What a rebuild of vectors made."""

    generation: str
    coverage: Coverage


class VectorProjection:
    """Vectors of one log under one model, one for every group of `every` turns.

    Other models' generations are left alone, and so are those of other groups: `every` must be part of the
    recipe that is in the encoder's fingerprint (`mnemolog.projections.vectors.grouping.recipe`).
    """

    def __init__(
        self, root: Path, *, log: Log, encoder: Encoder, cache: EmbeddingCache, quarantine: Path, every: int = 1
    ) -> None:
        self._root, self._log, self._encoder, self._cache = root, log, encoder, cache
        self._quarantine, self._every = quarantine, every
        self._rebuilding = threading.Lock()
        self._generation = self._open(self._current_folder())

    @property
    def covers(self) -> Position:
        """The offset up to which every turn has its vector."""
        return self._generation.covers

    def catch_up(self, *, upto: Position, encode_max: int | None = None, progress: Progress | None = None) -> Coverage:
        """Embed turns up to `upto`, at most `encode_max` texts through the model, and write large tails."""
        generation = self._generation
        coverage = Coverage(generation.covers, 0, 0)
        if generation.covers < upto:
            coverage = generation.extend(upto=upto, encode_max=encode_max, progress=progress)
        if encode_max is None or generation.unwritten > TAIL_WRITTEN_AT:
            generation.write()
        return coverage

    def answer(self, query: str, *, k: int, allowed: list[Position] | None, upto: Position) -> VectorAnswer:
        """Embed a few texts of what is new up to `upto`, and return up to `k` turns, best first.

        Raises `ModelUnavailable`, or `EncodingFailed` for the query. A turn that cannot be embedded leaves the
        answer of those before it.
        """
        lag = None
        try:
            self.catch_up(upto=upto, encode_max=TAIL_ENCODED_MAX)
        except errors.EncodingFailed as error:
            lag = str(error)
        covers = self.covers
        return VectorAnswer(self.search(query, k=k, allowed=allowed), covers, lag)

    def search(self, query: str, *, k: int, allowed: list[Position] | None) -> list[tuple[Position, float]]:
        """Return up to `k` positions with cosine similarity, best first, of the turns that are embedded.

        A turn has the similarity of the group it was embedded with. With `allowed`, only these are returned.
        Raises `ModelUnavailable` or `EncodingFailed`.
        """
        found_in = self._generation.snapshot.segments
        permitted = None if allowed is None else np.asarray(allowed, dtype=np.int64)
        return nearest(found_in, self._embed(query), k=k, allowed=permitted)

    def rebuild(self, *, upto: Position, progress: Progress | None = None) -> Rebuilt:
        """Build a new generation from the log beside the current one, which answers until it is done."""
        with self._rebuilding:
            temporary = self._root / durable.temporary_name("building")
            fresh = self._open(temporary)
            coverage = fresh.extend(upto=upto, progress=progress)
            temporary.mkdir(parents=True, exist_ok=True)
            fresh.write()
            replaced = [folder for _, folder in self._folders()]
            final = self._next_folder()
            durable.publish_folder(temporary, final)
            self._generation = self._open(final)
            for folder in replaced:
                durable.remove_folder(folder)
            return Rebuilt(final.name, coverage)

    def missing(self, *, upto: Position) -> int:
        """Return how many texts up to `upto` would need the model if everything were built anew."""
        probe = self._open(self._root / durable.temporary_name("probe"))
        return probe.count_unknown(upto=upto)

    def _embed(self, query: str) -> Vectors:
        """Return the query as one vector of shape (1, dimension): the mean of its chunks, length 1."""
        vectors = self._encoder.encode(self._encoder.chunks([query])[0])
        mean = vectors.mean(axis=0, keepdims=True)
        length = float(np.linalg.norm(mean))
        if not np.isfinite(length) or length == 0.0:
            raise errors.EncodingFailed("the model gives no direction for this query")
        return np.ascontiguousarray(mean / length, dtype=np.float32)

    def _open(self, folder: Path) -> Generation:
        return Generation(
            folder,
            log=self._log,
            encoder=self._encoder,
            cache=self._cache,
            quarantine=self._quarantine,
            every=self._every,
        )

    def _folders(self) -> list[tuple[int, Path]]:
        prefix = self._encoder.fingerprint[:16]
        found = [(_SERIAL.fullmatch(folder.name), folder) for folder in self._root.glob(f"{prefix}-*")]
        return sorted((int(match[1]), folder) for match, folder in found if match)

    def _current_folder(self) -> Path:
        folders = self._folders()
        return folders[-1][1] if folders else self._name(1)

    def _next_folder(self) -> Path:
        folders = self._folders()
        return self._name(folders[-1][0] + 1 if folders else 1)

    def _name(self, serial: int) -> Path:
        return self._root / f"{self._encoder.fingerprint[:16]}-{serial:04d}"
