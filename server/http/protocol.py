"""Names of the HTTP interface that several modules share: a path, a header, a media type."""

from __future__ import annotations

from typing import Final

MCP_PATH: Final = "/mcp"
KEY_HEADER: Final = "idempotency-key"
PROBLEM_JSON: Final = "application/problem+json"
