"""A turn as who handed it over has it, kept to the byte beside what everybody reads of it.

An agent framework has items of its own: more than a role and a text, and to be given back exactly. The text of the
turn is the dictionary that they are deflated with, so that it is not stored twice.
"""

from __future__ import annotations

import msgspec

from mnemolog.domain.errors import LogDamaged
from mnemolog.domain.events import TurnRecorded
from mnemolog.domain.limits import checked_label
from mnemolog.domain.thread_events import Blob
from mnemolog.domain.threads import pack, unpack


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a turn in a form that is somebody's own. Opaque here."""

    form: str
    """Who can read them: a label, such as `openai-agents.item`."""
    data: bytes
    """Up to 64 MiB."""


def stored_original(original: Original, *, text: str) -> Blob:
    """Return the original of a turn with that text as it is stored. Raises `InvalidInput`, `LimitExceeded`."""
    return pack(checked_label("original.form", original.form), original.data, dictionary=text.encode())


def original_of(turn: TurnRecorded) -> Original | None:
    """Return the original of a turn, None where it has none. Raises `LogDamaged`."""
    if turn.original is None:
        return None
    try:
        return Original(form=turn.original.kind, data=unpack(turn.original, dictionary=turn.text.encode()))
    except ValueError as error:
        raise LogDamaged(f"the original of a turn cannot be read: {error}") from error
