"""The part of the log that a session sees, as ranges of streams: its own turns and those of its ancestors.

Spans are ordered by position, root first, and do not overlap; only the last one can be open. Positions
count events of the whole log, so one position cuts the spans of all sessions.
"""

from __future__ import annotations

import msgspec

from mnemolog.domain.position import Position


class Span(msgspec.Struct, frozen=True, array_like=True):
    """The turns of `session` at positions in `(after, upto]`; `upto` None means up to the end."""

    session: str
    after: Position
    upto: Position | None = None

    def holds(self, session: str, position: Position) -> bool:
        """Whether a turn of `session` at `position` is in this span."""
        return session == self.session and self.after < position and (self.upto is None or position <= self.upto)


Spans = tuple[Span, ...]


def own(session: str, *, at: Position) -> Spans:
    """Return what a session without ancestors sees if the event at `at` started it."""
    return (Span(session, at),)


def cut(spans: Spans, *, upto: Position) -> Spans:
    """Return the spans up to `upto`. All of them are closed, none is empty."""
    return tuple(
        span if span.upto is not None and span.upto <= upto else Span(span.session, span.after, upto)
        for span in spans
        if span.after < upto
    )


def branched(spans: Spans, *, at: Position, session: str, started: Position) -> Spans:
    """Return what a branch sees: its parent's spans as they were at `at`, and its own turns after `started`."""
    return cut(spans, upto=at) + own(session, at=started)


def rewound(spans: Spans, *, to: Position, session: str, at: Position) -> Spans:
    """Return what a session sees once the event at `at` has hidden everything after `to`."""
    return cut(spans, upto=to) + own(session, at=at)


def without(spans: Spans, others: Spans) -> Spans:
    """Return the parts of `spans` that are in none of `others`. All of them must be closed."""
    left = spans
    for other in others:
        left = tuple(piece for span in left for piece in _cut_out(span, other))
    return left


def _cut_out(span: Span, other: Span) -> Spans:
    if span.session != other.session or span.upto is None or other.upto is None:
        return (span,)
    pieces = (
        Span(span.session, span.after, min(span.upto, other.after)),
        Span(span.session, max(span.after, other.upto), span.upto),
    )
    if other.after >= span.upto or other.upto <= span.after:
        return (span,)
    return tuple(piece for piece in pieces if piece.upto is not None and piece.after < piece.upto)
