"""The files of backups: manifests, copies of the content keys, and the note in which a store remembers its backups.

`backup.json` is written last: a folder without it is incomplete. The keys are in a folder of their own, and only their
newest copy is kept: an older one would still have keys that were destroyed since to forget content. No older backup
needs it, because keys are only added or destroyed. `backups.json` is beside the log and can be deleted at any time.
"""

import errno
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple, TypeVar

import msgspec

from mnemolog.domain import errors, structured_log
from mnemolog.domain.chain import Finding, Kind
from mnemolog.domain.display import dated
from mnemolog.domain.head import Head
from mnemolog.domain.store_layout import SEEN_HEAD, StoreLayout
from mnemolog.domain.values import INTEGER_MAX, ORIGIN, Position
from mnemolog.infra.keys.keyring import CheckedKeys, KeyErasure, KeysEngine, check
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE, PARTS, SqliteKeys, log_of
from mnemolog.infra.log.open import keys_of
from mnemolog.infra.log.postgres.address import read_address
from mnemolog.infra.log.seen_head import noted_head
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.files import (
    as_store_error,
    make_folder,
    mapped_to_store_errors,
    open_file,
    publish_folder,
    read_file,
    replace_file,
    sync,
    temporary_name,
    write_pieces,
)
from mnemolog.infra.sqlite import REMEDY_FOR_MARK
from mnemolog.projections.history.verify import IN_QUARANTINE, Witness
from mnemolog.projections.maintenance.context import abandoned_in
from mnemolog.projections.quarantine import PURGE
from mnemolog.projections.sql import checked_json

BACKUP_FILE: Final = "backup.json"
KEYS_NOTE_FILE: Final = "keys.json"
FORMAT: Final = 1
PIECE_BYTES: Final = 256 << 10
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_KEYS: Final = re.compile(r"keys-[0-9a-f]{16}\.db")

Moved = Callable[[int], None]
Said = TypeVar("Said")


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a backup."""

    path: str
    """Its name in the folder of the backup or of the keys."""
    size_bytes: int
    sha256: str
    """Hexadecimal."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The log that was backed up, its head, and its file."""

    format: int
    mnemolog: str
    """The version of mnemolog that made it."""
    log_id: str
    head: Position
    digest: str
    """The log's digest at `head`, hexadecimal: a witness of the history in the backup."""
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    needs_keys: bool
    """Whether content is encrypted; the keys are not in the backup."""
    files: tuple[BackupFile, ...]
    """The log alone: projections are rebuilt from it."""

    @property
    def log(self) -> BackupFile:
        """The file of the log."""
        return self.files[0]


class KeysNote(msgspec.Struct, frozen=True, kw_only=True):
    """The note beside a copy of the content keys."""

    format: int
    log_id: str
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    keys: BackupFile


def read_manifest(backup: Path) -> BackupManifest:
    """Return the manifest of a backup. Raises `BackupUnusable`."""
    found = _said(backup / BACKUP_FILE, BackupManifest, shown=backup)
    if found.format != FORMAT:
        raise errors.BackupUnusable(backup, f"it has format {found.format}, this mnemolog reads {FORMAT}")
    # A backup may come from an untrusted source: no other name is read or written.
    if foreign := sorted({item.path for item in found.files} - {LOG_FILE}):
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} names a file that no backup has: {foreign[0][:200]!r}")
    if len(found.files) != 1:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} does not name {LOG_FILE}, or names it twice")
    if not ORIGIN <= found.head <= INTEGER_MAX or found.log.size_bytes < 0:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} has a number that no backup has")
    if _DIGEST.fullmatch(found.digest) is None:
        raise errors.BackupUnusable(backup, f"{BACKUP_FILE} has a digest that no backup has")
    return found


def read_keys_note(folder: Path) -> KeysNote:
    """Return the note on the keys in a folder. Raises `BackupUnusable`."""
    found = _said(folder / KEYS_NOTE_FILE, KeysNote, shown=folder)
    if _KEYS.fullmatch(found.keys.path) is None or found.keys.size_bytes < 0:
        why = f"{KEYS_NOTE_FILE} names a file that is no copy of keys: {found.keys.path[:200]!r}"
        raise errors.BackupUnusable(folder, why)
    return found


