"""Default values, importable without importing the store."""

from typing import Final

DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
DEFAULT_AGENT: Final = "agent"
DEFAULT_PORT: Final = 8900
"""The port that a server listens on."""
BODY_MAX: Final = 16 * 2**20
"""Bytes of the body of a request to a server."""
