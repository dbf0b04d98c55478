"""Default values, importable without importing the store."""

from __future__ import annotations

from typing import Final

DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
DEFAULT_AGENT: Final = "agent"
