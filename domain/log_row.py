"""A stored event: the bytes that the digest chain covers."""

from __future__ import annotations

from typing import NamedTuple


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
