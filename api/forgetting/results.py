"""What forgetting answers with."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from mnemolog.domain import errors
from mnemolog.domain.decoding import UNDECODABLE
from mnemolog.domain.events import ForgetTarget
from mnemolog.domain.position import Position


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, or with `dry_run` would be."""

    request: str | None
    """Its id. None where nothing was requested: a dry run, or nothing of it was left."""
    position: Position | None
    """Where the request stands in the log."""
    dry_run: bool
    sessions: tuple[str, ...]
    """Sessions that are forgotten as a whole; their structure stays."""
    events: int
    """Events that had content."""
    counts: dict[str, int]
    """By topic."""
    along: int = 0
    """How many of the events nobody named: checkpoints of threads, and what was written behind them, that are built on
    what was named, and would tell nothing without it."""
    pending: str | None = None
    """What is not done yet, and why. It is gone on with whenever the store is opened, and by the next `forget`."""

    @property
    def complete(self) -> bool:
        """Whether no file of the store holds any of it any more."""
        return self.pending is None


class ForgottenEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event whose content was forgotten: where it stood, what it was, when and why."""

    position: Position
    stream: str
    topic: str
    request: str
    requested_at: datetime
    reason: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """A request to forget, as it can be handed to a store that was restored from before it."""

    request: str
    requested_at: datetime
    reason: str
    targets: tuple[ForgetTarget, ...]


class ReapplyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of erasures that were handed to a restored store."""

    erasures: int
    requested: int
    """Those that its log did not know of."""
    pending: str | None = None
    """What is not done yet, and why."""


class ForgettingStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far requests to forget have been carried out."""

    requests: int
    events: int
    """Events that lost their content."""
    pending: tuple[str, ...]
    """Requests that are not done yet."""


def read_erasures(file: Path) -> list[Erasure]:
    """Return the erasures of a file of JSON. Raises `InvalidInput` for one that holds none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[Erasure])
    except (OSError, *UNDECODABLE) as error:
        raise errors.InvalidInput("erasures", f"{file} does not hold erasures: {error}; nothing was changed") from error
