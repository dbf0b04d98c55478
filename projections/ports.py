"""The ports of projections; `infra` implements them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

from mnemolog.domain.events import Event, RecordedEvent
from mnemolog.domain.head import Head, RecordedTimes
from mnemolog.domain.session import Spans
from mnemolog.domain.stream_fold import Evolve, FoldedState, Known, State, nothing_known
from mnemolog.domain.values import Position
from mnemolog.infra.runtime.condition import Listener

if TYPE_CHECKING:  # What needs no vectors starts without numpy.
    import numpy as np
    from numpy.typing import NDArray


class Log(Protocol):
    """The truth, to be read in order."""

    @property
    def log_id(self) -> str:
        """The random identity this log was created with."""

    def epoch(self) -> int:
        """The forgetting epoch. What is read after it was sampled holds nothing that was forgotten up to there."""

    def head(self) -> Head:
        """The last committed position with its digest. Position 0 when the log is empty."""

    def digest_at(self, position: Position) -> bytes | None:
        """The stored digest of the event at exactly this position, or None where there is none."""

    def read(self, *, after: Position, upto: Position, batch_max: int = 500) -> Iterator[list[RecordedEvent]]:
        """Committed events of `(after, upto]` in order of position, in batches of 1 to `batch_max`."""

    def read_stream(self, stream: str, *, upto: Position) -> Iterator[list[RecordedEvent]]:
        """Committed events of one stream up to a position, in order, in batches."""


class SessionLog(Log, Protocol):
    """The truth, stream by stream."""

    def first_event(self, stream: str) -> RecordedEvent | None:
        """The event that a stream begins with, None if nothing was appended to it."""

    def fold(
        self,
        stream: str,
        evolve: Evolve[State],
        *,
        upto: Position | None = None,
        known: Known[State] = nothing_known,
    ) -> FoldedState[State]:
        """The state of a stream, now or as of a position; `known` may know a state to begin with.

        It is of the forgetting epoch that was when this began.
        """


class Followers(Protocol):
    """Those who are called after commits."""

    @property
    def poll_interval_s(self) -> float:
        """How often a listener has to look for commits of other processes, in seconds."""

    def listen(self, listener: Listener, *, poll_s_max: float) -> None:
        """Call `listener.set()` after every commit of this process.

        Where the log watches for those of other processes, it is called after them as well, at most `poll_s_max`
        seconds later.
        """

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""


class StoreLog(SessionLog, Protocol):
    """The log of an open store."""

    @property
    def busy_timeout_s(self) -> float:
        """How long to wait for a lock of the store, in seconds."""

    def require_whole(self) -> None:
        """Raise `HistoryLost` if it has lost events, also for who reports on that."""

    @property
    def followers(self) -> Followers:
        """Those who are called after commits."""

    def count(self, *, topic: str, after: Position, upto: Position) -> int:
        """The number of events of a topic in `(after, upto]`."""


class TimedLog(StoreLog, RecordedTimes, Protocol):
    """The log of an open store, in which times and streams can be looked up."""

    def streams_with(self, topic: str, *, after: Position, upto: Position) -> list[str]:
        """The stream of every event of a topic in `(after, upto]`, in order."""


class SpansAt(Protocol):
    """Returns what a session sees at a position, with `hidden` also what it has hidden.

    Raises `UnknownSession`, `OutsideSession`.
    """

    def __call__(self, session_id: str, position: int, *, hidden: bool = False) -> Spans:
        """See the class."""


class ShownEvents(Protocol):
    """Yields the events of `(after, upto]` that may be shown, in batches, each with the position it was read up to."""

    def __call__(
        self, *, after: Position, upto: Position, batch_max: int
    ) -> Iterator[tuple[Position, list[RecordedEvent]]]:
        """See the class."""


Append = Callable[[str, Event], Position]
"""Appends an event to a stream and returns its position."""


class Timed(Protocol):
    """Measures the time of a block, under a name and with facts about it."""

    def __call__(self, name: str, **facts: str) -> AbstractContextManager[object]:
        """See the class."""


def untimed(name: str, **facts: str) -> AbstractContextManager[object]:
    """Measure nothing."""
    return _NOTHING


_NOTHING: Final = nullcontext()


class AuditableLog(Log, Protocol):
    """The truth, down to its stored bytes."""

    @property
    def genesis(self) -> bytes:
        """digest(0)."""

    def stored_rows(self, *, after: Position, upto: Position, batch_max: int) -> Iterator[list[tuple[Any, ...]]]:
        """Stored bytes of `(after, upto]` in order, as the columns of `LogRow`.

        Text columns come as bytes, because what was damaged from outside need not be text any more.
        """

    def decode(self, position: int, stream: str, version: int, topic: str, state: bytes) -> Event:
        """The event that was stored there, `Forgotten` where its content is.

        Raises `UndecodableEvent`, `LogDamaged` for what does not open with its key, `KeysMissing`.
        """

    @property
    def is_read_only(self) -> bool:
        """Whether nothing in its folder may be written."""

    def accepted(self) -> set[str]:
        """The heads that it has lost and whose loss was accepted, as `POSITION:DIGEST`."""

    def ends(self) -> tuple[tuple[Position, Position], Position]:
        """The highest position ever given, even if its row is gone, before and after; and the last position."""

    def missing_triggers(self) -> list[str]:
        """Append-only triggers that the file should have and has not."""

    def contradictions(self) -> list[str]:
        """What is wrong with the file beside what its rows say: its layout, its pages, its indexes."""


class Progress(Protocol):
    """Receives the progress of a long operation. Called in the thread that works."""

    def __call__(self, done: int, total: int) -> None:
        """`done` of `total` are finished: events, unless the operation says what else; bytes if `total` is `Bytes`."""


def tell(progress: Progress | None, done: int, total: int) -> None:
    """Report progress, if anybody asked for it."""
    if progress is not None:
        progress(done, total)


class Encoder(Protocol):
    """An embedding model under its own identity.

    `fingerprint` differs whenever any input could be given another vector: it is an identity of content,
    not of a name or a dimension.
    """

    @property
    def name(self) -> str:
        """What the user called the model."""

    @property
    def fingerprint(self) -> str:
        """64 hexadecimal digits."""

    @property
    def dimension(self) -> int:
        """Components of a vector."""

    @property
    def loaded(self) -> bool:
        """Whether a text is embedded at once, without waiting for the model to be loaded first."""

    def load(self) -> None:
        """Load what embeds, if it is not loaded. Raises `ModelUnavailable` when it cannot be."""

    def chunks(self, texts: Sequence[str]) -> list[list[str]]:
        """Cut each text into pieces that the model reads whole; one piece where the text fits."""

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed pieces that fit the model.

        Returns shape (len(texts), dimension), float32, every row of length 1, in the order given.
        Raises `ModelUnavailable` when the model cannot be loaded, `EncodingFailed` for anything that is
        not a finite vector of the right shape.
        """


class MakeEncoder(Protocol):
    """Makes the encoder of a model."""

    def __call__(self, model: Any, *, recipe: str, download: bool) -> Encoder:
        """Return the encoder for a model name, a model folder, or an object with `encode` and `fingerprint`.

        `recipe` says how turns become the texts that are embedded; it is part of the fingerprint. Without
        `download` a name is looked up on this machine only.
        """


class Reranker(Protocol):
    """A model that scores how well texts answer a query."""

    @property
    def name(self) -> str:
        """What it is called in receipts."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a number for each text, higher is better. The same for the same query and texts."""
