"""Verify a log against its witnesses: manifests of segments, and heads kept elsewhere."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain import errors
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.head import Head, parse_head
from mnemolog.domain.position import Micros
from mnemolog.infra.log import head_file
from mnemolog.infra.log.event_log import EventLog
from mnemolog.projections.health.verify import Kind, Verification, Witness, quick_verify, verify
from mnemolog.projections.health.witnesses import witnesses_of
from mnemolog.projections.ports import Progress


def verify_store(
    folder: Path,
    log: EventLog,
    *,
    expect_head: str | None = None,
    heads: Path | None = None,
    contents: bool = False,
    progress: Progress | None,
) -> Verification:
    """Verify the log against all witnesses: the segments' manifests, and heads kept elsewhere."""
    witnesses = list(witnesses_of(folder, log))
    if expect_head is not None:
        witnesses.append(Witness("the expected head", parse_head("expect_head", expect_head)))
    if heads is not None:
        witnesses += [Witness(f"{heads.name} line {line}", head) for line, head in head_file.read_heads(heads)]
    return verify(log, witnesses=witnesses, contents=contents, progress=progress)


def append_head(log: EventLog, file: Path, *, now: Micros) -> Head:
    """Append the head of the log to a file of heads, unless the last head in it contradicts the log."""

    def head_after(last: tuple[int, Head] | None) -> Head:
        head = log.head()
        if last is not None:
            line, noted = last
            for finding in quick_verify(log, [Witness(f"{file}:{line}", noted)]):
                if finding.kind is Kind.WITNESS:
                    raise errors.LogDamaged(f"{finding.detail}; nothing was written", position=finding.position)
        noted_at = to_datetime(now).isoformat()
        return Head(position=head.position, digest=head.digest, log_id=log.log_id, noted_at=noted_at)

    return head_file.append_head(file, head_after)
