"""The groups that are open at an offset, and the vectors made for them so far. Immutable; in memory only.

An open group is embedded as it is, so that its turns are found at once. When it grows it is embedded again;
until then the vector of its first turns stays, and the turns behind them have none. When it closes, its
vector goes into a segment and the one here is dropped in the same step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from mnemolog.domain.position import Position
from mnemolog.projections.sql.embeddings import Vectors
from mnemolog.projections.vectors.grouping import Group
from mnemolog.projections.vectors.segment import Segment, build


class Partial(NamedTuple):
    """An open group as it was when it was embedded, with vectors of shape (chunks, dimension).

    Of no chunks where the model refused its text and somebody said to go on.
    """

    group: Group
    vectors: Vectors


class OpenGroups(NamedTuple):
    """Open groups by the stream of their session, and for all or some of them what is embedded."""

    groups: Mapping[str, Group]
    partials: Mapping[str, Partial]

    def after(self, groups: Mapping[str, Group]) -> OpenGroups:
        """Return these open groups when the log has gone on and left `groups` open."""
        kept = {
            stream: partial
            for stream, partial in self.partials.items()
            if (now := groups.get(stream)) is not None and now.turns[:1] == partial.group.turns[:1]
        }
        return OpenGroups(groups, kept)

    def with_vectors(self, made: Mapping[str, Vectors]) -> OpenGroups:
        """Return these open groups with vectors for those of the given streams as they are now."""
        fresh = {stream: Partial(self.groups[stream], vectors) for stream, vectors in made.items()}
        return self._replace(partials={**self.partials, **fresh})

    def pending(self) -> list[str]:
        """Return the streams of groups with a turn that no vector stands for; the earliest such turn first."""
        missing = {stream: turn for stream in self.groups if (turn := self._first_missing(stream)) is not None}
        return sorted(missing, key=missing.__getitem__)

    def covers(self, upto: Position) -> Position:
        """Return the offset, `upto` at most, up to which every turn of these groups has its vector."""
        missing = [turn for stream in self.groups if (turn := self._first_missing(stream)) is not None]
        return Position(min(missing) - 1) if missing else upto

    def turns(self) -> list[Position]:
        """Return the turns of all open groups, forgotten ones included, rising."""
        return sorted(turn for group in self.groups.values() for turn in (*group.turns, *group.forgotten))

    def segment(self, *, at: Position, dimension: int) -> Segment:
        """Return what is embedded as a segment in memory, in the order of ids."""
        embedded = (partial for partial in self.partials.values() if len(partial.vectors))
        partials = sorted(embedded, key=lambda partial: partial.group.id)
        groups, vectors = [partial.group for partial in partials], [partial.vectors for partial in partials]
        return build(groups, vectors, after=at, upto=at, dimension=dimension)

    def _first_missing(self, stream: str) -> Position | None:
        turns, partial = self.groups[stream].turns, self.partials.get(stream)
        embedded = 0 if partial is None else len(partial.group.turns)
        return turns[embedded] if embedded < len(turns) else None


NOTHING_OPEN = OpenGroups({}, {})
