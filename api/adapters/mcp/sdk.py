"""The official SDK, imported in two thirds of the time: that is most of what the server takes to start (ADR 20)."""

from __future__ import annotations

import gc

from pydantic import BaseModel, ConfigDict

# The SDK makes five hundred pydantic models when it is imported. Here their validators are made when they are first
# used, which most never are, and the garbage collector, which would look at all of them again and again, waits.
_config, _collects = BaseModel.model_config, gc.isenabled()
BaseModel.model_config = ConfigDict(defer_build=True)
gc.disable()
try:
    import mcp_types
    from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend as BearerAuthBackend
    from mcp.server.auth.provider import AccessToken as AccessToken
    from mcp.server.lowlevel.server import Server as Server
    from mcp.server.stdio import stdio_server as stdio_server
    from mcp.server.transport_security import TransportSecuritySettings as TransportSecuritySettings
    from mcp.shared.exceptions import MCPError as MCPError
finally:
    BaseModel.model_config = _config
    if _collects:
        gc.enable()

types = mcp_types
