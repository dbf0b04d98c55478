"""Wrap the content keys of a store with a key that is kept elsewhere, or with another one than before."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

from mnemolog.domain import errors, structured_log
from mnemolog.domain.result import Result
from mnemolog.infra.keys import key_file
from mnemolog.infra.keys.keyring import id_of
from mnemolog.infra.log.open import open_log
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path


class KeysReport(Result, frozen=True, kw_only=True):
    """How the content keys of a store are stored. A key of the key file is named by an id of 8 hexadecimal digits."""

    store: str
    before: str | None
    """The key that they were wrapped with, None: in the clear."""
    wrapped_with: str | None
    """The key that they are wrapped with now, or after a dry run would be; None: in the clear."""
    key_file: tuple[str, ...]
    """The keys of the key file. The first one wraps, each may unwrap."""
    dry_run: bool
    wiped: bool
    """Whether the earlier form is in no file of the keys any more. If not, `forget` and open stores try again."""


def wrap_keys(path: str | Path, *, clear: bool = False, dry_run: bool = False) -> KeysReport:
    """Wrap the content keys of a store with the first key of the key file, in one transaction.

    `MNEMOLOG_KEY_FILE` names the key file, for each process that opens the store or a backup of its keys: a key a line,
    64 hexadecimal digits each. Keep it on another disk than the keys and their backups. Without the key that they are
    wrapped with, the content can never be read (docs/deployment.md).

    Parameters:

    - `path`: the folder of the store. Its keys may be in PostgreSQL.
    - `clear`: store the content keys in the clear, as they are without a key file.
    - `dry_run`: change nothing; the report says what would be done.

    Example: `MNEMOLOG_KEY_FILE=/elsewhere/mnemolog.key`, then `wrap_keys("memory/").wrapped_with`.

    Raises `InvalidInput` for a missing or unusable key file, `StoreNotFound`, `KeysMissing`, `LogBusy`,
    `LogUnreachable`, `StoreNotWritable`.
    """
    folder = local_path("path", path)
    try:
        keys = key_file.read_keys()
    except (OSError, ValueError) as error:
        raise errors.InvalidInput("key_file", f"{os.environ[key_file.VARIABLE]} cannot be used: {error}") from error
    if not clear and not dry_run:
        _require_apart(folder, keys)
    with closing(open_log(folder, clock=SystemClock(), create=False, read_only=dry_run)) as log:
        if log.keyring is None:
            raise errors.InvalidInput("path", f"the content of {folder} is not encrypted: it has no keys")
        before, wiped = log.keyring.wrapping_key(), True
        new = None if clear or not keys else keys[0]
        if not dry_run:
            log.keyring.rewrap(new)
            wiped = log.keyring.wipe()
    after = None if new is None else id_of(new)
    if not dry_run:
        structured_log.info("keys.wrapped", store=folder, before=before, key=after)
    return KeysReport(
        store=str(folder),
        before=before,
        wrapped_with=after,
        key_file=tuple(map(id_of, keys)),
        dry_run=dry_run,
        wiped=wiped,
    )


def _require_apart(folder: Path, keys: list[bytes]) -> None:
    if not keys:
        why = f"no key file is named: set {key_file.VARIABLE}, or pass `mnemolog --key-file FILE`"
        raise errors.InvalidInput("key_file", why)
    named = Path(os.environ[key_file.VARIABLE]).resolve()
    if named.is_relative_to(folder.resolve()):
        why = f"{named} is in the folder of the store: who copies the folder has both; keep it on another disk"
        raise errors.InvalidInput("key_file", why)
