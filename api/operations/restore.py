"""Restoring a backup into a new folder: every byte checked, then the history, then one rename.

Until that rename the folder does not exist: a restore that is killed has restored nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

from mnemolog.application.tokens import revoke, tokens_of
from mnemolog.domain import errors, structured_log
from mnemolog.domain.head import Head
from mnemolog.domain.hints import Hint, again
from mnemolog.domain.position import Position, to_datetime
from mnemolog.domain.result import Result
from mnemolog.domain.store_layout import StoreLayout
from mnemolog.domain.tokens import Token
from mnemolog.forgetting.results import Erasure, ReapplyReport
from mnemolog.forgetting.service import Forgetting
from mnemolog.infra.embedding import make_encoder
from mnemolog.infra.filesystems import require_local
from mnemolog.infra.keys.keys_file import KEYS_FILE, PARTS
from mnemolog.infra.log.open import keys_of, open_log
from mnemolog.infra.log.seen_head import Known, SeenHead
from mnemolog.infra.log.sqlite.engine import LOG_FILE
from mnemolog.infra.runtime.clock import SystemClock
from mnemolog.infra.runtime.files import local_path, temporary_folder
from mnemolog.operations import backup_manifest as manifests
from mnemolog.operations.backup_keys import restore_keys
from mnemolog.operations.backup_manifest import BackupManifest
from mnemolog.operations.copied_log import counting, opened_copy, verify_copy
from mnemolog.projections.health.verify import Witness
from mnemolog.projections.ports import Progress
from mnemolog.projections.projection_set import ProjectionSet

_TEMPORARY: Final = "restore"
_NOT_DONE: Final = "nothing was restored"
_NO_KEYS: Final = (
    f"The content of this log is encrypted, and its keys are not restored: put {KEYS_FILE} into the folder, or restore "
    "into another one with `keys`, the folder that has them. Until then no content can be read, and nothing recorded."
)
_TOKENS: Final = Hint(
    "Tokens that were revoked after the backup was made are valid again. Revoke them, or delete what was restored and "
    "restore again, with the erasures kept elsewhere or with all tokens revoked: ",
    again(revoke_tokens=True),
)


class RestoreReport(Result, frozen=True, kw_only=True):
    """The result of a restore, or with `dry_run` of its checks."""

    backup: str
    path: str
    dry_run: bool
    log_id: str
    head: Position
    """The last position of the restored log. Events recorded after the backup are not in it."""
    digest: str
    created_at: datetime
    """When the backup was made."""
    bytes: int
    keys: bool
    """Whether content keys were restored with it."""
    erasures: int
    """How many of the given requests to forget the backup did not have: their content is forgotten again."""
    tokens: tuple[Token, ...]
    """Tokens that are valid in the restored store. One that was revoked after the backup was made is valid again,
    unless it is in the given erasures."""
    revoked: int
    """How many tokens were revoked, of those in the given erasures or with `revoke_tokens` of all."""
    notes: tuple[str, ...]
    seconds: float


def restore_backup(
    backup: str | Path,
    path: str | Path,
    *,
    keys: str | Path | None = None,
    erasures: Sequence[Erasure] = (),
    revoke_tokens: bool = False,
    dry_run: bool = False,
    allow_network_filesystem: bool = False,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore a backup as a store in a new folder.

    - `backup`: the folder of the backup
    - `path`: the new folder of the store
    - `keys`: the folder of the content keys (`MemoryStore.backup`), or that of the store which has them
    - `erasures`: the requests to forget and the revoked tokens since the backup (`store.audit.erasures`)
    - `revoke_tokens`: revoke all tokens of a server
    - `dry_run`: do everything but the last rename; it needs as much disk space
    - `allow_network_filesystem`: restore to a network file system, which is unsafe
    - `progress`: called now and then with what is done and what there is to do

    Size and SHA-256 of the log are compared with `backup.json`, which is also a witness of the history; every digest
    and page is verified, and with `keys` all content is opened. Erasures are carried out before the store can be
    opened; requests to forget need the keys.

    Raises `BackupUnusable` for missing or changed files, `LogDamaged` if the history does not verify, `KeysMissing` for
    keys that are wrapped with a key that the key file does not have,
    `BackupRefused` if `path` exists and is not empty, `NetworkFilesystem`, `StoreNotWritable`,
    `StorageFull`: in all of these nothing was restored.
    """
    if keys is None and not all(item.token for item in erasures):
        raise errors.InvalidInput("erasures", "`erasures` needs `keys`: content is erased by destroying its keys")
    began, source, folder = perf_counter(), local_path("backup", backup), local_path("path", path)
    require_local(folder, allowed=allow_network_filesystem)
    manifest = manifests.read(source)
    manifests.require_free(folder)
    try:
        with temporary_folder(_TEMPORARY, folder) as temporary:
            moved = counting(progress, manifest.log.size_bytes)
            manifests.copy_described(manifest.log, source, temporary / LOG_FILE, moved=moved)
            if keys is not None:
                restore_keys(local_path("keys", keys), temporary / KEYS_FILE, log_id=manifest.log_id)
            _verify(temporary, manifest, keys=keys is not None, progress=progress)
            if keys is not None:  # Again: their store may have forgotten something since.
                for part in PARTS:
                    (temporary / (KEYS_FILE + part)).unlink(missing_ok=True)
                restore_keys(local_path("keys", keys), temporary / KEYS_FILE, log_id=manifest.log_id)
            repeated = _forget_again(temporary, erasures)
            tokens, revoked = _settle_tokens(temporary, revoke_all=revoke_tokens)
            with closing(SeenHead(temporary, manifest.log_id, writable=True)) as seen:
                seen.saw(Known(manifest.head, bytes.fromhex(manifest.digest)))
            if not dry_run:
                manifests.publish(temporary, folder.absolute())
    except errors.MnemologError as error:
        structured_log.error("restore.failed", backup=source, path=folder, error=error)
        raise
    report = RestoreReport(
        backup=str(source),
        path=str(folder),
        dry_run=dry_run,
        log_id=manifest.log_id,
        head=manifest.head,
        digest=manifest.digest,
        created_at=manifest.created_at,
        bytes=manifest.log.size_bytes,
        keys=keys is not None,
        erasures=repeated.requested,
        tokens=tokens,
        revoked=repeated.revoked + revoked,
        notes=(
            *((_NO_KEYS,) if manifest.needs_keys and keys is None else ()),
            *((_TOKENS,) if tokens and not erasures else ()),
        ),
        seconds=perf_counter() - began,
    )
    structured_log.info("restore.done", backup=source, path=folder, head=report.head, dry_run=dry_run)
    return report


