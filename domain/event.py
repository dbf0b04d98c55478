"""The base of every event: a frozen struct, stored under a topic that we choose."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact. Appended once, never changed.

    It cannot be part of a reference cycle, so the garbage collector does not track it (`gc=False`): a read of the log
    creates very many of them.
    """

    topic: ClassVar[str]

    actor: str = ""
    """Who appended it (`mnemolog.acting_as`); empty if nobody was named."""
