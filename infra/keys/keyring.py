"""The keys of a log's content: one per event, derived from the few nodes that `keys.db` has for its stream.

Derived keys are kept in memory until the file changes, which is checked before every read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from mnemolog.domain import errors
from mnemolog.infra import sqlite
from mnemolog.infra.keys import keys_file
from mnemolog.infra.keys.key_tree import DEPTH, KEY_BYTES, LEAF_MAX, Node, leaves_near, without
from mnemolog.infra.opened_files import OpenedFiles
from mnemolog.infra.runtime import fork_guard

STREAMS_KEPT_MAX: Final = 2_048
SERIES_MAX: Final = 255
CHECKPOINT_POLL_S: Final = 0.02

_PLACE: Final = b"mnemolog/sealed/1\x00"
_SELECT_NODES: Final = "SELECT series, depth, prefix, material FROM nodes WHERE stream = ?"
_SELECT_DESTROYED: Final = "SELECT series, first, last FROM destroyed WHERE stream = ?"
_SELECT_REQUESTS: Final = "SELECT request, position, recorded_at, event FROM requests ORDER BY number"
_REQUEST_TYPES: Final = (str, int, int, bytes)
_INSERT_NODE: Final = "INSERT INTO nodes (stream, series, depth, prefix, material) VALUES (?, ?, ?, ?, ?)"


class Contents(Protocol):
    """The log, as far as keys depend on it."""

    def holds_sealed(self, stream: str) -> bool:
        """Whether a stream has encrypted content."""
        ...


class LeafRange(NamedTuple):
    """Leaves of a stream to destroy, in its series up to `series`."""

    stream: str
    series: int
    first: int
    last: int


class KeyErasure(NamedTuple):
    """A request for which leaves were destroyed, as recorded in the log."""

    request: str
    position: int
    recorded_at: int
    event: bytes


class StreamKeys:
    """The keys of one stream. Derived keys are only replaced as a whole, so reading them needs no lock."""

    def __init__(
        self, place: bytes, nodes: Iterable[tuple[int, Node]], destroyed: Sequence[tuple[int, int, int]]
    ) -> None:
        self.place = place
        """What is authenticated along with all content of the stream: which log and which stream it is."""
        self._nodes: dict[tuple[int, int, int], Node] = {(s, node.depth, node.prefix): node for s, node in nodes}
        self._destroyed = destroyed
        known = [*(series for series, _, _ in self._nodes), *(series for series, _, _ in destroyed)]
        self.series = max(known, default=-1)
        """The newest one, by which new content is sealed; -1 where nothing ever was."""
        self.near: dict[int, bytes] = {}
        """Keys of the newest series that were derived last, by version."""

    def key(self, series: int, version: int) -> bytes | None:
        """Return the key of a version; None where it is not below any node."""
        if series == self.series and (key := self.near.get(version)) is not None:
            return key
        above = (self._nodes.get((series, depth, version >> (DEPTH - depth))) for depth in range(DEPTH + 1))
        node = next((node for node in above if node is not None), None)
        if node is None:
            return None
        near = leaves_near(node, version)
        if series == self.series:
            self.near = near
        return near[version]

    def with_tree(self, series: int, root: Node) -> StreamKeys:
        """Return these keys with those of a new series."""
        nodes = [(of, node) for (of, _, _), node in self._nodes.items()]
        return StreamKeys(self.place, [*nodes, (series, root)], self._destroyed)

    def is_destroyed(self, series: int, version: int) -> bool:
        """Whether the key of a version was destroyed."""
        return any(of == series and first <= version <= last for of, first, last in self._destroyed)


class Keyring:
    """The keys of one log. Safe for many threads and processes; not across a fork.

    The file is opened when it is first needed. Every method raises `KeysMissing` where it is not the one it should
    be, and `LogBusy`, `StorageFull`, `StoreNotWritable` as the log does.
    """

    def __init__(
        self,
        path: Path,
        *,
        log_id: str,
        files: OpenedFiles | None = None,
        busy_timeout_s: float = sqlite.BUSY_TIMEOUT_S,
        read_only: bool = False,
    ) -> None:
        self.path, self._log_id, self._busy_timeout_s, self._read_only = path, log_id, busy_timeout_s, read_only
        self._files = files or OpenedFiles(path.parent)
        self._lock = fork_guard.rlock()
        self._opened: keys_file.OpenKeys | None = None
        self._streams: dict[str, StreamKeys] = {}
        self._seen = 0
        self._closed = False

    def close(self) -> None:
        """Close the file for good."""
        with self._lock:
            self._closed = True
            self._streams.clear()
            if self._opened is not None:
                self._opened.connection.close()
                self._files.close(self.path.name, self._opened.engine)
            self._opened = None

    def refresh(self) -> None:
        """Forget what is in memory where another process has changed the file. To be called before reading."""
        opened = self._opened
        if opened is None or not self._streams:
            return
        try:  # Before every page that is read: no more than one statement.
            with self._lock:
                seen = opened.driver.execute("PRAGMA data_version").fetchone()[0]
                if seen != self._seen:
                    self._streams.clear()
                    self._seen = seen
        except sqlite.driver.dbapi2.Error:
            with self._lock, self._driver():  # It was closed meanwhile, or the file is not as it was.
                raise

    def secret(self) -> bytes:
        """Return the secret of the whole store: 32 bytes."""
        with self._lock, self._driver():
            assert self._opened is not None
            return self._opened.secret

    def key_to_open(self, stream: str, series: int, version: int) -> tuple[StreamKeys, bytes | None]:
        """Return the keys of a stream, and the one that `version` was sealed with; None where it was destroyed."""
        ready = self._streams.get(stream)  # As in `key_to_seal`: of most events the key is derived already.
        if ready is not None and series == ready.series and (found := ready.near.get(version)) is not None:
            return ready, found
        with self._lock:
            for known in (self._known, self._load):  # What is not known may have been made by another process since.
                keys = known(stream)
                key = keys.key(series, version)
                if key is not None or keys.is_destroyed(series, version):
                    return keys, key
        raise errors.KeysMissing(self.path, f"it has no key for version {version} of {stream!r}, nor destroyed one")

    def key_to_seal(self, stream: str, version: int, log: Contents) -> tuple[StreamKeys, bytes]:
        """Return the keys of a stream, and the one to seal `version` with, durably made if there is none.

        Where the stream has no keys, `log` shows whether it has content already: then its keys are missing, and
        new ones would hide that.
        """
        known = self._streams.get(stream)  # Of most appends the key is derived already: ask for no lock.
        if known is not None and (ready := known.near.get(version)) is not None:
            return known, ready
        with self._lock:
            # A stream that begins has no keys: they are looked for once, under the lock that they are made under.
            keys = self._known(stream) if version > 1 or known is not None else None
            key = None if keys is None else keys.key(keys.series, version)
            if keys is None or key is None:
                if keys is not None:
                    self._require_new(stream, version, log)
                keys = self._plant(stream, version)
                key = keys.key(keys.series, version)
                assert key is not None
            return keys, key

    def series(self, stream: str) -> int:
        """Return the newest series of a stream, 0 where it has none yet."""
        with self._lock:
            return max(0, self._load(stream).series)

    def sample(self, *, series_max: int) -> list[tuple[str, int]]:
        """Return streams with their series of keys: all, or `series_max` of them evenly spread over the streams.

        Checks every page of the file first. Raises `KeysMissing` if it is damaged.
        """
        with self._lock, self._driver() as driver:
            found = keys_file.series_in(driver, self.path)
        return [found[at] for at in range(0, len(found), max(1, -(-len(found) // series_max)))]

    def is_destroyed(self, stream: str, series: int, version: int) -> bool:
        """Whether the key of a version was destroyed."""
        with self._lock:
            return self._known(stream).is_destroyed(series, version)

    def destroy(self, erasure: KeyErasure, doomed: Sequence[LeafRange]) -> None:
        """Destroy keys, and note for which request. Doing it again changes nothing. In one transaction."""
        with self._lock, self._writing() as driver:
            for stream, upto, first, last in doomed:
                for series in range(upto + 1):
                    self._puncture(driver, stream, series, 0 if first == 1 else first, last, erasure.request)
            driver.execute(
                "INSERT INTO requests (request, position, recorded_at, event) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (request) DO UPDATE SET position = excluded.position",
                erasure,
            )
            self._streams.clear()

    def wipe(self) -> bool:
        """Overwrite what the file still holds of nodes that are gone, in the write-ahead log as well.

        False where another connection did not let it happen in time: then it is to be called again.
        """
        with self._lock, self._driver() as driver:
            end = time.monotonic() + self._busy_timeout_s
            # Not by `secure_delete` alone: SQLite may have left copies of rows that it moved from page to page.
            driver.execute("VACUUM")
            while driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                if time.monotonic() >= end:
                    return False
                time.sleep(CHECKPOINT_POLL_S)
            return True

    def erasures(self) -> list[KeyErasure]:
        """Return the requests that leaves were destroyed for, in the order in which that was done."""
        with self._lock, self._driver() as driver:
            return [KeyErasure(*row) for row in keys_file.rows(driver, _SELECT_REQUESTS, types=_REQUEST_TYPES)]

    def last_erasure(self) -> KeyErasure | None:
        """Return the last of `erasures`, without reading the others."""
        with self._lock, self._driver() as driver:
            found = keys_file.rows(driver, f"{_SELECT_REQUESTS} DESC LIMIT 1", types=_REQUEST_TYPES)
        return KeyErasure(*found[0]) if found else None

    def has_erasure(self, request: str) -> bool:
        """Whether leaves were destroyed for a request."""
        with self._lock, self._driver() as driver:
            return driver.execute("SELECT 1 FROM requests WHERE request = ?", (request,)).fetchone() is not None

    def _known(self, stream: str) -> StreamKeys:
        found = self._streams.get(stream)
        return self._load(stream) if found is None else found

    def _load(self, stream: str) -> StreamKeys:
        with self._driver() as driver:
            if not self._streams:  # Before they are read: what is destroyed from here on is noticed.
                self._seen = driver.execute("PRAGMA data_version").fetchone()[0]
            keys = self._read(driver, stream)
        self._keep(stream, keys)
        return keys

    def _keep(self, stream: str, keys: StreamKeys) -> None:
        if len(self._streams) >= STREAMS_KEPT_MAX:
            self._streams.clear()
        self._streams[stream] = keys

    def _require_new(self, stream: str, version: int, log: Contents) -> None:
        """Raise `KeysMissing` where a key that is not there should be: another in its place would bury that."""
        keys = self._load(stream)
        if keys.series >= 0:
            missing = keys.key(keys.series, version) is None and not keys.is_destroyed(keys.series, version)
        else:
            missing = version > 1 and log.holds_sealed(stream)
        if missing:
            raise errors.KeysMissing(self.path, f"it lacks the keys of {stream!r}, which has content already")

    def _plant(self, stream: str, version: int) -> StreamKeys:
        """Return the keys of a stream with a tree that `version` is in, made unless another process was quicker."""
        with self._writing() as driver:
            keys = self._read(driver, stream)
            if keys.key(keys.series, version) is None:
                series, root = keys.series + 1, Node(0, 0, secrets.token_bytes(KEY_BYTES))
                if series > SERIES_MAX or version > LEAF_MAX:
                    raise errors.StoreError(f"stream {stream!r} has no room for another key; nothing was written")
                driver.execute(_INSERT_NODE, (stream, series, root.depth, root.prefix, root.material))
                keys = keys.with_tree(series, root)
        self._keep(stream, keys)
        return keys

    def _puncture(self, driver: Any, stream: str, series: int, first: int, last: int, request: str) -> None:
        query = "SELECT depth, prefix, material FROM nodes WHERE stream = ? AND series = ?"
        rows = keys_file.rows(driver, query, (stream, series), types=(int, int, bytes))
        before = [Node(depth, prefix, material) for depth, prefix, material in rows]
        after = list(without(before, first, last))
        places = {(node.depth, node.prefix) for node in before}
        kept = {(node.depth, node.prefix) for node in after}
        driver.executemany(
            "DELETE FROM nodes WHERE stream = ? AND series = ? AND depth = ? AND prefix = ?",
            [(stream, series, *place) for place in places - kept],
        )
        new = [node for node in after if (node.depth, node.prefix) not in places]
        driver.executemany(_INSERT_NODE, [(stream, series, node.depth, node.prefix, node.material) for node in new])
        row = (stream, series, first, last, request)
        driver.execute(
            "INSERT OR IGNORE INTO destroyed (stream, series, first, last, request) VALUES (?, ?, ?, ?, ?)", row
        )

    @contextmanager
    def _driver(self) -> Iterator[Any]:
        """Give the connection, opened where it is not. Needs the lock."""
        if self._closed:
            raise errors.StoreClosed
        if self._opened is None:
            self._opened = keys_file.connect(
                self.path,
                log_id=self._log_id,
                files=self._files,
                busy_timeout_s=self._busy_timeout_s,
                read_only=self._read_only,
            )
        with keys_file.mapped_errors(self.path, busy_timeout_s=self._busy_timeout_s):
            yield self._opened.driver

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._driver() as driver:
            self._files.require_in_place()
            driver.execute("BEGIN IMMEDIATE")
            try:
                yield driver
                driver.execute("COMMIT")
                self._files.require_in_place()
            except BaseException:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
                raise

    def _read(self, driver: Any, stream: str) -> StreamKeys:
        # Destroyed ones last: what is destroyed in between is then found twice rather than not at all.
        nodes = keys_file.rows(driver, _SELECT_NODES, (stream,), types=(int, int, int, bytes))
        destroyed = keys_file.rows(driver, _SELECT_DESTROYED, (stream,), types=(int, int, int))
        place = _PLACE + self._log_id.encode() + len(stream.encode()).to_bytes(4, "big") + stream.encode()
        made = [(series, Node(depth, prefix, material)) for series, depth, prefix, material in nodes]
        if not all(0 <= node.depth <= DEPTH and len(node.material) == KEY_BYTES for _, node in made):
            raise errors.LogDamaged(f"a key of {stream!r} has another form")
        return StreamKeys(place, made, destroyed)
