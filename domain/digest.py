"""The digest chain, which reveals any change of history.

    digest(0) = SHA-256(genesis tag ‖ format ‖ created at ‖ log id)
    digest(n) = SHA-256(event tag ‖ digest(before n) ‖ position ‖ version ‖ recorded_at ‖ lengths ‖
                        stream ‖ topic ‖ state ‖ key)

Numbers are big-endian signed 64-bit, lengths signed 32-bit (-1 for an absent key), so no two rows share a
preimage. Stored bytes are hashed, never re-encoded ones. docs/adr/0004-offset-digest-and-log-identity.md.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

DIGEST_BYTES: Final = 32
_GENESIS_TAG: Final = b"mnemolog/genesis/1\x00"
_EVENT: Final = sha256(b"mnemolog/event/1\x00")
"""The state of the hash after the tag: copying it costs less than looking up the algorithm again."""
_IDENTITY: Final = Struct(">qq")
_HEADER: Final = Struct(">qqqiiii")


def genesis(*, log_id: str, log_format: int, created_at: int) -> bytes:
    """Return digest(0) of a log: 32 bytes over the identity of the log, different for any two logs."""
    return sha256(_GENESIS_TAG + _IDENTITY.pack(log_format, created_at) + log_id.encode()).digest()


def link(
    previous: bytes,
    position: int,
    stream: bytes,
    version: int,
    topic: bytes,
    state: bytes,
    key: bytes | None,
    recorded_at: int,
) -> bytes:
    """Return the digest of one event (32 bytes), given the digest of the event before it."""
    header = _HEADER.pack(
        position,
        version,
        recorded_at,
        len(stream),
        len(topic),
        len(state),
        -1 if key is None else len(key),
    )
    chained = _EVENT.copy()
    chained.update(b"".join((previous, header, stream, topic, state, key or b"")))
    return chained.digest()


class LogRow(NamedTuple):
    """Every column of a stored event, which the chain covers. Texts are UTF-8 unless they are damaged."""

    position: int
    stream: bytes
    version: int
    topic: bytes
    state: bytes
    key: bytes | None
    recorded_at: int
    digest: bytes
