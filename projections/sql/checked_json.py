"""Small JSON files with a checksum, to detect damage."""

from hashlib import sha256
from typing import Any, Final, TypeVar

import msgspec

from mnemolog.domain.encoding import UNDECODABLE, to_json

Kept = TypeVar("Kept")


class _Checksummed(msgspec.Struct, frozen=True):
    """The content of the file, and its SHA-256."""

    sha256: str
    manifest: msgspec.Raw


# Made at import: of a type that two threads use for the first time at once, msgspec may read half of its fields.
_DECODER: Final = msgspec.json.Decoder(_Checksummed)


class NotAsWritten(ValueError):
    """The bytes differ from what was written."""


def encode(value: Any) -> bytes:
    """Return the bytes of a file that contains `value`."""
    encoded = to_json(value)
    return to_json(_Checksummed(sha256(encoded).hexdigest(), msgspec.Raw(encoded)))


def decode(data: bytes, decoder: msgspec.json.Decoder[Kept]) -> Kept:
    """Return the content of a file. `decoder` is made at import (see above). Raises `NotAsWritten`."""
    try:
        found = _DECODER.decode(data)
        if sha256(found.manifest).hexdigest() != found.sha256:
            raise NotAsWritten("its bytes are not those that were written")
        return decoder.decode(found.manifest)
    except UNDECODABLE as error:
        raise NotAsWritten(str(error)) from error
