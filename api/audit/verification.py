"""Verifying a log against everything that remembers its history: manifests of segments, heads kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.head import Head, parse_head
from mnemolog.domain.position import Micros, Position
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.infra.log import head_file
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.health.verify import Kind, Verification, Witness, quick_verify, verify
from mnemolog.projections.ports import Progress
from mnemolog.projections.quarantine import Quarantine
from mnemolog.projections.vectors.folders import generation_folders
from mnemolog.projections.vectors.manifest import log_range_of, segment_folders


def verify_store(
    folder: Path,
    log: EventLog,
    *,
    expect_head: str | None = None,
    heads: Path | None = None,
    contents: bool = False,
    progress: Progress | None,
) -> Verification:
    """Verify the log against every witness there is: the segments' manifests, and heads noted elsewhere."""
    witnesses = list(witnesses_of(folder, log))
    if expect_head is not None:
        witnesses.append(Witness("the expected head", parse_head("expect_head", expect_head)))
    if heads is not None:
        witnesses += [Witness(f"{heads.name} line {line}", head) for line, head in head_file.read_heads(heads)]
    return verify(log, witnesses=witnesses, contents=contents, progress=progress)


def append_head(log: EventLog, file: Path, *, now: Micros) -> Head:
    """Append the head of the log to a file of heads, unless its last one contradicts the log."""

    def head_after(last: tuple[int, Head] | None) -> Head:
        head = log.head()
        if last is not None:
            line, noted = last
            for finding in quick_verify(log, [Witness(f"{file}:{line}", noted)]):
                if finding.kind is Kind.WITNESS:
                    raise errors.LogDamaged(f"{finding.detail}; nothing was noted", position=finding.position)
        noted_at = to_datetime(now).isoformat()
        return Head(position=head.position, digest=head.digest, log_id=log.log_id, noted_at=noted_at)

    return head_file.append_head(file, head_after)


def witnesses_of(folder: Path, log: EventLog) -> Iterator[Witness]:
    """Yield what remembers the history of this log: the manifests of segments, those in quarantine included.

    A segment in quarantine is as good a witness as before, and one that is ahead of the log is the only witness of a
    tail that was lost. Purging the quarantine deletes these witnesses. A damaged manifest is no witness.
    """
    layout = StoreLayout(folder)
    found: list[tuple[str, str, Position, str]] = []
    for generation in generation_folders(layout.vectors):
        for part in segment_folders(generation.path):
            if (tag := log_range_of(part)) is not None:
                found.append((f"segment {part.parent.name}/{part.name}", tag.log_id, tag.upto, tag.digest))
    quarantine = Quarantine(layout.quarantine)
    for item in quarantine.items():
        if item.upto is not None:
            found.append((f"quarantined {item.name}", item.log_id, item.upto, item.digest))
    for path in quarantine.paths():
        for part in (path, *sorted(path.glob("[0-9]*-[0-9]*"))):  # A segment, or a generation with its segments.
            if (tag := log_range_of(part)) is not None:
                found.append((f"quarantined {path.name}", tag.log_id, tag.upto, tag.digest))
    for name, log_id, upto, digest in dict.fromkeys(found):
        with suppress(ValueError):
            if log_id == log.log_id:
                bytes.fromhex(digest)
                yield Witness(name, Head(position=upto, digest=digest))
