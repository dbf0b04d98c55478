"""The exceptions that msgspec raises for invalid bytes."""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError)
"""A text that is no UTF-8 is not among msgspec's own errors, so that catching only those misses one flipped bit."""