def _verify(folder: Path, manifest: BackupManifest, *, keys: bool, progress: Progress | None) -> None:
    """Verify the history, after all files are in place and before the store can be opened."""
    what = "the log in the backup"
    opening = keys_of(folder, log_id=manifest.log_id, address=None) if keys else None
    with opened_copy(folder, what=what, outcome=_NOT_DONE, keys=opening) as log:
        if log.log_id != manifest.log_id:
            raise errors.BackupUnusable(folder, f"its log is {log.log_id}, backup.json says {manifest.log_id}")
        witness = Witness(manifests.BACKUP_FILE, Head(position=manifest.head, digest=manifest.digest))
        verify_copy(log, what=what, outcome=_NOT_DONE, contents=keys, witnesses=[witness], progress=progress)


def _forget_again(folder: Path, erasures: Sequence[Erasure]) -> ReapplyReport:
    """Forget what was forgotten since the backup, before the store exists under its name."""
    if not erasures:
        return ReapplyReport(erasures=0, requested=0)
    layout = StoreLayout(folder)
    with (
        closing(open_log(folder, clock=SystemClock(), create=False)) as log,
        closing(ProjectionSet(layout, log, None, make_encoder=make_encoder)) as projections,
    ):
        forgetting = Forgetting(
            layout, log, projections, nodes=list, purged=lambda _: None, copies_of_keys=lambda _: []
        )
        forgetting.resume()
        repeated = forgetting.reapply(erasures)
    if repeated.pending is not None:
        raise errors.BackupUnusable(folder, f"the erasures could not be carried out: {repeated.pending}")
    return repeated


def _settle_tokens(folder: Path, *, revoke_all: bool) -> tuple[tuple[Token, ...], int]:
    """Return the tokens that are valid, and how many were revoked."""
    now = to_datetime(SystemClock().now())
    with closing(open_log(folder, clock=SystemClock(), create=False)) as log:
        valid = tuple(token for token in tokens_of(log) if token.is_valid(now))
        if not revoke_all or not valid:
            return valid, 0
        return (), len(log.appends.transact(partial(revoke, ids=[token.id for token in valid])))
