"""What sealed content looks like from outside, and what is sealed. It is opened by `mnemolog.infra.keys.encryption`.

sealed = 0xC1 ‖ format 1 ‖ series ‖ nonce (12) ‖ ciphertext ‖ tag (16)
"""

from __future__ import annotations

from typing import Final

from mnemolog.domain.events import (
    CheckpointCreated,
    NoteAdded,
    RecallServed,
    SessionStarted,
    TaskChanged,
    TurnRecorded,
    ValueDeleted,
    ValueSet,
)
from mnemolog.domain.item_events import ItemPut
from mnemolog.domain.thread_events import ThreadCheckpointed, ThreadWritten

SEALED: Final = 0xC1
"""The byte that msgpack never uses: sealed and plain states are told apart by it."""
SEALING_FORMAT: Final = 1
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD_BYTES: Final = 3 + NONCE_BYTES

SEALED_TOPICS: Final = frozenset(
    kind.topic
    for kind in (
        *(TurnRecorded, ValueSet, ValueDeleted, TaskChanged, NoteAdded, CheckpointCreated, RecallServed),
        *(ThreadCheckpointed, ThreadWritten, ItemPut),
    )
)
"""What is content as a whole. Everything else says where content is and what became of it, and stays readable."""
CONTENT_TOPICS: Final = SEALED_TOPICS | {SessionStarted.topic}
"""What has content: also the start of a session, whose name is sealed."""


def why_invalid(state: bytes | bytearray) -> str | None:
    """Return why a state that begins as a sealed one does is none that can be opened here; None where it may be."""
    if len(state) < HEAD_BYTES + TAG_BYTES:
        return "it is too short for sealed content"
    if state[1] != SEALING_FORMAT:
        return f"it is sealed in format {state[1]}; this mnemolog knows {SEALING_FORMAT}"
    return None
