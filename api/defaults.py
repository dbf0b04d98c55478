"""What is meant where nothing is said, known to the command line before the store is imported."""

from __future__ import annotations

from typing import Final

DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
DEFAULT_AGENT: Final = "agent"
