"""Import an exported log as a new store with the same bytes, digests and identity."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from mnemolog.audit.log_export import ExportReader
from mnemolog.audit.results import LogImport
from mnemolog.domain import errors
from mnemolog.domain.chain import Chain
from mnemolog.domain.digest import LogRow
from mnemolog.domain.position import ORIGIN, Micros, Position
from mnemolog.infra.keys.keys_file import KEYS_FILE
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.copying import append_rows
from mnemolog.infra.log.engine import LogIdentity
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.atomic_files import publish_folder, temporary_folder
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.paths import local_path
from mnemolog.infra.text_file import TextSource
from mnemolog.operations.backup_keys import restore_keys
from mnemolog.operations.copied_log import opened_copy, verify_copy
from mnemolog.projections.health.verify import EventChecker
from mnemolog.projections.ports import Progress


def import_log(
    export: str | Path,
    folder: str | Path,
    *,
    keys: str | Path | None = None,
    progress: Progress | None = None,
) -> LogImport:
    """Create a store in the new folder `folder` from an exported log: afterwards it is complete, or there is none.

    The new log has the columns, digests and identity of the exported one; its projections are built when first
    needed.

    An export holds encrypted content as it is stored. `keys` is a folder with its keys, from which they are copied:
    that of `MemoryStore.backup(keys=)`, or of a store that has them. All content is opened with them first.

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
            log = open_log(temporary, clock=SystemClock(), create=True, synchronous="NORMAL", identity=identity)
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
