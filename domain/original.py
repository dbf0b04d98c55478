"""The original bytes of a turn, kept beside its text.

An agent framework has its own items: they hold more than a role and a text, and must be returned exactly. They are
deflated with the turn's text as the dictionary, so that it is not stored twice.
"""

from __future__ import annotations

import msgspec

from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import checked_label
from mnemolog.domain.thread_events import Blob
from mnemolog.domain.threads import pack, unpack


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a turn in a framework's own format. Opaque to mnemolog."""

    form: str
    """The format, as a label such as `openai-agents.item`."""
    data: bytes
    """Up to 64 MiB."""


def stored_original(original: Original, *, text: str) -> Blob:
    """Return the original of a turn with that text in its stored form. Raises `InvalidInput`, `LimitExceeded`."""
    return pack(checked_label("original.form", original.form), original.data, dictionary=text.encode())


def original_of(turn: TurnRecorded) -> Original | None:
    """Return the original of a turn, None if it has none. Raises `LogDamaged`."""
    if turn.original is None:
        return None
    try:
        return Original(form=turn.original.kind, data=unpack(turn.original, dictionary=turn.text.encode()))
    except ValueError as error:
        raise LogDamaged(f"the original of a turn cannot be read: {error}") from error
