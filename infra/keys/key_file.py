"""A key for the content keys: what is stored of them is wrapped with it, and opens nothing without this key.

AES key wrap with 256 bits (NIST SP 800-38F, RFC 3394). docs/adr/0061-a-key-for-the-keys.md.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

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
