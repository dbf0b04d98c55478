"""The keys of a log's content: one per event, derived from the few nodes that are stored for its stream.

Content is encrypted with AES-256-GCM (NIST SP 800-38D), bound to its place in the log: what is authenticated along is
the log's identity, stream, version and topic. docs/adr/0016-content-keys-and-forgetting.md.

Derived keys are kept in memory until another process destroys keys, which is checked before every read. They may be
used for an append without a look: a request to forget names versions that exist, under the log's lock, so the key of
a version that is still to come stays derivable. An append that the request has overtaken is staged again, after a look.

A key file has the keys for the content keys: what is stored of these is wrapped with one, and opens nothing without it.
AES key wrap with 256 bits (NIST SP 800-38F, RFC 3394). docs/adr/0061-a-key-for-the-keys.md.
"""

import os
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from mnemolog.domain import errors
from mnemolog.domain.events import HEAD_BYTES, NONCE_BYTES, SEALED, SEALING_FORMAT, why_invalid
from mnemolog.infra.keys.key_tree import DEPTH, KEY_BYTES, LEAF_MAX, Node, leaves_near, without
from mnemolog.infra.runtime import fork_guard
from mnemolog.infra.runtime.files import read_file

VARIABLE: Final = "MNEMOLOG_KEY_FILE"
"""Names the file with the keys, in hexadecimal, one a line: the first is for wrapping, each may unwrap."""
WRAPPED_BYTES: Final = 40
"""Of a key of 32 bytes."""
HINT: Final = (
    f"give the key file that has it, as `mnemolog --key-file FILE` or in {VARIABLE}: for a backup, the one that was in "
    "use when it was made; without that key the content can never be read"
)

_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


def read_keys() -> list[bytes]:
    """Return the keys of the key file, none where no file is named. Raises `OSError`, `ValueError`."""
    if not (named := os.environ.get(VARIABLE)):
        return []
    lines = read_file(Path(named), follow=True).decode("ascii").split()
    if not lines or not all(map(_KEY.fullmatch, lines)):
        raise ValueError("each line has to be 64 hexadecimal digits, as `openssl rand -hex 32` makes them")
    return [bytes.fromhex(line) for line in lines]


def wrap(key: bytes | None, material: bytes) -> bytes:
    """Return material as it is stored; `key` None: in the clear."""
    if key is None:
        return material
    from cryptography.hazmat.primitives import keywrap

    return keywrap.aes_key_wrap(key, material)


def unwrap(key: bytes | None, stored: bytes) -> bytes | None:
    """Return stored material in the clear. None if this is not the key that it was wrapped with."""
    if key is None:
        return None if len(stored) == WRAPPED_BYTES else stored
    from cryptography.hazmat.primitives import keywrap

    try:
        return keywrap.aes_key_unwrap(key, stored)
    except (keywrap.InvalidUnwrap, ValueError):
        return None


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

    def missing(self, why: str) -> errors.KeysMissing:
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
        """Copy the keys of one moment into the new file `target`, as `sqlite_keys` has them, durably."""

    def replace(self, copy: Path) -> None:
        """Replace the keys, or make them, by those of a file as `copy_to` writes it. The file is no longer needed."""

    def another(self, *, busy_timeout_s: float | None = None) -> "KeysEngine":
        """Return the same keys, to be opened again. `busy_timeout_s`: how long to wait for locks; None: as these do."""

    def close(self) -> None:
        """Close it for good."""


STREAMS_KEPT_MAX: Final = 2_048
SERIES_MAX: Final = 255

_PLACE: Final = b"mnemolog/sealed/1\x00"


class LeafRange(NamedTuple):
    """Leaves of a stream to destroy, in its series up to `series`."""

    stream: str
    series: int
    first: int
    last: int


class StreamKeys:
    """The keys of one stream. Derived keys are only replaced as a whole, so reading them needs no lock."""

    def __init__(
        self, place: bytes, nodes: Iterable[tuple[int, Node]], destroyed: Sequence[tuple[int, int, int]]
    ) -> None:
        self.place = place
        """What is authenticated along with all content of the stream: which log and which stream it is."""
        self._nodes: dict[tuple[int, int, int], Node] = {(s, node.depth, node.prefix): node for s, node in nodes}
        self._destroyed = destroyed
        self.series = max(
            [*(series for series, _, _ in self._nodes), *(series for series, _, _ in destroyed)], default=-1
        )
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

    def with_tree(self, series: int, root: Node) -> "StreamKeys":
        """Return these keys with those of a new series."""
        nodes = [(of, node) for (of, _, _), node in self._nodes.items()]
        return StreamKeys(self.place, [*nodes, (series, root)], self._destroyed)

    def is_destroyed(self, series: int, version: int) -> bool:
        """Whether the key of a version was destroyed."""
        return any(of == series and first <= version <= last for of, first, last in self._destroyed)


