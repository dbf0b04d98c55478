"""The port for the database of a log's keys: `sqlite_keys` and `postgres_keys` implement it.

The tree of keys, what is kept in memory and what counts as missing are shared (`mnemolog.infra.keys.keyring`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from mnemolog.domain.errors import KeysMissing
from mnemolog.infra.keys.key_tree import Node


class StoredKeys(NamedTuple):
    """What is stored of the keys of one stream."""

    nodes: list[tuple[int, Node]]
    """Each with its series."""
    destroyed: list[tuple[int, int, int]]
    """Series, first and last leaf. A key that is neither below a node nor in here is missing."""


class KeyErasure(NamedTuple):
    """A request for which leaves were destroyed, as recorded in the log."""

    request: str
    position: int
    recorded_at: int
    event: bytes


class KeysEngine(Protocol):
    """The keys of one log. Not safe for several threads at once: the keyring has a lock.

    Material and secret are as stored: they may be wrapped.

    It is opened when it is first needed. Every method raises `KeysMissing` where it does not have the keys of the log,
    and `LogBusy`, `StorageFull`, `StoreNotWritable`, `LogUnreachable` as the log does.
    """

    log_id: str
    """The log that the keys belong to."""

    def missing(self, why: str) -> KeysMissing:
        """Return the error for keys that are missing, naming their place."""

    def is_there(self) -> bool:
        """Whether there are any keys, sound or not, that this user may use."""

    def secret(self) -> bytes:
        """Return the secret of the whole store, as it is stored: 32 bytes, wrapped 40."""

    def wrapped_with(self) -> str | None:
        """Return the id of the key that all is wrapped with, None where it is in the clear or was not noted."""

    def last_change(self) -> object:
        """Return a value that is another one after another process has destroyed keys. One short query."""

    def stored(self, stream: str) -> StoredKeys:
        """Return what is stored of a stream. What is destroyed meanwhile is found at least once, as node or as gone."""

    def writing(self) -> AbstractContextManager[None]:
        """Begin a transaction under the lock of the keys, and commit it, durably, or undo it after an error.

        In it `secret` and `stored` read what is stored now, and the methods from `insert` to `note_change` may be used.
        """

    def insert(self, stream: str, series: int, nodes: Sequence[Node]) -> None:
        """Add nodes that are not there."""

    def delete(self, stream: str, series: int, places: Collection[tuple[int, int]]) -> None:
        """Delete the nodes of these depths and prefixes."""

    def note_destroyed(self, stream: str, series: int, ranges: Sequence[tuple[int, int]], request: str) -> None:
        """Note that leaves were destroyed for a request, unless that is noted already."""

    def note_request(self, erasure: KeyErasure) -> None:
        """Note a request that leaves are destroyed for. If it is noted already, update its position."""

    def rewrite(self, change: Callable[[bytes], bytes], *, wrapped_with: str | None) -> None:
        """Replace all material and the secret by what `change` makes of them: wrapped with a key, or in the clear."""

    def note_change(self) -> None:
        """Have other processes drop the keys that they have in memory: `last_change` is another one."""

    def requests(self, *, last: bool = False) -> list[KeyErasure]:
        """Return the requests that leaves were destroyed for, in the order in which that was done; only the `last`."""

    def has_request(self, request: str) -> bool:
        """Whether leaves were destroyed for a request."""

    def series(self) -> list[tuple[str, int]]:
        """Return the stream and the series of all keys, destroyed ones included, in order. Checks what it reads."""

    def wipe(self) -> bool:
        """Rewrite what holds the nodes, so that deleted ones are no longer in it. False: others read it too long."""

    def copy_to(self, target: Path) -> None:
        """Copy the keys of one moment into the new file `target`, as `keys_file` has them, durably."""

    def replace(self, copy: Path) -> None:
        """Replace the keys, or make them, by those of a file as `copy_to` writes it. The file is no longer needed."""

    def another(self, *, busy_timeout_s: float | None = None) -> KeysEngine:
        """Return the same keys, to be opened again. `busy_timeout_s`: how long to wait for locks; None: as these do."""

    def close(self) -> None:
        """Close it for good."""