def _said(path: Path, kind: type[Said], *, shown: Path) -> Said:
    try:
        return checked_json.decode(read_file(path), msgspec.json.Decoder(kind))
    except FileNotFoundError as error:
        raise errors.BackupUnusable(shown, f"there is no {path.name} in it, so it was never finished") from error
    except OSError as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error.strerror or error}") from error
    except checked_json.NotAsWritten as error:
        raise errors.BackupUnusable(shown, f"{path.name}: {error}") from error


def copy_file(
    source: Path, target: Path, *, within: Path, size_bytes: int | None = None, moved: Moved = lambda _: None
) -> None:
    """Copy a file that does not change into a new one, durably. For databases use `copy_database`.

    `source` is below the folder `within`, and no link on the way is followed. A file of another size than `size_bytes`
    is not copied. Raises `OSError`.
    """
    make_folder(target.parent)
    with open_file(source, within=within) as file:
        size = os.fstat(file.fileno()).st_size
        if size_bytes is not None and size != size_bytes:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, {size_bytes:,} are expected", str(source))
        write_pieces(target, _pieces(file, moved))


def copy_described(item: BackupFile, folder: Path, target: Path, *, moved: Moved = lambda _: None) -> None:
    """Copy a file of a backup, and check the copy, because the copy is what will be opened. Raises `BackupUnusable`."""
    source = folder / item.path
    try:
        copy_file(source, target, within=folder, size_bytes=item.size_bytes, moved=moved)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.BackupUnusable(folder, f"{item.path} is missing") from error
    except OSError as error:
        if error.filename != str(source):
            raise  # The copy cannot be written.
        raise errors.BackupUnusable(folder, f"{item.path}: {error.strerror or error}") from error
    if msgspec.structs.replace(described(target), path=item.path) != item:
        raise errors.BackupUnusable(folder, f"{item.path} has changed since the backup")


def described(path: Path) -> BackupFile:
    """Return the manifest entry of a file that is not open anywhere."""
    with open_file(path) as file:
        digest = file_digest(file, sha256).hexdigest()  # It reads to the end, so that the place then is the size.
        return BackupFile(path=path.name, size_bytes=file.tell(), sha256=digest)


def _pieces(file: BinaryIO, moved: Moved) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece
        moved(len(piece))


def require_free(folder: Path, *, of: str | None = None) -> None:
    """Raise `BackupRefused` unless the folder is new, empty, or, if `of` is given, a backup of that log."""
    if of is not None and (folder / BACKUP_FILE).exists():
        if (found := read_manifest(folder).log_id) != of:
            raise errors.BackupRefused(folder, f"it is a backup of another log, {found}")
        return
    try:
        if any(folder.iterdir()):
            raise errors.BackupRefused(folder, "the folder exists and is not empty")
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        raise errors.BackupRefused(folder, "it is a file") from error
    except OSError as error:
        raise as_store_error(error, folder) from error


def publish(temporary: Path, final: Path, *, of: str | None = None) -> None:
    """Rename a finished folder durably; if `of` is given, it may replace a backup of that log.

    Raises `BackupRefused` if the name is in use by now.
    """
    replaces = of is not None and (final / BACKUP_FILE).exists()
    if replaces:
        require_free(final, of=of)
    try:
        publish_folder(temporary, final, replace=replaces)
    except FileExistsError as error:
        raise errors.BackupRefused(final, "another program has created files there meanwhile") from error


_COPIES: Final = "keys-*.db"


class KeysCopy(NamedTuple):
    """A copy of the keys of a store, in the folder for it."""

    path: Path
    source: KeysEngine
    last_erasure: list[KeyErasure]
    """The last request to forget when the copy was begun, if there was any. The copy has no keys that it destroyed."""

    def caught_up(self) -> "KeysCopy":
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
            require_free(folder)
        elif read_keys_note(folder).log_id != log_id:
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
        for part in PARTS:
            temporary.with_name(temporary.name + part).unlink(missing_ok=True)