class Keyring:
    """The keys of one log. Safe for many threads and processes; not across a fork.

    Every method raises `KeysMissing`, and what `KeysEngine` raises.
    """

    def __init__(self, engine: KeysEngine) -> None:
        self.engine = engine
        self._lock = fork_guard.rlock()
        self._streams: dict[str, StreamKeys] = {}
        self._seen: object = None
        self._wrapping: bytes | None = None
        """The key that what is stored is wrapped with, as far as is known; None: it is in the clear."""

    def close(self) -> None:
        """Close the database of the keys for good."""
        with self._lock:
            self._streams.clear()
            self.engine.close()

    def refresh(self) -> None:
        """Forget what is in memory where another process has destroyed keys. To be called before reading."""
        if not self._streams:
            return
        with self._lock:
            seen = self.engine.last_change()
            if seen != self._seen:
                self._streams.clear()
                self._seen = seen

    def secret(self) -> bytes:
        """Return the secret of the whole store: 32 bytes."""
        with self._lock:
            return self._unwrapped(self.engine.secret())

    def wrapping_key(self) -> str | None:
        """Return the id of the key that what is stored is wrapped with, None if it is in the clear."""
        with self._lock:
            self._unwrapped(self.engine.secret())
            return None if self._wrapping is None else id_of(self._wrapping)

    def rewrap(self, key: bytes | None) -> None:
        """Wrap all that is stored with another key, or store it in the clear. It is to be wiped then."""
        with self._lock, self.engine.writing():
            self._unwrapped(self.engine.secret())
            named = None if key is None else id_of(key)
            self.engine.rewrite(lambda stored: wrap(key, self._unwrapped(stored)), wrapped_with=named)
            self.engine.note_change()

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
        raise self.engine.missing(f"it has no key for version {version} of {stream!r}, nor destroyed one")

    def key_to_seal(self, stream: str, version: int, holds_sealed: Callable[[str], bool]) -> tuple[StreamKeys, bytes]:
        """Return the keys of a stream, and the one to seal `version` with, durably made if there is none.

        Where the stream has no keys, `holds_sealed` says whether it has content already: then its keys are missing, and
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
                    self._require_new(stream, version, holds_sealed)
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

        Checks them as `KeysEngine.series` does. Raises `KeysMissing` if they are damaged.
        """
        with self._lock:
            found = self.engine.series()
        return [found[at] for at in range(0, len(found), max(1, -(-len(found) // series_max)))]

    def is_destroyed(self, stream: str, series: int, version: int) -> bool:
        """Whether the key of a version was destroyed."""
        with self._lock:
            return self._known(stream).is_destroyed(series, version)

    def destroy(self, erasure: KeyErasure, doomed: Iterable[LeafRange]) -> None:
        """Destroy keys, and note for which request. Doing it again changes nothing. In one transaction."""
        ranges = defaultdict(list)
        for stream, upto, first, last in doomed:
            ranges[stream, upto].append((0 if first == 1 else first, last))
        with self._lock, self.engine.writing():
            for (stream, upto), leaves in ranges.items():
                for series in range(upto + 1):
                    self._puncture(stream, series, leaves)
                    self.engine.note_destroyed(stream, series, leaves, erasure.request)
            self.engine.note_request(erasure)
            self.engine.note_change()
            self._streams.clear()

    def renew(self, stream: str, *, above: int) -> None:
        """Have content of a stream that is still to come encrypted with keys of a series above `above`."""
        with self._lock, self.engine.writing():
            if self._keys_of(stream, self.engine.stored(stream)).series <= above:
                self._insert(stream, _checked_series(stream, above + 1), [_new_root()])
                self.engine.note_change()
                self._streams.clear()

    def wipe(self, *, wait_s: float | None = None) -> bool:
        """Rewrite what the keys are stored in, so that destroyed ones are no longer in it.

        False where another process did not let it happen within `wait_s` (None: as long as any lock is waited for):
        then it is to be called again. Keys can be read meanwhile.
        """
        with closing(self.engine.another(busy_timeout_s=wait_s)) as engine:
            return engine.wipe()

    def erasures(self) -> list[KeyErasure]:
        """Return the requests that leaves were destroyed for, in the order in which that was done."""
        with self._lock:
            return self.engine.requests()

    def last_erasure(self) -> KeyErasure | None:
        """Return the last of `erasures`, without reading the others."""
        with self._lock:
            return next(iter(self.engine.requests(last=True)), None)

    def has_erasure(self, request: str) -> bool:
        """Whether leaves were destroyed for a request."""
        with self._lock:
            return self.engine.has_request(request)

    def _known(self, stream: str) -> StreamKeys:
        found = self._streams.get(stream)
        return self._load(stream) if found is None else found

    def _load(self, stream: str) -> StreamKeys:
        if not self._streams:  # Before they are read: what is destroyed from here on is noticed.
            self._seen = self.engine.last_change()
        keys = self._keys_of(stream, self.engine.stored(stream))
        self._keep(stream, keys)
        return keys

    def _keep(self, stream: str, keys: StreamKeys) -> None:
        if len(self._streams) >= STREAMS_KEPT_MAX:
            self._streams.clear()
        self._streams[stream] = keys

    def _require_new(self, stream: str, version: int, holds_sealed: Callable[[str], bool]) -> None:
        """Raise `KeysMissing` where a key that is not there should be: another in its place would bury that."""
        keys = self._load(stream)
        if keys.series >= 0:
            missing = keys.key(keys.series, version) is None and not keys.is_destroyed(keys.series, version)
        else:
            missing = version > 1 and holds_sealed(stream)
        if missing:
            raise self.engine.missing(f"it lacks the keys of {stream!r}, which has content already")

    def _plant(self, stream: str, version: int) -> StreamKeys:
        """Return the keys of a stream with a tree that `version` is in, made unless another process was quicker."""
        with self.engine.writing():
            keys = self._keys_of(stream, self.engine.stored(stream))
            if keys.key(keys.series, version) is None:
                series, root = _checked_series(stream, keys.series + 1, version), _new_root()
                self._insert(stream, series, [root])
                keys = keys.with_tree(series, root)
        self._keep(stream, keys)
        return keys

    def _keys_of(self, stream: str, stored: StoredKeys) -> StreamKeys:
        nodes = [(series, self._clear(node)) for series, node in stored.nodes]
        if not all(0 <= node.depth <= DEPTH and len(node.material) == KEY_BYTES for _, node in nodes):
            raise self.engine.missing(f"it cannot be used: a key of {stream!r} has another form")
        name = stream.encode()
        place = _PLACE + self.engine.log_id.encode() + len(name).to_bytes(4, "big") + name
        return StreamKeys(place, nodes, stored.destroyed)

    def _puncture(self, stream: str, series: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Replace the nodes above the leaves in `ranges`, both ends included, by those that are left without them."""
        before = [self._clear(node) for of, node in self.engine.stored(stream).nodes if of == series]
        after = before
        for first, last in ranges:
            after = list(without(after, first, last))
        assert not any(node.first <= last and first <= node.last for node in after for first, last in ranges)
        places = {(node.depth, node.prefix) for node in before}
        self.engine.delete(stream, series, places - {(node.depth, node.prefix) for node in after})
        self._insert(stream, series, [node for node in after if (node.depth, node.prefix) not in places])

    def _insert(self, stream: str, series: int, nodes: Iterable[Node]) -> None:
        """Add nodes, wrapped as all others are at this moment: another process may have changed that."""
        self._unwrapped(self.engine.secret())
        wrapped = [node._replace(material=wrap(self._wrapping, node.material)) for node in nodes]
        self.engine.insert(stream, series, wrapped)

    def _clear(self, node: Node) -> Node:
        return node._replace(material=self._unwrapped(node.material))

    def _unwrapped(self, stored: bytes) -> bytes:
        """Return stored material in the clear. Note which key it was wrapped with."""
        if (found := unwrap(self._wrapping, stored)) is not None:
            return found
        keys, named = [], os.environ.get(VARIABLE)
        try:
            keys = read_keys()
            given = f"the key file {named} has {', '.join(map(id_of, keys))}" if keys else "no key file is named"
        except (OSError, ValueError) as error:
            given = f"the key file {named} cannot be used: {error}"
        for key in (None, *keys):
            if (found := unwrap(key, stored)) is not None:
                self._wrapping = key
                return found
        raise self._unopened(given, keys)

    def _unopened(self, given: str, keys: Sequence[bytes]) -> errors.KeysMissing:
        """Return the error for keys that are wrapped with another key than those of the key file."""
        needed = self.engine.wrapped_with()
        if needed in [*map(id_of, keys)]:
            return self.engine.missing(f"it is damaged: the key {needed}, which it was wrapped with, does not open it")
        key = "a key whose id an earlier version did not note" if needed is None else f"the key {needed}"
        error = self.engine.missing(why := f"the keys of the content are wrapped with {key}; {given}")
        error.args = (why,)
        error.hint, error.wrapped = HINT, True
        return error


def _checked_series(stream: str, series: int, version: int = 0) -> int:
    if series > SERIES_MAX or version > LEAF_MAX:
        raise errors.StoreError(f"stream {stream!r} has no room for another key; nothing was written")
    return series


def id_of(key: bytes) -> str:
    """Return what names a key of the key file: the beginning of its SHA-256."""
    return sha256(key).hexdigest()[:8]


def _new_root() -> Node:
    return Node(0, 0, secrets.token_bytes(KEY_BYTES))


class CheckedKeys(NamedTuple):
    """What sound keys of a log have in all their copies."""

    secret: bytes
    trees: frozenset[tuple[str, int]]
    """The stream and the series of all keys, destroyed ones included: a later copy of the keys has them too."""


def check(keys: KeysEngine) -> CheckedKeys:
    """Check the keys of a log and close them. Raises `KeysMissing` if they are missing, damaged or of another log."""
    with closing(keys):
        return CheckedKeys(Keyring(keys).secret(), frozenset(keys.series()))


NONCES_TOGETHER: Final = 64
NONCE_AT: Final = HEAD_BYTES - NONCE_BYTES
_HEADS: Final = [bytes((SEALED, SEALING_FORMAT, series)) for series in range(256)]


class Sealer:
    """Encrypts the content of one log, and decrypts it as long as its key exists."""

    def __init__(self, keyring: Keyring) -> None:
        self.keyring = keyring
        self._nonces: list[bytes] = []

    @cached_property
    def _cipher(self) -> Any:
        # It takes some hundredths of a second to import, which commands that read no content need not wait for.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM

    def seal(self, stream: str, version: int, topic: str, plain: bytes, holds_sealed: Callable[[str], bool]) -> bytes:
        """Return `plain` as it is stored. Raises `KeysMissing`; `holds_sealed` as for `Keyring.key_to_seal`."""
        keys, key = self.keyring.key_to_seal(stream, version, holds_sealed)
        try:
            nonce = self._nonces.pop()  # Random although a key is used for one event: an append may run twice.
        except IndexError:
            nonce = self._new_nonces()
        sealed: bytes = self._cipher(key).encrypt(
            nonce, plain, keys.place + version.to_bytes(8, "big") + topic.encode()
        )
        return _HEADS[keys.series] + nonce + sealed

    def open(self, stream: str, version: int, topic: str, sealed: bytes | bytearray, *, position: int) -> bytes | None:
        """Return the decrypted content, None if its key was destroyed.

        Raises `KeysMissing`, and `LogDamaged` where the bytes are not those that were sealed there with that key.
        """
        if (why := why_invalid(sealed)) is not None:
            raise errors.UndecodableEvent(position=position, topic=topic, why=why)
        keys, key = self.keyring.key_to_open(stream, sealed[2], version)
        if key is None:
            return None
        place = keys.place + version.to_bytes(8, "big") + topic.encode()
        try:
            plain: bytes = self._cipher(key).decrypt(sealed[NONCE_AT:HEAD_BYTES], sealed[HEAD_BYTES:], place)
        except Exception as error:
            if type(error).__name__ != "InvalidTag":
                raise
            raise errors.LogDamaged(
                f"what is sealed at version {version} of {stream!r} does not open with its key", position=position
            ) from error
        return plain

    def _new_nonces(self) -> bytes:
        """Return a nonce, and keep some for later: the system gives many for the price of one."""
        made = os.urandom(NONCES_TOGETHER * NONCE_BYTES)
        self._nonces = [made[start : start + NONCE_BYTES] for start in range(NONCE_BYTES, len(made), NONCE_BYTES)]
        return made[:NONCE_BYTES]
