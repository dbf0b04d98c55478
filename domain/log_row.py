"""A stored event: the bytes that the digest chain covers."""

from __future__ import annotations

import struct
from typing import NamedTuple

from mnemolog.domain.digest import link


class LogRow(NamedTuple):
    """Every column of an event. Texts are UTF-8 unless they are damaged."""

    position: int
    stream: bytes
    version: int
    topic: bytes
    state: bytes
    key: bytes | None
    recorded_at: int
    digest: bytes

    def follows(self, previous: bytes) -> bool:
        """Whether the digest is that of these columns after the event with the digest `previous`."""
        try:
            return link(previous, *self[:-1]) == self.digest
        except (struct.error, TypeError):  # Damage can turn a value into one of another type.
            return False
