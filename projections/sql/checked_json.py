"""Small files of JSON with a checksum of themselves: a flipped bit in one must not be taken for what it says."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from mnemolog.domain.decoding import UNDECODABLE

Kept = TypeVar("Kept")


class _Sealed(msgspec.Struct, frozen=True):
    """The file: what it says, and the SHA-256 of those bytes."""

    sha256: str
    manifest: msgspec.Raw


class NotAsWritten(ValueError):
    """The bytes are not those that were written."""


def encode(value: Any) -> bytes:
    """Return the bytes of a file that says `value`."""
    encoded = msgspec.json.encode(value)
    return msgspec.json.encode(_Sealed(sha256(encoded).hexdigest(), msgspec.Raw(encoded)))


def decode(data: bytes, kind: type[Kept]) -> Kept:
    """Return what a file says. Raises `NotAsWritten`."""
    try:
        found = msgspec.json.decode(data, type=_Sealed)
        if sha256(found.manifest).hexdigest() != found.sha256:
            raise NotAsWritten("its bytes are not those that were written")
        return msgspec.json.decode(found.manifest, type=kind)
    except UNDECODABLE as error:
        raise NotAsWritten(str(error)) from error
