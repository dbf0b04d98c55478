"""Verify a log against its witnesses: manifests of segments, and heads kept elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from mnemolog.audit.log_export import ExportReader
from mnemolog.domain import errors
from mnemolog.domain.chain import Finding, Kind
from mnemolog.domain.clock import to_datetime
from mnemolog.domain.head import Head, parse_head
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.infra.log import head_file
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.text_file import TextSource
from mnemolog.projections.health.verify import (
    EventChecker,
    Findings,
    Verification,
    Witness,
    quick_verify,
    verification,
    verify,
)
from mnemolog.projections.health.witnesses import witnesses_of
from mnemolog.projections.ports import Progress


def verify_store(
    folder: Path,
    log: EventLog,
    *,
    expect_head: str | None = None,
    heads: Path | None = None,
    contents: bool = False,
    others: Iterable[Witness] = (),
    progress: Progress | None,
) -> Verification:
    """Verify the log against all witnesses: what this node has seen, heads kept elsewhere, and `others`."""
    seen = log.engine.seen_head()
    own = [] if seen is None else [Witness("this node", seen)]
    witnesses = [*own, *witnesses_of(folder, log), *_noted(expect_head, heads), *others]
    found = verify(log, witnesses=witnesses, contents=contents, progress=progress)
    return replace(found, moved_to=log.moved_to())


def verify_export(
    export: Path, *, expect_head: str | None = None, heads: Path | None = None, progress: Progress | None = None
) -> Verification:
    """Verify an exported log against its own digests, and against heads kept elsewhere. Needs no store and no keys.

    Raises `ImportRefused` for a file that is no export of a log or cannot be read.
    """
    witnesses, found = list(_noted(expect_head, heads)), Findings()
    with TextSource(export, progress=progress) as file:
        reader = ExportReader(file)
        chain, events = reader.chain, EventChecker(opaque=True, is_part=reader.header.after != ORIGIN)
        wanted = {item.head.position for item in witnesses}
        known = {Position(chain.position): chain.digest}
        try:
            for row in reader.rows():
                if row.position in wanted:
                    known[Position(row.position)] = row.digest
                if (flaw := events.check(row)) is not None:
                    found.add([flaw])
        except errors.ImportRefused as error:
            after = Position(chain.position + 1)
            found.add([Finding(kind=Kind.CHANGED, position=after, stream=None, detail=str(error))])
    contradicted = (
        finding
        for item in witnesses
        for finding in _contradicted(item, reader.header.log_id, known, last=chain.position)
    )
    return verification(chain, events, found, witnesses=contradicted, asked=len(witnesses))


def _noted(expect_head: str | None, heads: Path | None) -> Iterator[Witness]:
    """Yield the heads that were kept outside of the store."""
    if expect_head is not None:
        yield Witness("the expected head", parse_head("expect_head", expect_head))
    if heads is not None:
        for line, head in head_file.read_heads(heads):
            yield Witness(f"{heads.name} line {line}", head)


def _contradicted(witness: Witness, log_id: str, known: Mapping[Position, bytes], *, last: int) -> Iterator[Finding]:
    head = witness.head
    if head.log_id not in (None, log_id):
        why = f"{witness.name} is of log {head.log_id}, the export is of {log_id}"
    elif head.position not in known:
        why = f"{witness.name} has seen position {head.position}; it is not in the export, which ends at {last}"
    elif known[head.position] != head.digest_bytes:
        why = f"{witness.name} remembers {head.digest}; the export has {known[head.position].hex()}"
    else:
        return
    yield Finding(kind=Kind.WITNESS, position=head.position, stream=None, detail=why)


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
