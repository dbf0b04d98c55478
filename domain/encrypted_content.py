"""The format of encrypted content, and which events have it. `mnemolog.infra.keys.keyring` decrypts it.

sealed = 0xC1 ‖ format 1 ‖ series ‖ nonce (12) ‖ ciphertext ‖ tag (16)
"""

from __future__ import annotations

import re
from typing import Final

from mnemolog.domain.events import (
    CheckpointCreated,
    ContextServed,
    FactAsserted,
    FactRetracted,
    NoteAdded,
    ProposalDecided,
    ProposalMade,
    RecallServed,
    SessionStarted,
    StandingEnded,
    TaskChanged,
    TurnRecorded,
    ValueDeleted,
    ValueSet,
)
from mnemolog.domain.items import ItemPut
from mnemolog.domain.threads import ThreadCheckpointed, ThreadWritten

SEALED: Final = 0xC1
"""A first byte that msgpack never uses: it distinguishes encrypted states from plain ones."""
SEALING_FORMAT: Final = 1
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
HEAD_BYTES: Final = 3 + NONCE_BYTES

SEALED_TOPICS: Final = frozenset(
    kind.topic
    for kind in (
        *(TurnRecorded, ValueSet, ValueDeleted, TaskChanged, NoteAdded, CheckpointCreated),
        *(RecallServed, ContextServed),
        *(FactAsserted, FactRetracted, StandingEnded),
        *(ProposalMade, ProposalDecided),
        *(ThreadCheckpointed, ThreadWritten, ItemPut),
    )
)
"""Events that are encrypted as a whole. All others describe where content is, and stay readable."""
CONTENT_TOPICS: Final = SEALED_TOPICS | {SessionStarted.topic}
"""Events with content: also the start of a session, whose name is encrypted."""

REQUEST_DIGEST: Final = re.compile(rb"#[0-9a-f]{16}\Z")
"""The end of an idempotency key with an unkeyed digest of a request, as servers of an earlier form wrote it."""
IMPORTED_KEY: Final = re.compile(rb"[0-9a-f]{24}(-[0-9]+)?")
"""An idempotency key that `import` or `watch` of an earlier form made from a text with the secret of the store."""


def why_invalid(state: bytes | bytearray) -> str | None:
    """Return why a state that starts like an encrypted one is invalid; None if it may be valid."""
    if len(state) < HEAD_BYTES + TAG_BYTES:
        return "it is too short for encrypted content"
    if state[1] != SEALING_FORMAT:
        return f"it is sealed in format {state[1]}; this mnemolog knows {SEALING_FORMAT}"
    return None
