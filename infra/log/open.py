"""Open the log of a store, or create it: in a folder, or in PostgreSQL."""

from pathlib import Path
from types import ModuleType

from mnemolog.domain import errors
from mnemolog.domain.redaction import Redact
from mnemolog.domain.values import Clock
from mnemolog.infra import sqlite
from mnemolog.infra.keys.keyring import Keyring, KeysEngine, Sealer
from mnemolog.infra.keys.sqlite_keys import KEYS_FILE, SqliteKeys
from mnemolog.infra.log.engine import LogEngine, LogIdentity
from mnemolog.infra.log.event_codec import EventCodec
from mnemolog.infra.log.event_log import EventLog
from mnemolog.infra.log.postgres.address import ADDRESS_FILE, LogAddress, address_of
from mnemolog.infra.log.seen_head import SeenHead
from mnemolog.infra.log.sqlite.engine import LOG_FILE, SqliteEngine, find_or_create
from mnemolog.infra.runtime.files import is_readable, is_writable, mapped_to_store_errors


def open_log(
    folder: Path,
    *,
    clock: Clock,
    create: bool,
    synchronous: sqlite.Synchronous = "FULL",
    busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
    encrypt: bool | None = None,
    identity: LogIdentity | None = None,
    read_only: bool = False,
    keys: KeysEngine | None = None,
    address: LogAddress | None = None,
    redact: Redact | None = None,
    notes: bool = True,
) -> EventLog:
    """Open the log in `folder`; with `create`, create both where they do not exist.

    A new log encrypts its content unless `encrypt` is False. An existing log keeps what it was created with:
    `InvalidInput` if `encrypt` contradicts it. With `identity` the new log is a copy of the log that has it,
    without its keys. With `read_only` no file is written, and its folder may be one that cannot be; appends raise
    `StoreNotWritable`. `keys` are its keys if they are elsewhere; closing the log closes them. With `address` the
    log is in PostgreSQL, and the folder notes where. `redact` replaces what a caller wants besides secrets.
    Without `notes` the folder does not note what is seen of the log: it is looked at only, and will be moved.

    Raises `StoreNotFound`, `NotAStore`, `StoreNotWritable`, `StorageFull`, `OutOfDescriptors`, `FormatTooNew`, and
    `InvalidInput` for another `synchronous`; a folder that is not a store is left unchanged.
    """
    if synchronous not in sqlite.SYNCHRONOUS:
        raise errors.InvalidInput("synchronous", f"{synchronous!r} is none of {', '.join(sqlite.SYNCHRONOUS)}")
    address, files = address_of(folder, address), sqlite.OpenedFiles(folder)
    path = folder / (LOG_FILE if address is None else ADDRESS_FILE)
    if not read_only:
        _require_writable(folder, path)
    engine: LogEngine
    with mapped_to_store_errors(folder), sqlite.mapped_errors(path, busy_timeout_s=busy_timeout_s):
        if address is None:
            identity = find_or_create(
                folder, clock=clock, create=create, encrypt=encrypt, identity=identity, read_only=read_only
            )
            files.log_id = identity.log_id
            engine = SqliteEngine(
                path,
                identity=identity,
                files=files,
                synchronous=synchronous,
                busy_timeout_s=busy_timeout_s,
                read_only=read_only,
                seen=SeenHead(
                    folder,
                    identity.log_id,
                    writable=notes and not read_only,
                    may_lose=synchronous == "NORMAL",
                ),
            )
        else:
            identity, engine = _postgres().open_log(
                address,
                path,
                clock=clock,
                create=create and not read_only,
                encrypt=encrypt,
                identity=identity,
                synchronous=synchronous,
                busy_timeout_s=busy_timeout_s,
                read_only=read_only,
            )
    _require_encryption(encrypt, identity)
    codec = EventCodec()
    if identity.is_sealed:
        keys = keys or keys_of(
            folder,
            log_id=identity.log_id,
            address=address,
            files=files,
            busy_timeout_s=busy_timeout_s,
            read_only=read_only,
        )
        codec = EventCodec(Sealer(Keyring(keys)))
    return EventLog(path, identity, engine, codec, clock, read_only=read_only, redact=redact)


def prepare_database(url: str, *, keys: str | None = None) -> bool:
    """Make the schemas and the roles for logs and their keys in PostgreSQL. Return whether they were not there before.

    `keys` is the URL of the database for keys if that is another one. Raises `LogUnreachable`, `StoreNotWritable` for
    a user who may not make them, `FormatTooNew`, `ExtraMissing`.
    """
    return bool(_postgres().prepare(url, keys))


def database_script(*, apart: bool) -> str:
    """Return the SQL that `prepare_database` runs. `apart`: the keys are in another database. Raises `ExtraMissing`."""
    return str(_postgres().script(apart=apart))


def keys_of(
    folder: Path,
    *,
    log_id: str,
    address: LogAddress | None,
    files: sqlite.OpenedFiles | None = None,
    busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
    read_only: bool | None = None,
) -> KeysEngine:
    """Return the keys of the log in `folder`, or at `address`. They are opened when they are first needed."""
    if address is None:
        return SqliteKeys(
            folder / KEYS_FILE,
            log_id=log_id,
            files=files,
            busy_timeout_s=busy_timeout_s,
            read_only=read_only,
        )
    keys: KeysEngine = _postgres().keys_of(
        address, folder / ADDRESS_FILE, log_id=log_id, busy_timeout_s=busy_timeout_s, read_only=bool(read_only)
    )
    return keys


def _require_writable(folder: Path, path: Path) -> None:
    """Raise `StoreNotWritable` for an existing store in a folder that this process may not write into."""
    if path.exists() and not is_writable(folder):
        error = errors.StoreNotWritable(folder, "this process may not write into the folder")
        if is_readable(path):
            error.hint += "; `read_only=True` opens the store to read it"
        raise error


def _require_encryption(encrypt: bool | None, identity: LogIdentity) -> None:
    if encrypt is not None and encrypt != identity.is_sealed:
        was = "with encryption" if identity.is_sealed else "without encryption"
        why = f"the store was created {was}, which cannot be changed; leave `encrypt` out to open it"
        raise errors.InvalidInput("encrypt", why)


def _postgres() -> ModuleType:
    """Return the module that opens a log in PostgreSQL: its driver is loaded only for a store that needs it."""
    try:
        from mnemolog.infra.log.postgres import engine
    except ImportError as error:
        raise errors.ExtraMissing("postgres", "psycopg") from error
    return engine
