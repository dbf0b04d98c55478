"""The official SDK, imported in less time: this is most of what the server takes to start (ADR 20)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

# The SDK's five hundred models build their validators when they are first used, and not all of them at import:
# what a connection uses is a tenth of them. Only what is imported here is concerned.
_before, BaseModel.model_config = BaseModel.model_config, ConfigDict(defer_build=True)
try:
    import mcp_types as types
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend
    from mcp.server.auth.provider import AccessToken
    from mcp.server.lowlevel.server import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.transport_security import TransportSecuritySettings
    from mcp.shared.exceptions import MCPError
finally:
    BaseModel.model_config = _before

__all__ = [
    "AccessToken",
    "BearerAuthBackend",
    "MCPError",
    "Server",
    "TransportSecuritySettings",
    "stdio_server",
    "types",
]