def publish_keys(copied: KeysCopy) -> KeysCopy:
    """Give a copy of keys its name, in place of the earlier copy in its folder. See `KeysCopy.caught_up`.

    The note beside it names the file and is replaced in one step: after a crash at any point, one copy is complete.
    """
    if copied.is_overtaken():
        return copied.caught_up()
    folder = copied.path.parent
    made = described(copied.path)
    final = folder / f"keys-{made.sha256[:16]}.db"
    copied.path.rename(final)
    said = KeysNote(
        format=FORMAT,
        log_id=copied.source.log_id,
        created_at=datetime.now(UTC),
        keys=msgspec.structs.replace(made, path=final.name),
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
        copy = folder / read_keys_note(folder).keys.path
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
    if address is not None or (not (folder / KEYS_NOTE_FILE).exists() and (folder / KEYS_FILE).is_file()):
        try:
            with closing(keys_of(folder, log_id=log_id, address=address)) as keys:
                keys.copy_to(target)
            check(SqliteKeys(target, log_id=log_id))
        except (errors.KeysMissing, errors.LogDamaged) as error:
            if isinstance(error, errors.KeysMissing) and error.wrapped:
                raise
            why = error.why if isinstance(error, errors.KeysMissing) else str(error)
            what = KEYS_FILE if address is None else "keys"
            raise errors.BackupUnusable(folder, f"its {what} cannot be used: {why}") from error
        return
    note = read_keys_note(folder)
    if note.log_id != log_id:
        raise errors.BackupUnusable(folder, f"its keys are those of log {note.log_id}, not of {log_id}")
    copy_described(note.keys, folder, target)


BACKUPS_MAX: Final = 10
"""Backups that are remembered. More than one, because the newest may have been a drill that was deleted."""
BYTES_MAX: Final = 1 << 20
"""The most that is read of the note."""


class KnownBackup(msgspec.Struct, frozen=True, kw_only=True):
    """A backup that this store made, and where."""

    path: str
    """Absolute."""
    keys: str | None
    """The folder that the content keys were copied to, absolute; None if there was none."""
    created_at: datetime
    head: Head
    failed: int = 0
    """For how many backups in a row, up to this one, the command after it has failed (`mnemolog backup`)."""


# Made at import: see `checked_json`.
_DECODER: Final = msgspec.json.Decoder(tuple[KnownBackup, ...])


def last_backup(store: Path) -> KnownBackup | None:
    """Return the newest backup that the store in the folder `store` knows of and that is still there.

    Never raises: a note that is missing or damaged knows of no backup. Needs no log and opens no database.
    """
    return next((known for known in _known(store) if (Path(known.path) / BACKUP_FILE).is_file()), None)


def failed_commands(store: Path) -> int:
    """Return for how many backups in a row, up to the newest, the command after it has failed. Never raises."""
    return next((known.failed for known in _known(store)), 0)


def note_failed_commands(store: Path, failed: int) -> None:
    """Note what `failed_commands` returns until the next command."""
    for known in _known(store)[:1]:
        remember_backup(store, msgspec.structs.replace(known, failed=failed))


def last_keys(store: Path) -> Path | None:
    """Return the folder of the newest copy of the keys that the store knows of and that is still there."""
    folders = (Path(known.keys) for known in _known(store) if known.keys is not None)
    return next((folder for folder in folders if (folder / KEYS_NOTE_FILE).is_file()), None)


def copies_of_keys(store: Path, before: int) -> list[str]:
    """Return the folders of all known copies of the keys made when the log was shorter than `before`, newest first."""
    found = [Path(known.keys) for known in _known(store) if known.keys is not None and known.head.position < before]
    return [str(at) if (at / KEYS_NOTE_FILE).is_file() else f"{at} (not there now)" for at in found]


def noted_witnesses(store: Path, log_id: str) -> list[Witness]:
    """Return what a store notes of a log's history: the last head that it has seen, and its newest known backup."""
    known, noted = last_backup(store), noted_head(store)
    found = [] if noted is None else [Witness(SEEN_HEAD, noted)]
    found += [] if known is None else [Witness(f"the backup {known.path}", known.head)]
    return [witness for witness in found if witness.head.log_id == log_id]


def remember_backup(store: Path, made: KnownBackup) -> None:
    """Add a backup to the note. Where the store cannot be written, the backup is good all the same."""
    others = [known for known in _known(store) if known.path != made.path]
    path = StoreLayout(store).known_backups
    try:
        with mapped_to_store_errors(path):
            replace_file(path, checked_json.encode((made, *others)[:BACKUPS_MAX]), prefix="backups", synced=True)
    except (errors.MnemologError, UnicodeEncodeError) as error:  # JSON has no form for a path that is not UTF-8.
        structured_log.warning("backup.not_remembered", path=path, error=error)


def _known(store: Path) -> tuple[KnownBackup, ...]:
    path = StoreLayout(store).known_backups
    try:
        return checked_json.decode(read_file(path, size_max=BYTES_MAX), _DECODER)
    except (OSError, checked_json.NotAsWritten):
        return ()


def restore_newest_backup(store: Path) -> errors.Hint:
    """Return how to restore the newest backup that the store knows of, into a new folder beside it.

    The store's own keys go with it if they can be used: they also know what was forgotten since the backup.
    """
    backup = last_backup(store)
    if backup is None:
        return errors.Hint(
            "no backup of this store is known here; if there is one elsewhere, restore it into a new folder"
        )
    place = store.absolute().resolve()
    own_keys = read_address(place) is not None or log_of(StoreLayout(place).keys) == backup.head.log_id
    keys = str(place) if own_keys else backup.keys
    restore = errors.remedy("restore_backup", backup.path, restored(place), **({"keys": keys} if keys else {}))
    made = f"of {dated(backup.created_at)}, up to position {backup.head.position}"
    return errors.Hint(f"restore the newest known backup ({made}) into a new folder: ", restore)


def after_findings(store: Path, findings: Iterable[Finding]) -> errors.Hint:
    """Return what to do about a log with findings: rescue all of it where nothing is lost, else restore a backup."""
    found = [item for item in findings if item.kind is not Kind.UNFIT]
    if not found:
        return errors.Hint(
            "nothing is lost, and no read uses these events; find the program that wrote them and stop it"
        )
    if all(item.kind is Kind.WITNESS and item.detail.startswith(IN_QUARANTINE) for item in found):
        return errors.Hint(
            "what the log has lost was given up; ", PURGE, " deletes what is left of it, and the evidence"
        )
    place = store.absolute().resolve()
    folder = restored(place)
    own_keys = read_address(place) is not None or StoreLayout(place).keys.exists()
    keys: dict[str, Any] = {"keys": place} if own_keys else {}
    if all(item.detail.endswith(REMEDY_FOR_MARK) for item in found):
        copy = free(folder.with_name(f"{folder.name}-from"))
        steps = errors.remedy("backup", copy), errors.remedy("restore_backup", copy, folder, **keys)
    elif all(item.kind is Kind.UNPROTECTED for item in found):
        copy = free(folder.with_name(f"{folder.name}-from.jsonl"))
        steps = errors.remedy("audit.export", copy), errors.remedy("import_log", copy, folder, **keys)
    else:
        return errors.Hint(f"stop writing to it and keep {store} as evidence; ", restore_newest_backup(store))
    return errors.Hint("no event is lost; copy the store into a new folder: ", steps[0], ", then ", steps[1])


def put_keys_back(store: Path, missing: errors.KeysMissing) -> str:
    """Return how to put the newest known copy of the store's keys back, keeping the present file.

    Keys in a database are put back there, and wrapped ones need the key file: the error says how.
    """
    if read_address(store) is not None or missing.wrapped:
        return missing.hint.removeprefix("nothing counts as forgotten; ")
    folder, keys = last_keys(store), StoreLayout(store.absolute()).keys
    if keys.exists() and not os.access(keys, os.R_OK):
        return f"use the store as its owner: `ls -l {shlex.quote(str(keys))}` shows who that is"
    copy = None if folder is None else newest_copy(folder)
    if copy is None:
        return "put the store's own keys.db back beside log.db; no copy of it is known here"
    line, name = f"cp {shlex.quote(str(copy))} {shlex.quote(str(keys))}", shlex.quote(str(keys))
    if any(keys.parent.glob(f"{keys.name}*")):
        aside = shlex.quote(str(free(keys.with_name("keys-set-aside"))))
        line = f"mkdir {aside} && mv {name}* {aside} && {line}"
    return f"end the processes that use the store, then put the newest copy of its keys back: `{line}`"


def restored(place: Path) -> Path:
    """Return a new folder beside a store, to restore it into."""
    return free(place.with_name(f"{place.name}-restored"))


def free(wanted: Path) -> Path:
    """Return a path that does not exist yet: this one, or one with a number."""
    number, path = 1, wanted
    while path.exists():
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")
    return path
