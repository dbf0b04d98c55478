"""Exports: write a log as JSON Lines, verifiable without mnemolog; read one; import it as a new store.

The store has the same bytes, digests and identity. Invalid lines are refused with their number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Final

from mnemolog.domain import errors
from mnemolog.domain.chain import Chain, LogRow, genesis
from mnemolog.domain.export import (
    FORMAT,
    VERSION,
    ExportedEvent,
    ExportHeader,
    ExportLine,
    ExportTrailer,
    decoded,
    digest_from_hex,
    encoded,
    exported,
    imported,
)
from mnemolog.domain.head import Head
from mnemolog.domain.result import Result
from mnemolog.domain.values import ORIGIN, Micros, Position
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE, SqliteKeys
from mnemolog.infra.log.engine import LogIdentity
from mnemolog.infra.log.event_log import EventLog, append_rows
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import file_to_write, local_path, publish_folder, temporary_folder
from mnemolog.infra.text_file import TextSource
from mnemolog.operations.backup_files import restore_keys
from mnemolog.operations.copies import opened_copy, verify_copy
from mnemolog.projections.history.verify import EventChecker
from mnemolog.projections.ports import Progress, tell


class LogExport(Result, frozen=True, kw_only=True):
    """The result of an export."""

    log_id: str
    after: Position
    """The export holds the events after this position."""
    events: int
    head: Head
    """The last exported position, and the digest to check the export with."""
    bytes: int


class LogImport(Result, frozen=True, kw_only=True):
    """The result of importing an exported log."""

    log_id: str
    events: int
    needs_keys: bool
    """Whether its content is encrypted and `keys.db` is missing: put the log's own beside `log.db`."""
    head: Head


BATCH_MAX: Final = 1_000


def export_log(
    log: EventLog,
    target: Path | BinaryIO,
    *,
    after: Position,
    upto: Position,
    replace: bool = False,
    progress: Progress | None = None,
) -> LogExport:
    """Write the events of `(after, upto]` to a new file, renamed when it is complete, or to an open one.

    Every digest is checked: an event that fails is not exported. Raises `LogDamaged`, `InvalidInput`,
    `StoreNotWritable`, `StorageFull`; then no file is left.
    """
    written, end = 0, None
    with file_to_write(target, replace=replace) as file:
        for line in export_lines(log, after=after, upto=upto, progress=progress):
            written += file.write(encoded(line))
            end = line
    assert isinstance(end, ExportTrailer), "an export has an end"
    head = Head(position=Position(end.position), digest=end.digest)
    return LogExport(log_id=log.log_id, after=after, events=end.events, head=head, bytes=written)


def export_lines(
    log: EventLog, *, after: Position, upto: Position, progress: Progress | None = None
) -> Iterator[ExportLine]:
    """Yield the lines of an export of the events of `(after, upto]`, the trailer last. Raises `LogDamaged`."""
    began = log.digest_at(after)
    if began is None:
        raise errors.LogDamaged("the event that was here is gone", position=after)
    identity = log.identity
    yield ExportHeader(
        format=FORMAT,
        version=VERSION,
        log_id=identity.log_id,
        log_format=identity.log_format,
        created_at=identity.created_at,
        after=after,
        digest=began.hex(),
    )
    chain = Chain(began, position=after)
    for page in log.stored_rows(after=after, upto=upto, batch_max=BATCH_MAX):
        for row in chain.checked(page, outcome="nothing was exported"):
            try:
                yield exported(row)
            except UnicodeDecodeError as error:
                raise errors.LogDamaged(
                    "its text columns are not valid UTF-8; nothing was exported", position=row.position
                ) from error
        tell(progress, chain.position - after, upto - after)
    if chain.position != upto:
        raise errors.LogDamaged("events from here on are gone; nothing was exported", position=chain.position + 1)
    yield ExportTrailer(events=chain.rows, position=chain.position, digest=chain.digest.hex())


def is_log_export(path: Path) -> bool:
    """Whether a file is the export of a log, not of a conversation. Raises `ImportRefused` if it cannot be read."""
    with TextSource(path) as source:
        first = next((line for line in source.head if line.strip()), b"")
    try:
        return isinstance(decoded(first), ExportHeader)
    except errors.InvalidInput:
        return False


