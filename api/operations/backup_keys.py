"""The copy of a store's content keys, in a folder of its own. Only the newest copy is kept.

An older copy would still have keys that were destroyed since to forget content. Older backups do not need it,
because keys are only added or destroyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from mnemolog.domain import errors
from mnemolog.infra.keys import keys_file
from mnemolog.infra.keys.keyring import CheckedKeys, KeyErasure, KeysEngine, check
from mnemolog.infra.keys.sqlite_keys import SqliteKeys
from mnemolog.infra.log.open import keys_of
from mnemolog.infra.log.postgres.address import read_address
from mnemolog.infra.runtime.files import make_folder, mapped_to_store_errors, replace_file, sync, temporary_name
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_manifest import FORMAT, KEYS_NOTE_FILE, KeysNote
from mnemolog.projections.maintenance.context import abandoned_in
from mnemolog.projections.sql import checked_json

_COPIES: Final = "keys-*.db"


class KeysCopy(NamedTuple):
    """A copy of the keys of a store, in the folder for it."""

    path: Path
    source: KeysEngine
    last_erasure: list[KeyErasure]
    """The last request to forget when the copy was begun, if there was any. The copy has no keys that it destroyed."""

    def caught_up(self) -> KeysCopy:
        """Return this copy, or if the store has forgotten something since, a newer one in its place."""
        copy = self
        while copy.is_overtaken():
            with copied_keys(self.source.another(), self.path.parent) as newer:
                copy = publish_keys(newer)
        return copy

    def is_overtaken(self) -> bool:
        """Whether the store has forgotten something since."""
        with closing(self.source.another()) as now:
            return now.requests(last=True) != self.last_erasure


def require_keys_folder(folder: Path, log_id: str) -> None:
    """Raise `BackupRefused` unless the folder is new, empty, or has the keys of this log."""
    with mapped_to_store_errors(folder):
        if not (folder / KEYS_NOTE_FILE).exists():
            manifests.require_free(folder)
        elif manifests.read_keys_note(folder).log_id != log_id:
            raise errors.BackupRefused(folder, "it has the keys of another log")


@contextmanager
def copied_keys(keys: KeysEngine, folder: Path) -> Iterator[KeysCopy]:
    """Give a copy of the keys of a store in `folder` that has no name yet. What it holds is checked.

    Keys that the store has destroyed, but not wiped from its file yet, are wiped from the copy. Raises
    `KeysMissing`, also where the copy lacks keys that the earlier copy in `folder` has: another backup may need them.
    """
    if not keys.is_there():
        check(keys)  # The error says why.
    make_folder(folder)
    temporary = folder / temporary_name("keys")
    try:
        try:
            with closing(keys):
                last = keys.requests(last=True)
                keys.copy_to(temporary)
            found = check(SqliteKeys(temporary, log_id=keys.log_id))
            with closing(SqliteKeys(temporary, log_id=keys.log_id)) as copy:
                copy.wipe()  # After the check: rewriting a damaged file could hide what is wrong with it.
        except errors.KeysMissing as error:
            raise (error if error.wrapped else keys.missing(error.why)) from error.__cause__
        except errors.LogDamaged as error:
            raise keys.missing(f"it cannot be used: {error}") from error
        earlier = _earlier_copy(folder, log_id=keys.log_id)
        if earlier is not None and not (earlier.secret == found.secret and earlier.trees <= found.trees):
            raise keys.missing(f"it lacks keys that the copy in {folder} has; name another folder for them")
        yield KeysCopy(temporary, keys, last)
    finally:
        for part in keys_file.PARTS:
            temporary.with_name(temporary.name + part).unlink(missing_ok=True)


def publish_keys(copied: KeysCopy) -> KeysCopy:
    """Give a copy of keys its name, in place of the earlier copy in its folder. See `KeysCopy.caught_up`.

    The note beside it names the file and is replaced in one step: after a crash at any point, one copy is complete.
    """
    if copied.is_overtaken():
        return copied.caught_up()
    folder = copied.path.parent
    described = manifests.described(copied.path)
    final = folder / f"keys-{described.sha256[:16]}.db"
    copied.path.rename(final)
    said = KeysNote(
        format=FORMAT,
        log_id=copied.source.log_id,
        created_at=datetime.now(UTC),
        keys=replace(described, path=final.name),
    )
    sync(folder)  # The keys are in place before the note names them.
    replace_file(folder / KEYS_NOTE_FILE, checked_json.encode(said), prefix="note", synced=True)
    # Also what killed processes left: it would keep content readable that is forgotten later.
    for path in (*folder.glob(_COPIES), *abandoned_in(folder)):
        if path != final:
            with suppress(OSError):  # The next copy tries again.
                path.unlink()
    return copied._replace(path=final)


def newest_copy(folder: Path) -> Path | None:
    """Return the path of the copy in a folder of keys, None if there is none."""
    try:
        copy = folder / manifests.read_keys_note(folder).keys.path
    except errors.BackupUnusable:
        return None
    return copy if copy.is_file() else None


def _earlier_copy(folder: Path, *, log_id: str) -> CheckedKeys | None:
    """Return what the earlier copy of the keys holds, None if there is none that can be read."""
    try:
        copy = newest_copy(folder)
        return None if copy is None else check(SqliteKeys(copy, log_id=log_id))
    except errors.KeysMissing:
        return None


def restore_keys(folder: Path, target: Path, *, log_id: str) -> None:
    """Copy the keys of a log to `target`: from a folder of keys, or from the folder of the store that has them.

    Raises `BackupUnusable`.
    """
    address = None if (folder / KEYS_NOTE_FILE).exists() else read_address(folder)
    if address is not None or (not (folder / KEYS_NOTE_FILE).exists() and (folder / keys_file.KEYS_FILE).is_file()):
        try:
            with closing(keys_of(folder, log_id=log_id, address=address)) as keys:
                keys.copy_to(target)
            check(SqliteKeys(target, log_id=log_id))
        except (errors.KeysMissing, errors.LogDamaged) as error:
            if isinstance(error, errors.KeysMissing) and error.wrapped:
                raise
            why = error.why if isinstance(error, errors.KeysMissing) else str(error)
            what = keys_file.KEYS_FILE if address is None else "keys"
            raise errors.BackupUnusable(folder, f"its {what} cannot be used: {why}") from error
        return
    note = manifests.read_keys_note(folder)
    if note.log_id != log_id:
        raise errors.BackupUnusable(folder, f"its keys are those of log {note.log_id}, not of {log_id}")
    manifests.copy_described(note.keys, folder, target)
