"""Small JSON files with a checksum, to detect damage."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeVar

import msgspec

from mnemolog.domain.decoding import UNDECODABLE

Kept = TypeVar("Kept")


class _Checksummed(msgspec.Struct, frozen=True):
    """The content of the file, and its SHA-256."""

    sha256: str
    manifest: msgspec.Raw


class NotAsWritten(ValueError):
    """The bytes differ from what was written."""


def encode(value: Any) -> bytes:
    """Return the bytes of a file that contains `value`."""
    encoded = msgspec.json.encode(value)
    return msgspec.json.encode(_Checksummed(sha256(encoded).hexdigest(), msgspec.Raw(encoded)))


def decode(data: bytes, kind: type[Kept]) -> Kept:
    """Return the content of a file. Raises `NotAsWritten`."""
    try:
        found = msgspec.json.decode(data, type=_Checksummed)
        if sha256(found.manifest).hexdigest() != found.sha256:
            raise NotAsWritten("its bytes are not those that were written")
        return msgspec.json.decode(found.manifest, type=kind)
    except UNDECODABLE as error:
        raise NotAsWritten(str(error)) from error
