from .http import Door, Memory, serve_http
from .pending import PendingMemory
from .server import make_server, serve_stdio

__all__ = ["Door", "Memory", "PendingMemory", "make_server", "serve_http", "serve_stdio"]
