"""Forgotten content as ranges of stream versions, what is forgotten with it, and the stream of forget requests."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from mnemolog.domain.events import CheckpointCreated, Event, Forgotten, RecordedEvent, TurnRecorded
from mnemolog.domain.threads import ThreadCheckpointed, ThreadCopied, ThreadWritten, thread_of
from mnemolog.domain.values import Position

FORGETTING_STREAM: Final = "forgetting"
"""The stream of requests. Its version is the forgetting epoch: what was read in an earlier one may be forgotten."""

NOTHING_OUTSIDE: Final = (
    "A caller that is bound to scopes forgets and distrusts nothing outside of them: "
    "facts and receipts of other scopes stay, whatever they rest on or showed."
)
"""Stands in reports and certificates of such callers whether there is anything outside or not."""


def ranges_of(versions: Iterable[int]) -> list[tuple[int, int]]:
    """Return versions as the fewest ranges, ascending."""
    ranges: list[tuple[int, int]] = []
    for version in sorted(set(versions)):
        if ranges and ranges[-1][1] == version - 1:
            ranges[-1] = ranges[-1][0], version
        else:
            ranges.append((version, version))
    return ranges


class Positions:
    """A set of positions up to a head, one bit each: a session may have any number of events."""

    def __init__(self, head: Position) -> None:
        self._bits = bytearray((head >> 3) + 1)

    def add(self, position: int) -> None:
        """Add a position that is not past the head."""
        self._bits[position >> 3] |= 1 << (position & 7)

    def __contains__(self, position: int) -> bool:
        return position >> 3 < len(self._bits) and bool(self._bits[position >> 3] & 1 << (position & 7))

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield them as the fewest ranges, both ends included, ascending."""
        first: int | None = None
        for at, bits in enumerate(self._bits + b"\0"):
            if bits != (0 if first is None else 255):  # Eight positions at a time, where nothing changes.
                for position in range(at * 8, at * 8 + 8):
                    if position in self:
                        first = position if first is None else first
                    elif first is not None:
                        yield first, position - 1
                        first = None


def was_turn(event: Event) -> bool:
    """Whether this stands for a forgotten turn."""
    return isinstance(event, Forgotten) and event.was == TurnRecorded.topic


def is_checkpoint(event: Event) -> bool:
    """Whether this created a checkpoint, forgotten or not."""
    return isinstance(event, CheckpointCreated) or was_checkpoint(event)


def was_checkpoint(event: Event) -> bool:
    """Whether this stands for a created checkpoint whose name is forgotten."""
    return isinstance(event, Forgotten) and event.was == CheckpointCreated.topic


Name = tuple[str, str]
"""Of a checkpoint in its thread: namespace and id."""


def with_what_is_built_on(events: Iterable[RecordedEvent], named: Collection[int]) -> Iterator[RecordedEvent]:
    """Yield the events of threads to forget when those at the positions `named` are forgotten, these included.

    A checkpoint depends on those before it in its line: on values that it keeps, on the bases of its own deltas, and on
    the writes in between. Without one of them it would give a wrong state, or none.

    `events` are those of the threads and of their copies, in order. Events that are forgotten already are not yielded,
    but those that depend on them are.
    """
    gone: set[int] = set()
    lost: defaultdict[str, set[Name]] = defaultdict(set)
    """By thread, the checkpoints to forget."""
    cut: defaultdict[str, set[Name]] = defaultdict(set)
    """By thread, the checkpoints whose dependents are forgotten too: they or some of their writes are forgotten."""
    for recorded in events:
        thread = thread_of(recorded.stream) or ""
        match recorded.event:
            case ThreadCheckpointed() as made:
                name = made.ns, made.id
                bases = (value.base for value in made.values if value.base is not None)
                depends_on = {*made.kept.values(), *bases}
                goes = (
                    recorded.position in named
                    or (made.ns, made.parent) in cut[thread]
                    or not gone.isdisjoint(depends_on)
                )
                for names in (lost[thread], cut[thread]):
                    names.discard(name)  # It replaces an earlier one with its id.
                    names.update({name} if goes else ())
            case ThreadWritten() as written:
                name = written.ns, written.checkpoint
                goes = recorded.position in named or name in lost[thread]
                cut[thread].update({name} if goes else ())
            case ThreadCopied(source=source):
                lost[thread] |= lost[source]
                cut[thread] |= cut[source]
                continue
            case Forgotten():
                gone.add(recorded.position)
                continue
            case _:
                continue
        if goes:
            gone.add(recorded.position)
            yield recorded


def copied_from(streams: Collection[str], copies: Iterable[tuple[str, str]]) -> set[str]:
    """Return streams of threads with those that hold copies of them, or copies of copies: `copies` are (of, in)."""
    found, pairs = set(streams), list(copies)
    while more := {inside for of, inside in pairs if of in found} - found:
        found |= more
    return found