class ExportReader:
    """The rows of an export. Every line is checked before it is yielded, and at last that the export is whole."""

    def __init__(self, source: TextSource) -> None:
        self._path, self._lines = source.path, source.lines()
        self._number = 1
        self.header = self._read_header()
        try:
            self.chain = Chain(digest_from_hex(self.header.digest), position=self.header.after)
        except errors.InvalidInput as error:
            raise self.refused(str(error)) from error

    def rows(self) -> Iterator[LogRow]:
        """Yield every row. Raises `ImportRefused`, naming the first invalid line."""
        for line in self._decoded():
            if isinstance(line, ExportTrailer):
                self._check_end(line)
                return
            if not isinstance(line, ExportedEvent):
                raise self.refused("a second header")
            try:
                row = imported(line)
            except errors.InvalidInput as error:
                raise self.refused(str(error)) from error
            for finding in self.chain.follow(row):
                raise self.refused(finding.detail)
            yield row
        raise self.refused("the export ends here without its last line: it is incomplete")

    def refused(self, why: str) -> errors.ImportRefused:
        """Return the error for the line that was read last."""
        hint = "name an export, as it was written, or the folder of a store"
        return errors.ImportRefused(self._path, self._number, why).saying(hint=hint)

    def _decoded(self) -> Iterator[ExportLine]:
        for number, text in self._lines:
            self._number = number
            try:
                yield decoded(text)
            except errors.InvalidInput as error:
                raise self.refused(str(error)) from error

    def _read_header(self) -> ExportHeader:
        line = next(self._decoded(), None)
        if not isinstance(line, ExportHeader) or line.format != FORMAT:
            raise self.refused("not an export of a log: its first line is not a header")
        if line.version > VERSION:
            raise self.refused(f"export format {line.version}; this mnemolog reads {VERSION}")
        if line.after < 0 or (line.after == 0 and _genesis(line) != line.digest):
            raise self.refused("its description of the log does not match its digest")
        return line

    def _check_end(self, line: ExportTrailer) -> None:
        chain = self.chain
        if line != ExportTrailer(events=chain.rows, position=chain.position, digest=chain.digest.hex()):
            raise self.refused("the last line does not match the events before it")
        for number, _ in self._lines:
            self._number = number
            raise self.refused("there is more text after the last line")


def _genesis(header: ExportHeader) -> str | None:
    try:
        return genesis(log_id=header.log_id, log_format=header.log_format, created_at=header.created_at).hex()
    except struct.error:
        return None


def import_log(
    export: str | Path,
    folder: str | Path,
    *,
    keys: str | Path | None = None,
    progress: Progress | None = None,
) -> LogImport:
    """Create a store from an exported log: afterwards it is complete, or there is none.

    - `export`: the file of the export
    - `folder`: the new folder of the store
    - `keys`: a folder with the keys of its content, from which they are copied: that of `MemoryStore.backup(keys=)`, or
      of a store that has them
    - `progress`: called now and then with what is done and what there is to do

    The new log has the columns, digests and identity of the exported one; its projections are built when first
    needed. An export holds encrypted content as it is stored. With `keys`, all of it is opened first.

    Raises `ImportRefused` for an invalid line (naming it), and for an event that `verify` would report (naming its line
    and position; what is encrypted is not looked into); `InvalidInput` for keys that do not open the content and for a
    folder that is not empty; `StoreNotWritable`, `FormatTooNew`.
    """
    source, target = local_path("export", export), local_path("folder", folder)
    keys = None if keys is None else local_path("keys", keys)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise errors.InvalidInput("folder", f"{target} is not empty; an exported log is imported into a new folder")
    final = target.absolute()
    with TextSource(source, progress=progress) as file:
        reader = ExportReader(file)
        header = reader.header
        if header.after != ORIGIN:
            why = f"it begins after position {header.after}; a new store needs an export from the first event"
            raise reader.refused(why)
        identity = LogIdentity(header.log_id, header.log_format, Micros(header.created_at))
        with temporary_folder(f"{final.name}.import", target) as temporary:
            # Durability is needed only once the folder has its final name: closing the log syncs everything at once.
            log = open_log(
                temporary, clock=SystemClock(), create=True, synchronous="NORMAL", identity=identity, notes=False
            )
            with closing(log):
                appended, head = _append(log, reader), log.head()
            if keys is not None:
                _put_keys(keys, temporary, identity)
            publish_folder(temporary, final)
    return LogImport(
        log_id=header.log_id,
        events=appended,
        needs_keys=identity.is_sealed and keys is None,
        head=head,
    )


def _put_keys(keys: Path, folder: Path, identity: LogIdentity) -> None:
    """Copy the keys of a log beside it, once they have opened all content. Raises `InvalidInput`."""
    if not identity.is_sealed:
        raise errors.InvalidInput("keys", "this log is not encrypted: it has no keys")
    placed, outcome = folder / KEYS_FILE, f"no {KEYS_FILE} was copied"
    try:
        restore_keys(keys, placed, log_id=identity.log_id)
        opening = SqliteKeys(placed, log_id=identity.log_id)
        with opened_copy(folder, what="the log", outcome=outcome, keys=opening) as log:
            verify_copy(log, what="the log", outcome=outcome, contents=True)
    except errors.BackupUnusable as error:
        raise errors.InvalidInput("keys", f"{keys}: {error.why}") from error
    except errors.LogDamaged as error:
        raise errors.InvalidInput("keys", f"{keys}: {error}") from error


def _append(log: EventLog, reader: ExportReader) -> int:
    """Append the rows of an export. Raises `ImportRefused` for the first event that `verify` would report."""
    events = EventChecker(opaque=True)

    def rows_after(position: Position, digest: bytes) -> Iterator[LogRow]:
        for row in Chain(digest, position=position).checked(reader.rows(), outcome="it was not imported"):
            if (flaw := events.check(row)) is not None:
                raise reader.refused(f"the event at position {row.position} is invalid: {flaw.detail}")
            yield row

    try:
        return append_rows(log, rows_after)
    except errors.LogDamaged as error:
        raise reader.refused(f"it is no log: {error}") from error
