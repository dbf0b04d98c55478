"""What every event is: a frozen struct that is stored under a topic of our choosing."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact. Appended once, never changed."""

    topic: ClassVar[str]
