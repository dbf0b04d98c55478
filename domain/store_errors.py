"""What keeps a store as a whole from being used, copied or restored. Part of `mnemolog.domain.errors`."""

from __future__ import annotations

from pathlib import Path

from mnemolog.domain.base_error import MnemologError


class StoreError(MnemologError):
    """The store as a whole cannot be used as asked."""


class StoreNotFound(StoreError):
    """There is no store at that path."""

    hint = "create one with `mnemolog init DIR`, or check the path"

    def __init__(self, path: Path) -> None:
        super().__init__(f"there is no store at {path}")
        self.path = path


class NotAStore(StoreError):
    """The path exists and is not a mnemolog store. It was left exactly as it was."""

    hint = "give an empty or new folder to create a store in; nothing was changed"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is not a mnemolog store: {why}")
        self.path = path


class StoreNotWritable(StoreError):
    """The folder or its disk does not let us write."""

    hint = "nothing was written; check the owner and mode of the folder and whether its disk is read-only"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot write to {path}: {why}")
        self.path = path


class FormatTooNew(StoreError):
    """The log was written by a newer mnemolog than this one."""

    hint = "upgrade mnemolog; nothing was changed"

    def __init__(self, path: Path, *, found: int, supported: int) -> None:
        super().__init__(f"{path} has log format {found}; this mnemolog reads formats up to {supported}")
        self.path, self.found, self.supported = path, found, supported


class KeysMissing(StoreError):
    """The keys of the log's content are not there, or are not those of this log. Nothing was lost or written."""

    hint = "put the store's own keys.db back beside log.db; nothing was written, and nothing counts as forgotten"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} does not have the keys that are needed: {why}")
        self.path = path


class NetworkFilesystem(StoreError):
    """The folder lies on a file system that several machines may share. Nothing was made there."""

    hint = (
        "put the store on a disk of this machine; whoever knows that only this machine ever opens it may pass "
        "allow_network_filesystem=True, or set MNEMOLOG_ALLOW_NETWORK_FILESYSTEM=1"
    )

    def __init__(self, path: Path, kind: str) -> None:
        super().__init__(f"{path} is on a network file system ({kind}), on which SQLite's locks cannot be trusted")
        self.path, self.kind = path, kind


class OutOfDescriptors(StoreError):
    """This process may not open one more file."""

    hint = "nothing was written; close what is not needed, or raise the limit (`ulimit -n`), and call again"

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} cannot be opened: this process has as many files open as it may")
        self.path = path


class BackupRefused(StoreError):
    """A backup cannot be made, or restored, where that was asked for. Nothing there was changed."""

    hint = "nothing was changed; name a folder that does not exist or is empty, outside of the store"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class BackupUnusable(StoreError):
    """A backup is not, or not any more, what was written. Nothing was restored from it."""

    hint = "nothing was restored; keep it and take another backup"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is no backup to restore: {why}")
        self.path = path


class StoreClosed(StoreError):
    """The store was closed before this call."""

    hint = "open the store again; nothing was written"

    def __init__(self) -> None:
        super().__init__("the store is closed")


class StoreForked(StoreError):
    """The store was opened in another process and inherited through fork()."""

    hint = "open the store in the child process; SQLite connections do not survive a fork; nothing was written"

    def __init__(self, *, opened_in: int, used_in: int) -> None:
        super().__init__(f"the store was opened in process {opened_in} and used in its fork {used_in}")
        self.opened_in, self.used_in = opened_in, used_in
