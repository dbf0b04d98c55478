"""Dependencies between events of threads: what else must be forgotten with a checkpoint or a write.

A checkpoint depends on those before it in its line: on values that it keeps, on the bases of its own deltas, and on
the writes in between. Without one of them it would give a wrong state, or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from mnemolog.domain.events import Forgotten, RecordedEvent
from mnemolog.domain.threads import ThreadCheckpointed, ThreadCopied, ThreadWritten, thread_of

Name = tuple[str, str]
"""Of a checkpoint in its thread: namespace and id."""


def with_what_is_built_on(events: Iterable[RecordedEvent], named: Collection[int]) -> Iterator[RecordedEvent]:
    """Yield the events of threads to forget when those at the positions `named` are forgotten, these included.

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
