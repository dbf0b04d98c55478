"""What every event is: a frozen struct that is stored under a topic of our choosing."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A fact. Appended once, never changed.

    Nothing in it can refer back to it, so the collector of cycles need not look at it (`gc=False`): of every event that
    is read some are made.
    """

    topic: ClassVar[str]
