"""The exceptions that msgspec raises for invalid bytes."""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Two that are not among msgspec's own errors: a text that is no UTF-8, as after one flipped bit, and deep nesting."""
