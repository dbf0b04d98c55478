"""Encrypt content with a separate key per event: AES-256-GCM (NIST SP 800-38D), bound to its place in the log.

The form is that of `mnemolog.domain.encrypted_content`. A nonce is random although
a key is used for one event: the work of one append may run twice. What is authenticated along is the log's identity,
stream, version and topic. docs/adr/0016-content-keys-and-forgetting.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from mnemolog.domain import errors
from mnemolog.domain.encrypted_content import HEAD_BYTES, NONCE_BYTES, SEALED, SEALING_FORMAT, why_invalid
from mnemolog.infra.keys.keyring import Keyring

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
            nonce = self._nonces.pop()
        except IndexError:
            nonce = self._new_nonces()
        place = keys.place + version.to_bytes(8, "big") + topic.encode()
        sealed: bytes = self._cipher(key).encrypt(nonce, plain, place)
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
            why = f"what is sealed at version {version} of {stream!r} does not open with its key"
            raise errors.LogDamaged(why, position=position) from error
        return plain

    def _new_nonces(self) -> bytes:
        """Return a nonce, and keep some for later: the system gives many for the price of one."""
        made = os.urandom(NONCES_TOGETHER * NONCE_BYTES)
        self._nonces = [made[start : start + NONCE_BYTES] for start in range(NONCE_BYTES, len(made), NONCE_BYTES)]
        return made[:NONCE_BYTES]
